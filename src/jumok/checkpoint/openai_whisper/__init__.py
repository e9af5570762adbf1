"""Convert the models that OpenAI published for Whisper: a PyTorch file, and special tokens in Python source."""
