"""Readers of text, table, gettext and image folders: stream examples, and name unusable lines by file and line."""
