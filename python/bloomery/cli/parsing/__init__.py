"""Command lines: what a command takes, and how to read it without waiting for typer."""
