"""Build token ids with padding, for a config of any text model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .config_tree import walk_configs

BATCH = 2
PADDING = 2  # padding tokens at the end of the second row
FIRST_TEXT_TOKEN, LAST_TEXT_TOKEN = 20, 60


def list_special_tokens(config: PreTrainedConfig) -> set[int]:
    """Collect every token id that a field of a config or of its sub-configs names.

    Args:
        config: The config of a model.
    """
    tokens: set[int] = set()
    for part in walk_configs(config):
        for name, entry in vars(part).items():
            if name.endswith(("token_id", "token_index", "_id")):
                tokens |= {
                    number
                    for number in (entry if isinstance(entry, list | tuple) else [entry])
                    if isinstance(number, int)
                }
    return tokens


def build_tokens(config: PreTrainedConfig, length: int, seed: int, vocabulary: int | None = None) -> Tensor:
    """Build random token ids ``[batch, length]`` that are no special tokens.

    Args:
        config: The config of the model.
        length: The number of tokens.
        seed: The seed of the random numbers.
        vocabulary: The number of tokens, if it is not the config's.
    """
    size = vocabulary or getattr(config.get_text_config(), "vocab_size", None) or LAST_TEXT_TOKEN
    special = list_special_tokens(config)
    limit = min(int(size), LAST_TEXT_TOKEN)
    usable = [token for token in range(min(FIRST_TEXT_TOKEN, limit // 3), limit) if token not in special]
    indices = torch.randint(len(usable), (BATCH, length), generator=torch.Generator().manual_seed(seed))
    return torch.tensor(usable)[indices]


def build_text(config: PreTrainedConfig, length: int, seed: int = 0) -> dict[str, Tensor]:
    """Build token ids that end with the end token, where there is one, and whose second row is padded on the right.

    Args:
        config: The config of the model.
        length: The number of tokens.
        seed: The seed of the random numbers.
    """
    text_config = config.get_text_config()
    tokens = build_tokens(config, length, seed)
    attention_mask = torch.ones_like(tokens)
    attention_mask[1, length - PADDING :] = 0
    end = _first(getattr(text_config, "eos_token_id", None))
    pad = _first(getattr(text_config, "pad_token_id", None))
    if end is not None and 0 <= end < getattr(text_config, "vocab_size", 0):
        tokens[0, -1] = tokens[1, length - PADDING - 1] = end
    tokens[1, length - PADDING :] = pad if pad is not None and pad >= 0 else 0
    return {"input_ids": tokens, "attention_mask": attention_mask}


def _first(entry: Any) -> int | None:
    """Return a token id, or the first of several."""
    if isinstance(entry, list | tuple):
        return entry[0] if entry else None
    return entry if isinstance(entry, int) else None
