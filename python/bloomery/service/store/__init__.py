"""Nodes: servers whose filters are in Redis, each with a copy in its memory that it answers from."""
