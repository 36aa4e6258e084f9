"""Exact answers by a server: filters that are bound to a source, its cache and its queue."""
