"""Choose how a model reads passages: in its prompt, or apart, with Fusion-in-Decoder."""

from __future__ import annotations

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.models.fusion import Fusion
from jumok.models.gpt import GPT

from .fusion_reader import FusionReader
from .prompt_reader import PromptReader
from .reading import Reader


def create_reader(loaded: Loaded) -> Reader:
    """Return a reader for a model.

    Args:
        loaded: A language model or a Fusion-in-Decoder, with its tokenizer.

    Raises:
        ArgumentError: If the model cannot answer questions from passages.
    """
    if isinstance(loaded.model, GPT):
        return PromptReader(loaded)
    if isinstance(loaded.model, Fusion):
        return FusionReader(loaded)
    raise ArgumentError(
        f"a {loaded.family} model cannot answer questions from passages; choose a language model such as smollm2, or a "
        "run of the recipe reader"
    )
