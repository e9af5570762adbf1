"""The answers of a session: a token in every head, steps, effects and Python code, computed from an inspection."""
