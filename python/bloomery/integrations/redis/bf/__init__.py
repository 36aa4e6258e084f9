"""Filters behind a server's own BF.* commands."""
