"""Experiments that show how attention works, for the CLI commands `steps`, `attend`, `demo` and `experiment`."""
