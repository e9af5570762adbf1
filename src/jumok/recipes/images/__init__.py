"""Recipes that train on images: classification and captioning."""
