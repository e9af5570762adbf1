"""Recipes that train on text: language models, masked language models, translation, text classification and reading passages."""
