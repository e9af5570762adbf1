"""Commands for lessons: ``jumok experiment``, ``jumok cost`` and ``jumok check``."""
