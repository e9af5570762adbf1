"""How attention works and what it costs; commands `steps`, `attend`, `experiment`, `cost`, `check`, `compare`."""
