"""Durable queues of writes that wait for the source: in a file of SQLite, or in Redis."""
