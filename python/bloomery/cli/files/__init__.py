"""Commands about filter files."""
