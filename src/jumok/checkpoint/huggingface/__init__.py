"""Convert Hugging Face's configs and parameter names to ours and back; one module per architecture."""

from __future__ import annotations

from typing import Any

from jumok.errors import CheckpointError
from jumok.fields import JSONValue
from jumok.models import Config

from .bert import BertDialect, DistilBertDialect, RobertaDialect
from .dialect import Dialect
from .gemma import Gemma3Dialect
from .gpt2 import GPT2Dialect
from .images import DeiTDialect, SwinDialect, ViTDialect
from .llama import LlamaDialect
from .marian import MarianDialect, PegasusDialect
from .t5 import T5Dialect
from .whisper import WhisperDialect
from .xlm import XLMDialect

# a model is written by the first that can express it
_DIALECTS: tuple[Dialect[Any], ...] = (
    GPT2Dialect(), LlamaDialect(), Gemma3Dialect(), BertDialect(), RobertaDialect(), DistilBertDialect(), T5Dialect(),
    MarianDialect(), PegasusDialect(), ViTDialect(), DeiTDialect(), SwinDialect(), XLMDialect(), WhisperDialect(),
)  # fmt: skip

# by model_type in config.json
DIALECTS: dict[str, Dialect[Any]] = {model_type: dialect for dialect in _DIALECTS for model_type in dialect.model_types}


def get_dialect(model_type: JSONValue) -> Dialect[Any]:
    """Return the dialect that reads a Hugging Face folder with this "model_type" in its config.json."""
    if not isinstance(model_type, str) or model_type not in DIALECTS:
        raise CheckpointError(
            f"config.json has model_type {str(model_type)[:80]!r}; supported: {', '.join(sorted(DIALECTS))}; "
            "jumok look, jumok effect and jumok.Lens open other models with transformers"
        )
    return DIALECTS[model_type]


def find_dialect_for(config: Config) -> Dialect[Any]:
    """Return the first dialect that can write a model."""
    for dialect in _DIALECTS:
        if dialect.can_express(config):
            return dialect
    raise CheckpointError(f'Hugging Face has no model like this {config.family}; the format "jumok" can store it')
