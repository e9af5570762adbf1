"""What goes wrong while training, in sentences."""

from __future__ import annotations

from jumok.errors import JumokError


class TrainingError(JumokError):
    """Training cannot go on. What was saved before is untouched."""
