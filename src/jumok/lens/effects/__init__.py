"""Measure how much heads, edges and layers change a model's output, and read what they add to the residual stream."""
