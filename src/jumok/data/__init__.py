"""Models and data by name (catalogue), and text as numbers (tokenizer)."""
