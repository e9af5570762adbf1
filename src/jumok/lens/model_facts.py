"""Read the facts that the lens needs about a model, whether it is Jumok's or from transformers.

Configs name the same fact differently ("vocabulary" in Jumok, "vocab_size" in transformers); the names of vocabularies,
widths, context lengths, start tokens and image sizes are read only here.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from jumok.models import Model

#: the two sides of a translation model may have different vocabularies
VOCABULARY_NAMES = ("vocabulary", "target_vocabulary", "vocab_size", "decoder_vocab_size")
WIDTH_NAMES = ("width", "hidden_size")
DECODER_INPUT = "decoder_input_ids"  # the argument of transformers for the tokens of a decoder
MAX_IMAGE_SIDE = 4096  # pixels; larger sides of untrusted files are refused
LAST_LOGITS_ARGUMENTS = ("last", "logits_to_keep")  # Jumok, transformers


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a model; None where the model does not have or state one."""

    vocabulary: int | None  # the number of tokens; of two vocabularies (source and target) the larger one
    context_length: int | None  # the longest token sequence that the model accepts
    width: int | None  # the number of entries of a hidden vector
    embedding: Float[Tensor, "token width"] | None  # of models whose embedding is a direct submodule of this name
    last_logits_argument: str | None  # the argument of forward that limits how many logits are computed
    has_cache_setting: bool  # forward accepts use_cache, as in transformers

    @staticmethod
    def read(model: nn.Module) -> ModelFacts:
        """Read the facts from a model's config, submodules and ``forward`` signature."""
        config = model.config
        vocabularies = [read_integer(config, name) for name in VOCABULARY_NAMES]
        embedding = dict(model.named_children()).get("embedding")
        arguments = inspect.signature(model.forward).parameters
        return ModelFacts(
            vocabulary=max((size for size in vocabularies if size is not None), default=None),
            context_length=find_context_length(model),
            width=next((size for name in WIDTH_NAMES if (size := read_integer(config, name)) is not None), None),
            embedding=embedding.weight.detach() if isinstance(embedding, nn.Embedding) else None,
            last_logits_argument=next((name for name in LAST_LOGITS_ARGUMENTS if name in arguments), None),
            has_cache_setting=getattr(config, "use_cache", None) is not None,
        )

    def build_last_logits_arguments(self, count: int) -> dict[str, int]:
        """Return the ``forward`` argument that limits the logits to the last positions; empty if there is none."""
        return {} if self.last_logits_argument is None else {self.last_logits_argument: count}

    def build_no_cache_arguments(self) -> dict[str, bool]:
        """Return the ``forward`` argument that disables the key/value cache; empty if there is none."""
        return {"use_cache": False} if self.has_cache_setting else {}


def read_integer(config: object, name: str) -> int | None:
    """Return an integer setting of a config, or None where it is missing or something else."""
    setting = getattr(config, name, None)
    return setting if isinstance(setting, int) else None


def find_context_length(model: nn.Module) -> int | None:
    """Return the longest token sequence that a model of Jumok or transformers accepts, or None."""
    return model.context_length if isinstance(model, Model) else read_integer(model.config, "max_position_embeddings")


def get_image_config(model: nn.Module) -> Any:
    """Return the part of the config of a model of transformers that describes its images."""
    for name in ("vision_config", "encoder"):
        part = getattr(model.config, name, None)
        if part is not None and not isinstance(part, str | int | dict):
            return part
    return model.config


def find_image_channels(model: nn.Module) -> Any:
    """Return the number of channels of the images of a model of transformers; a damaged config may state anything."""
    return getattr(get_image_config(model), "num_channels", 3)


def find_image_size(model: nn.Module) -> tuple[int, int] | None:
    """Return the (rows, columns) of the images of a model of transformers, or None where its config states none."""
    size = getattr(get_image_config(model), "image_size", None)
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, int) and 0 < side <= MAX_IMAGE_SIDE for side in sides):
        return None
    return sides


def is_encoder_decoder(model: nn.Module) -> bool:
    """Return whether a model of Jumok or transformers reads a source and a target."""
    owner = model if isinstance(model, Model) else model.config
    return bool(getattr(owner, "is_encoder_decoder", False))


def find_start_token(model: nn.Module) -> int | None:
    """Return the token that the decoder of a model of transformers starts with, or None."""
    for name in ("decoder_start_token_id", "bos_token_id"):
        for settings in (getattr(model, "generation_config", None), model.config):
            token = getattr(settings, name, None)
            if isinstance(token, int):
                return token
    return None
