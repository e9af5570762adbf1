"""Inputs and answers of models of transformers: a text or an image in, and the answer of an encoder-decoder out.

Images are read with our own preparation where it applies, else with the folder's processor.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jumok.checkpoint.tensor_files import read_json
from jumok.checkpoint.transformers_folder import LoadedTransformers, quiet_transformers
from jumok.data.images.image_files import is_existing_file, open_image
from jumok.data.images.preparation import PREPROCESSOR_FILE, Preparation
from jumok.errors import ArgumentError, ImageError
from jumok.layers.patches import PatchLayout
from jumok.lens.model_facts import (
    DECODER_INPUT,
    MAX_IMAGE_SIDE,
    find_context_length,
    find_image_channels,
    find_image_size,
    get_image_config,
    is_encoder_decoder,
)

from .model_inputs import ModelInput, RawInput, check_text, encode_text

# parameters of positions before the patches, by the end of their names -> the label, or None for several
PREFIX_PARAMETERS = {"cls_token": "[class]", "distillation_token": "[distillation]", "register_tokens": None}


def read_transformers_input(loaded: LoadedTransformers, raw: RawInput, literal: bool = False) -> ModelInput:
    """Convert a text, or the path of an image, into a model input; ``literal``: a text, even if it names a file."""
    if loaded.reads == "text":
        if not literal:
            check_text(loaded.family, raw)
        model_input = encode_text(loaded, raw)
        _check_tokens(loaded, model_input.token_ids)
        return model_input
    if loaded.reads == "image":
        return ModelInput(read_pixels(loaded, raw).to(loaded.model.device))
    raise ArgumentError(
        f"{loaded.family} reads {loaded.reads}; the command line takes texts and images, and jumok.Lens(model)"
        ".run(**inputs) takes any tensors"
    )


def _check_tokens(loaded: LoadedTransformers, token_ids: list[int]) -> None:
    """Raise an ArgumentError for a text that is too long, or tokens that the model has no embedding for."""
    longest = find_context_length(loaded.model)
    if longest is not None and 0 < longest < len(token_ids):
        raise ArgumentError(
            f"the text has {len(token_ids):,} tokens, but this {loaded.family} reads at most {longest:,}"
        )
    try:
        embedding = loaded.model.get_input_embeddings()
    except NotImplementedError:  # a model with several parts, such as CLIP
        return
    count = getattr(embedding, "num_embeddings", None)
    if isinstance(count, int) and max(token_ids) >= count:
        raise ArgumentError(
            f"the tokenizer gives token {max(token_ids):,}, but {loaded.family} has {count:,} tokens; it belongs to "
            "another model"
        )


def generates_answer(loaded: LoadedTransformers) -> bool:
    """Return True if a model is an encoder-decoder that generates text."""
    arguments = inspect.signature(loaded.model.forward).parameters
    return DECODER_INPUT in arguments and is_encoder_decoder(loaded.model) and bool(loaded.model.can_generate())


def generate_answer(loaded: LoadedTransformers, model_input: ModelInput, limit: int) -> tuple[list[int], bool]:
    """Generate an answer greedily; return the start token with the answer, and whether the limit cut it."""
    model = loaded.model
    settings: dict[str, Any] = {"max_new_tokens": limit, "do_sample": False, "num_beams": 1}
    longest = find_context_length(model)
    if longest is not None and longest > 1:
        settings["max_new_tokens"] = min(limit, longest - 1)  # the start token needs a position too
    if model_input.token_ids:
        settings["attention_mask"] = torch.ones_like(model_input.source)
    try:
        with quiet_transformers(), torch.no_grad():
            generated: Tensor = model.generate(**{model.main_input_name: model_input.source}, **settings)
    except Exception as error:  # generation depends on settings of an untrusted folder
        raise ArgumentError(f"{loaded.family} cannot generate an answer: {str(error)[:300]}") from None

    target: list[int] = generated[0].tolist()
    ends = getattr(model.generation_config, "eos_token_id", None)
    ends = {*(ends if isinstance(ends, list) else [ends]), loaded.require_tokenizer().end}
    is_unfinished = len(target) == 1 or target[-1] not in ends
    while len(target) > 1 and target[-1] in ends:
        target.pop()
    return target, is_unfinished


def read_pixels(loaded: LoadedTransformers, raw: RawInput) -> Tensor:
    """Return the pixels of an image (a path or a Pillow image) as the model reads them, [1, channel, row, column]."""
    if isinstance(raw, str | Path) and not is_existing_file(Path(raw)):
        raise ArgumentError(
            f"{loaded.family} reads images, but there is no file {str(raw)[:200]!r}; give the path of an image"
        )
    channels = find_image_channels(loaded.model)
    if channels not in (1, 3):
        raise ArgumentError(f"{loaded.family} reads images of {channels} channels; pass tensors to jumok.Lens(model)")
    size = find_image_size(loaded.model)
    if not any((loaded.folder / name).is_file() for name in (PREPROCESSOR_FILE, "processor_config.json")):
        if size is None:
            raise ArgumentError(
                f"{loaded.folder} does not say how images are prepared; add its {PREPROCESSOR_FILE}, or pass tensors "
                "to jumok.Lens(model)"
            )
        preparation = Preparation(size, mean=(0.5,) * channels, std=(0.5,) * channels)
        return preparation.apply(raw)[None]
    stored = None  # our own preparation, if it implements the folder's processor
    if (loaded.folder / PREPROCESSOR_FILE).is_file():
        with suppress(ImageError):
            stored = Preparation.from_json(read_json(loaded.folder, PREPROCESSOR_FILE), channels)
    if stored is None:
        return _apply_processor(loaded, open_image(raw, channels, size))
    if size is not None:
        stored.check_model_size(size)
    return stored.apply(raw)[None]


def label_grid(prefix: Sequence[str], grid: tuple[int, int]) -> list[str]:
    """Return labels for the special positions and the patches of an image: rows and columns, counted from 1."""
    return [*prefix, *(f"{row + 1},{column + 1}" for row in range(grid[0]) for column in range(grid[1]))]


def locate_patches(model: Any, pixels: Tensor) -> PatchLayout | None:
    """Return where the positions of a model's attentions lie in an image; None if its config states no patch size."""
    patch = getattr(get_image_config(model), "patch_size", None)
    sides = tuple(patch) if isinstance(patch, list | tuple) else (patch, patch)
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        return None
    prefix: list[str] = []
    for ending, label in PREFIX_PARAMETERS.items():
        parameters = [parameter for name, parameter in model.named_parameters() if name.endswith(ending)]
        if parameters:
            prefix += [label] if label else [f"[register {index + 1}]" for index in range(parameters[0].shape[-2])]
    grid = (pixels.shape[-2] // sides[0], pixels.shape[-1] // sides[1])
    return PatchLayout(grid, (sides[0], sides[1]), tuple(prefix))


def _apply_processor(loaded: LoadedTransformers, image: Any) -> Tensor:
    """Prepare an image with the folder's processor of transformers."""
    package = importlib.import_module("transformers")
    try:
        with quiet_transformers():
            processor = package.AutoImageProcessor.from_pretrained(
                str(loaded.folder), local_files_only=True, trust_remote_code=False, backend="pil"
            )
            _check_processor_size(processor)
            pixels = processor(images=image, return_tensors="pt")["pixel_values"]
    except ImageError:
        raise
    except Exception as error:  # untrusted settings may fail anywhere
        raise ArgumentError(
            f"transformers cannot prepare the image as {loaded.folder} describes: {str(error)[:300]}"
        ) from None
    if not isinstance(pixels, Tensor) or pixels.dim() != 4 or not bool(torch.isfinite(pixels).all()):
        raise ArgumentError(
            f"the processor of {loaded.family} makes more than one image of a picture; pass tensors to "
            "jumok.Lens(model).run(**inputs)"
        )
    return pixels


def _check_processor_size(processor: object) -> None:
    """Refuse a processor that would resize an image to an absurd size."""
    for name in ("size", "crop_size", "pad_size"):
        size = getattr(processor, name, None)
        sides = list(dict(size).values()) if size is not None and not isinstance(size, int) else [size]
        if any(isinstance(side, int | float) and side > MAX_IMAGE_SIDE for side in sides):
            raise ImageError(f"{name} in {PREPROCESSOR_FILE} is larger than {MAX_IMAGE_SIDE:,} pixels")
