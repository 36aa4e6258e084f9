"""A table or a query in SQL as the source of truth."""
