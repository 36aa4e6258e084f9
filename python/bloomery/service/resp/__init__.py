"""The door for clients of the Redis protocol: translation only; what is done is in `commands`."""
