"""Find out how far the lens supports a model, by opening it and running a tiny input."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from jumok.checkpoint import Loaded
from jumok.checkpoint.transformers_folder import LoadedTransformers, quiet_transformers
from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.errors import JumokError
from jumok.models import Model

from .huggingface.router import EDITABLE, REFUSED, Support
from .lens import Lens
from .model_facts import (
    DECODER_INPUT,
    MAX_IMAGE_SIDE,
    find_image_channels,
    find_image_size,
    find_start_token,
    is_encoder_decoder,
    read_integer,
)

OWN_FAMILY = "own family"
SAMPLE_TEXT = "The cat sat on the mat."
SAMPLE_TOKENS = [5, 6, 7, 8]
SAMPLE_RATE = 16_000  # one second of silence


def find_support_level(model: nn.Module | Loaded | LoadedTransformers) -> Support:
    """Return how far the lens supports a model: it is opened, and runs a short text or a blank image.

    >>> import jumok
    >>> find_support_level(jumok.load("tiny"))
    Support(level='own family', reason='gpt', route=None)
    """
    module = model.model if isinstance(model, Loaded | LoadedTransformers) else model
    if isinstance(module, Model):
        return Support(OWN_FAMILY, module.family)
    reason, name = "", type(module).__name__
    try:
        with Lens(model) as lens:
            for inputs in build_sample_inputs(module, lens.tokenizer):
                try:
                    with quiet_transformers():
                        lens.run(**inputs)
                except Exception as error:  # a model may fail anywhere on an input that is not meant for it
                    reason = f"{name} does not run in the lens: {str(error)[:300]}"
                    continue
                support = lens.support
                assert support is not None  # of a model of transformers that has run
                if support.level == EDITABLE:
                    incomplete = f"; {support.reason}" if support.reason else ""
                    return Support(EDITABLE, f"{name} of transformers, through attend(){incomplete}")
                return Support(support.level, f"{name} of transformers returns its maps itself: {support.reason}")
    except JumokError as error:
        return Support(REFUSED, str(error))
    unknown = f"{name} reads {module.main_input_name}, and there is no sample of that to test it with"
    return Support(REFUSED, reason or unknown)


def build_sample_inputs(model: Any, tokenizer: TextTokenizer | None) -> Iterator[dict[str, Any]]:
    """Yield inputs that a model of transformers may read: its main input, then a text and an image together."""
    vocabulary = read_integer(model.config, "vocab_size")
    tokens = SAMPLE_TOKENS if tokenizer is None else tokenizer.encode(SAMPLE_TEXT)
    if vocabulary is not None and vocabulary > 0:
        tokens = [token % vocabulary for token in tokens]
    samples = {"input_ids": torch.tensor([tokens]), "input_values": torch.zeros(1, SAMPLE_RATE)}
    size, channels = find_image_size(model), find_image_channels(model)
    if size is not None and isinstance(channels, int) and 0 < channels <= MAX_IMAGE_SIDE:
        samples["pixel_values"] = torch.zeros(1, channels, *size)  # black
    # as Whisper reads it: mel bands over frames
    bands, positions = (read_integer(model.config, name) for name in ("num_mel_bins", "max_source_positions"))
    if bands is not None and positions is not None:
        samples["input_features"] = torch.zeros(1, bands, 2 * positions)
    decoder: dict[str, Any] = {}
    if is_encoder_decoder(model) and DECODER_INPUT in inspect.signature(model.forward).parameters:
        start = find_start_token(model)
        decoder = {DECODER_INPUT: torch.tensor([[0 if start is None else start]])}
    main = model.main_input_name
    if main in samples:
        yield {main: samples[main], **decoder}
    if "pixel_values" in samples and hasattr(model.config, "vision_config"):
        yield {"input_ids": samples["input_ids"], "pixel_values": samples["pixel_values"], **decoder}
