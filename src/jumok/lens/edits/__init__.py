"""Edits: what to change in a model's attentions and MLPs during a forward pass, and how the changes are applied."""
