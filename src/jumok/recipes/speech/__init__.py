"""Recipes that train on speech: a small model that transcribes spoken words."""
