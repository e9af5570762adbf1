"""Data: catalogue, tokenizers, readers, images, audio, datasets, batches and token shards."""
