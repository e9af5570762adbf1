"""Experiment ``listening``: which cross-attention heads of a speech model listen in time, and what depends on them."""
