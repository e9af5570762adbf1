"""Recipes that train on text: language models, masked language models, translation and text classification."""
