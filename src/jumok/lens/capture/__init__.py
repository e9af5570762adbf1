"""Record what the attentions of a model compute during a forward pass."""
