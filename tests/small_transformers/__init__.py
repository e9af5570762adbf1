"""Build small models of every class of transformers, with valid inputs, and compare them with and without the lens."""
