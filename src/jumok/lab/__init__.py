"""The lessons, as programs."""
