"""Commands about servers."""
