"""Nodes: servers that share one log in Redis, each with all filters in memory."""
