"""The door for clients of HTTP: JSON, described by OpenAPI; it only translates to `commands`."""
