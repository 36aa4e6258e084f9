"""The registry: what filters there are and were, in SQL tables for people and dashboards."""
