"""Commands that show a lesson with numbers: ``jumok experiment`` and ``jumok cost``."""
