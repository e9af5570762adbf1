"""Recipes that train on questions with passages: reading."""
