"""Tokenizers: encode text as token ids, read tokenizer files, render conversations, and label tokens."""
