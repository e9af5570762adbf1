"""Convert Hugging Face's configs and parameter names to ours and back; one module per architecture."""

from __future__ import annotations

from jumok.errors import CheckpointError
from jumok.fields import JSONValue
from jumok.models import Config

from . import bert, distilbert, gpt2, llama, marian, pegasus, swin, t5, vit, whisper, xlm
from .dialect import Dialect

_MODULES: tuple[Dialect, ...] = (gpt2, llama, bert, distilbert, t5, marian, pegasus, vit, swin, xlm, whisper)

# model_type in config.json -> the module that reads it
DIALECTS: dict[str, Dialect] = {model_type: module for module in _MODULES for model_type in module.MODEL_TYPES}


def get_dialect(model_type: JSONValue) -> Dialect:
    """Return the module that reads a Hugging Face folder.

    Args:
        model_type: "model_type" in its config.json.

    Raises:
        CheckpointError: If no module reads this type.
    """
    if not isinstance(model_type, str) or model_type not in DIALECTS:
        raise CheckpointError(
            f"config.json has model_type {str(model_type)[:80]!r}; supported: {', '.join(sorted(DIALECTS))}; "
            "jumok look, jumok effect and jumok.Lens open other models with transformers"
        )
    return DIALECTS[model_type]


def find_dialect_for(config: Config) -> Dialect:
    """Return the first module that can write a model.

    Raises:
        CheckpointError: If Hugging Face has no equivalent model.
    """
    for module in _MODULES:
        if module.can_express(config):
            return module
    raise CheckpointError(f'Hugging Face has no model like this {config.family}; the format "jumok" can store it')
