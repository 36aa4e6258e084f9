"""The filters in Redis as users have them, for threads and for asyncio."""
