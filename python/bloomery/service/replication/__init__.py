"""Nodes: servers whose filters are in Redis, each with a copy in memory that it answers from."""
