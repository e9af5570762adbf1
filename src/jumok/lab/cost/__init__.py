"""Costs: parameters, operations and memory of a Transformer from formulas, beside measurements. See ``jumok cost``."""
