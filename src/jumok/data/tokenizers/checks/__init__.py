"""Check a tokenizer.json, which is not trusted: how much it makes a text grow, and how long its patterns search."""
