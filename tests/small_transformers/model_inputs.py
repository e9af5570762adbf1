"""Build valid inputs for a small model from the signature of its ``forward`` and its config."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .audio_inputs import list_spectrograms, list_waveforms
from .config_tree import find_field
from .image_inputs import list_image_inputs
from .other_inputs import build_other_inputs
from .text_inputs import BATCH, build_text, build_tokens

Inputs = dict[str, Any]
DECODER_LENGTH = 5
MOST_LAYOUTS = 40
CHOICES = 3


class NoInputsError(Exception):
    """No layout of inputs that we know runs through the model."""


def find_inputs(model: Any, length: int) -> Inputs:
    """Return the first inputs that the model accepts.

    Args:
        model: A model of transformers in eval mode.
        length: The number of text tokens.

    Raises:
        NoInputsError: If the model accepts none; the message is that of the first error.
    """
    first_error: Exception | None = None
    for inputs in list_inputs(model, length):
        try:
            with torch.no_grad():
                model(**inputs)
        except Exception as error:  # any error means that the layout is wrong
            first_error = first_error or error
        else:
            return inputs
    raise NoInputsError(f"{type(first_error).__name__}: {first_error}") from first_error


def list_inputs(model: Any, length: int) -> Iterator[Inputs]:
    """Yield inputs that the model may accept, the most complete first.

    Args:
        model: A model of transformers.
        length: The number of text tokens.
    """
    config = model.config
    names = set(inspect.signature(model.forward).parameters)
    main = model.main_input_name if isinstance(model.main_input_name, str) else model.main_input_name[0]
    layouts: list[list[Inputs]] = []
    if names & {"pixel_values", "pixel_values_videos", "grid_thw"}:
        layouts.append(list_image_inputs(config, names))
    if "input_features" in names:
        layouts.append(list_spectrograms(config, names))
    if "input_values" in names:
        layouts.append(list_waveforms(config, names))
    settings: Inputs = {"use_cache": False} if "use_cache" in names else {}
    settings |= build_other_inputs(config, names, length)
    if "input_ids" not in names:
        for parts in itertools.islice(itertools.product(*layouts), MOST_LAYOUTS):
            inputs = settings | _merge(parts)
            yield from _add_decoder(inputs, config, names)
        return
    for parts in itertools.islice(itertools.product(*layouts), MOST_LAYOUTS):
        yield from _add_decoder(settings | _add_text(model, _merge(parts), names, length), config, names)
    if len(layouts) > 1:
        for parts in (part for layout in layouts for part in layout):
            yield from _add_decoder(settings | _add_text(model, parts, names, length), config, names)
    if layouts and main == "input_ids":
        yield from _add_decoder(settings | _add_text(model, {}, names, length), config, names)


def _merge(parts: tuple[Inputs, ...]) -> Inputs:
    return {name: tensor for part in parts for name, tensor in part.items()}


def _add_decoder(inputs: Inputs, config: Any, names: set[str]) -> Iterator[Inputs]:
    """Add the target tokens of an encoder-decoder."""
    if "decoder_input_ids" in names:
        decoder = getattr(config, "decoder", None) or getattr(config, "decoder_config", None) or config
        vocabulary = getattr(decoder, "vocab_size", None)
        tokens = build_tokens(config, DECODER_LENGTH, 3, vocabulary if isinstance(vocabulary, int) else None)
        yield {**inputs, "decoder_input_ids": tokens}
    yield inputs


def _add_text(model: Any, media: Inputs, names: set[str], length: int) -> Inputs:
    """Add token ids with as many placeholders as the images and sounds need."""
    text = build_text(model.config, length)
    kinds = torch.zeros_like(text["input_ids"])
    for modality, number in (("image", 1), ("video", 2), ("audio", 3)):
        token = find_field(model.config, f"{modality}_token_id", f"{modality}_token_index")
        count = _count_placeholders(model, modality, media) if isinstance(token, int) else 0
        if count:
            text = {
                "input_ids": _insert(text["input_ids"], token, count),
                "attention_mask": _insert(text["attention_mask"], 1, count),
            }
            kinds = _insert(kinds, number, count)
    if "mm_token_type_ids" in names:
        text["mm_token_type_ids"] = kinds
    if "token_type_ids" in names:
        size = find_field(model.config, "type_vocab_size")
        segments = torch.zeros_like(text["input_ids"])
        if isinstance(size, int) and size > 1:
            segments[:, segments.shape[1] // 2 :] = 1
        sizes = find_field(model.config, "type_vocab_sizes")  # TAPAS: seven kinds of segments
        text["token_type_ids"] = segments if sizes is None else segments[..., None].repeat(1, 1, len(sizes))
    if "bbox" in names:
        text["bbox"] = torch.arange(4).expand(*text["input_ids"].shape, 4).clone() * 7 + text["input_ids"][..., None]
    codebooks = find_field(model.config, "num_codebooks")
    if main_is_codes(model) and isinstance(codebooks, int):
        text = {
            "input_ids": text["input_ids"].repeat_interleave(codebooks, 0),
            "attention_mask": text["attention_mask"],
        }
    if "attention_mask" not in names or "attention_mask" in media:
        text.pop("attention_mask")
    if type(model).__name__.endswith("ForMultipleChoice"):
        text = {
            name: tensor[:, None].expand(-1, CHOICES, *tensor.shape[1:]).contiguous() for name, tensor in text.items()
        }
    return media | text


def main_is_codes(model: Any) -> bool:
    """Say whether a model reads the codes of a sound, one row for each codebook, as MusicGen's decoder does.

    Args:
        model: A model of transformers.
    """
    return model.config.model_type in ("musicgen_decoder", "musicgen_melody_decoder")


def _insert(tensor: Tensor, number: int, count: int) -> Tensor:
    """Insert ``count`` columns after the first column."""
    return torch.cat([tensor[:, :1], torch.full((BATCH, count), number), tensor[:, 1:]], 1)


def _count_placeholders(model: Any, modality: str, inputs: Inputs) -> int:
    """Return how many tokens of each text an image, a video or a sound replaces."""
    name = f"get_{modality}_features"
    owner = next((module for module in model.modules() if hasattr(module, name)), None)
    if owner is None or not inputs:
        return 0
    get_features = getattr(owner, name)
    names = set(inspect.signature(get_features).parameters)
    accepted = {name: tensor for name, tensor in inputs.items() if name in names}
    if not accepted:
        return 0
    try:
        with torch.no_grad():
            features = get_features(**accepted)
    except Exception:  # the layout is wrong, which the forward pass will show
        return 0
    features = getattr(features, "pooler_output", features)
    return _count_rows(features) // BATCH


def _count_rows(features: Any) -> int:
    """Count the vectors in a tensor or in nested lists of tensors."""
    if isinstance(features, Tensor):
        return features.numel() // features.shape[-1]
    if isinstance(features, list | tuple):
        return sum(_count_rows(part) for part in features)
    return 0
