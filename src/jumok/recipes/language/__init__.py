"""Recipes that train on text: language models, masked language models, translation, classification and reading."""
