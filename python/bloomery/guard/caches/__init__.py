"""Caches of confirmed answers: in the process, or in Redis."""
