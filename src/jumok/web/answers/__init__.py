"""The answers of a session: tiles, predictions, steps, effects and Python code, computed from an inspection."""
