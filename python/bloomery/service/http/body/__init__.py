"""Bodies of requests: JSON, lines of JSON, Arrow streams, read within limits."""
