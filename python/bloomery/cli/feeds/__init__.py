"""Commands about feeds: filters that others keep a copy of."""
