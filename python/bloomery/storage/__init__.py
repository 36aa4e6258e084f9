"""Bytes to and from disk."""
