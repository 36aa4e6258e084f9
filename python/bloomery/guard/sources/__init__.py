"""Sources of truth: functions, or tables in SQL."""
