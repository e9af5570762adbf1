"""Measure how much heads, edges and layers change a model's output."""
