"""The server: named filters, what can be done to them (commands), and the doors to that."""
