"""Reports of ``jumok look --query``: where one token looks, and which of two words it prefers."""
