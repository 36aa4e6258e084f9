"""Other engines: each in a folder or a file of its own, behind an extra."""
