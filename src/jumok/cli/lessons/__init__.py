"""Commands that show a lesson with numbers: ``jumok experiment``."""
