"""The server: named filters, what can be done to them (commands), and two protocols for clients."""
