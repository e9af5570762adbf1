"""Route the attentions of models from transformers through ``attend()`` while a lens is open."""
