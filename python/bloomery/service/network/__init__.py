"""Sockets: where the server listens, TLS and its reload, and how much input may wait."""
