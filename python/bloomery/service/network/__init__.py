"""Listening sockets, the TLS certificate and its reload, and the budget of unprocessed input."""
