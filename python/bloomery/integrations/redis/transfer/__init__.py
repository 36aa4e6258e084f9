"""Whole filters between this process and Redis."""
