"""Load and save models: Hugging Face folders, GGUF files, and our own folders with checksums. Nothing is pickled."""

from jumok.errors import CheckpointError

from .load import load
from .loaded import Loaded
from .save import save

__all__ = ["CheckpointError", "Loaded", "load", "save"]
