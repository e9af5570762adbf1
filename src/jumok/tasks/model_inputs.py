"""What people give to a model, as what the model reads: tokens, images, regions, numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.checkpoint.tensor_files import read_tensor
from jumok.data.images.image_files import is_existing_file, is_image_path
from jumok.errors import ArgumentError

# how many axes a tensor of several has
AXES = {"pictures": 4, "regions": 3, "numbers": 2}


def reads(loaded: Loaded) -> str:
    """What this model reads: text, pictures, regions or numbers."""
    if loaded.family == "numeric":
        return "numbers"
    if not hasattr(loaded.config, "image"):
        return "text"
    return "regions" if getattr(loaded.config, "source", "patches") == "regions" else "pictures"


def several(loaded: Loaded, given: Any) -> list[Any] | None:
    """What was given, one by one; None where it is one."""
    kind = reads(loaded)
    if isinstance(given, Tensor):
        return list(given) if given.dim() == AXES.get(kind) else None
    if not isinstance(given, list | tuple):
        return None
    # one row of numbers is one input
    return None if kind == "numbers" and given and isinstance(given[0], int | float) else list(given)


def tokenizer_of(loaded: Loaded) -> Any:
    if loaded.tokenizer is None:
        raise ArgumentError(
            "this model came without a tokenizer, so it has no text; give it token ids from Python, or save it with one"
        )
    return loaded.tokenizer


def text_of(loaded: Loaded, given: object) -> str:
    """A text, and not something else by mistake."""
    if not isinstance(given, str):
        raise ArgumentError(f"this {loaded.family} model reads text, not a {type(given).__name__}")
    if is_image_path(given):
        raise ArgumentError(f"{given} is a picture, and this {loaded.family} model reads text")
    return given


def unknown_in(loaded: Loaded, ids: list[int]) -> int:
    """How many of these tokens stand for what the tokenizer does not know."""
    unknown = tokenizer_of(loaded).unknown
    return 0 if unknown is None else ids.count(unknown)


def tokens_of(loaded: Loaded, given: list[Any]) -> tuple[Int[Tensor, "batch length"], Bool[Tensor, "batch length"]]:
    """Token ids and which of them are real, shorter texts padded on the right."""
    rows = [tokenizer_of(loaded).encode(text_of(loaded, one)) for one in given]
    if not rows or not all(rows):
        raise ArgumentError("the text is empty; give the model something to read")
    longest = max(len(row) for row in rows)
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    real = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])
    return tokens.to(loaded.model.device), real.to(loaded.model.device)


def image_of(loaded: Loaded, given: object) -> Float[Tensor, "1 channel row column"]:
    """A picture, prepared as the model wants it; a tensor [channel, row, column] is so already."""
    if isinstance(given, Tensor):
        return _checked(given, "an image", "channel", "row", "column").to(loaded.model.device)[None]
    if isinstance(given, str | Path) and not is_existing_file(Path(given)):
        raise ArgumentError(
            f"this {loaded.family} model reads pictures, and there is no file {str(given)[:200]!r}; give the path of "
            "one"
        )
    if loaded.preparation is None:
        raise ArgumentError(
            f"this {loaded.family} model came without a word on how it wants its pictures; give it a tensor "
            "[channel, row, column], or a preparation"
        )
    return loaded.preparation.tensor(given).to(loaded.model.device)[None]


def regions_of(loaded: Loaded, given: object) -> Float[Tensor, "1 region feature"]:
    """What a detector found in an image: a tensor [region, feature], or a .safetensors file that holds one."""
    if isinstance(given, str | Path):
        if not str(given).endswith(".safetensors") or not is_existing_file(Path(given)):
            raise ArgumentError(
                f"this {loaded.family} model reads what a detector found in an image: give a .safetensors file with "
                f"one tensor [region, feature], not {str(given)[:200]!r}"
            )
        given = read_tensor(Path(given))
    if not isinstance(given, Tensor):
        raise ArgumentError(f"regions are a tensor [region, feature], not a {type(given).__name__}")
    return _checked(given, "regions", "region", "feature").to(loaded.model.device)[None]


def numbers_of(loaded: Loaded, given: object) -> Float[Tensor, "1 place"]:
    """Numbers as a text ("10, 20, 30"), a list or a tensor."""
    if isinstance(given, str):
        given = given.replace(",", " ").split()
    if isinstance(given, list | tuple):
        try:
            given = torch.tensor([float(one) for one in given])
        except (TypeError, ValueError, OverflowError):
            shown = " ".join(str(one) for one in given)[:80]
            raise ArgumentError(f"this model reads numbers, such as 10,20,30, and not {shown!r}") from None
    if not isinstance(given, Tensor) or not given.numel():
        raise ArgumentError("this model reads numbers, at least one of them, in a row: 10,20,30")
    return _checked(given.float(), "numbers", "place").to(loaded.model.device)[None]


def _checked(tensor: Tensor, what: str, *axes: str) -> Tensor:
    if not tensor.is_floating_point() or tensor.dim() != len(axes):
        raise ArgumentError(
            f"{what} must be floating-point numbers [{', '.join(axes)}], not {tensor.dtype}{list(tensor.shape)}"
        )
    if not bool(torch.isfinite(tensor).all()):
        raise ArgumentError(f"{what} must be finite numbers, and there is an infinity or what is no number (NaN)")
    return tensor
