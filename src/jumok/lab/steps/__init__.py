"""The command ``jumok steps``: attention step by step, on the examples of the documents, on a text and in a model."""
