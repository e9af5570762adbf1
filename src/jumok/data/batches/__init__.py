"""Batches: which examples form a batch, which examples are held out, and padding."""
