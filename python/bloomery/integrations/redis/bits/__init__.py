"""Filters whose bits, counters or generations are strings of Redis."""
