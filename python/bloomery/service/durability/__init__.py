"""Nothing acknowledged is lost: the write-ahead log, snapshots, and recovery from both."""
