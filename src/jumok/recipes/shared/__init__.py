"""Code that several recipes use: data splits, stored data, tokenizers, seq2seq batches, decoding and scores."""
