"""Filters of files that are there already: which parts of them may have a value."""
