"""Data: catalogue, tokenizers, readers, images, datasets, batches and the token store."""
