"""Round trips to Redis: clients, connections, replies, retries and failures."""
