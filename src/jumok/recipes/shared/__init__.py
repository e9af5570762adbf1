"""Code that several recipes use: data splits, tokenizers, batched decoding and scores."""
