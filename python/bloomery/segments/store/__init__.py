"""What an LSM tree does: a memtable and its log, segments and their filters."""
