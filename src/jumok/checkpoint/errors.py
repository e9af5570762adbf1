"""A checkpoint that cannot be read, or should not be."""

from jumok.errors import JumokError


class CheckpointError(JumokError, ValueError):
    """What is wrong with a checkpoint, which file, and what to do."""
