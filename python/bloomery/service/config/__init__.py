"""What can be set, from a file, the environment, flags and CONFIG SET, checked before it counts."""
