"""Commands for the user's own files: ``jumok index`` and ``jumok ask``."""
