"""Authentication, roles and permissions, rate limits on logins, and the audit log."""
