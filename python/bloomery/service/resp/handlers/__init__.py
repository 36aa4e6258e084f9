"""The commands of the Redis protocol, by family: each handler translates one to `commands`."""
