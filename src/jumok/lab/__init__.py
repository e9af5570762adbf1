"""Experiments on how attention works and what it costs: commands `steps`, `attend`, `demo`, `experiment`, `cost`."""
