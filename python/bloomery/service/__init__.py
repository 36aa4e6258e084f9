"""The server: named filters, their commands, and what it tells others about them."""
