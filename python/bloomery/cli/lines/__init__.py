"""Commands that read lines, JSON lines or CSV, and never hold them in memory."""
