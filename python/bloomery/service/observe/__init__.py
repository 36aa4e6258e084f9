"""What an operator sees of the server itself: its log and its metrics."""
