"""Token store: token ids on disk, memory-mapped."""
