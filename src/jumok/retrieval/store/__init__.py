"""The stored index of a folder: in the cache, incremental, safe against crashes, damage and several processes."""
