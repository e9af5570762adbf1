"""Check the arguments of ``Lens.run``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from jumok.errors import ArgumentError
from jumok.models import Model

from .capture.model_capture import Capture
from .edits.edit_types import Edit, KnockOut, as_tuple
from .sites import is_integer

KEEP_OPTIONS = ("output", "value", "block_output", "feedforward_output", "input")


def check_keep(keep: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the tensors to record, or raise an ArgumentError for an unknown one.

    Args:
        keep: One or several of ``KEEP_OPTIONS``.
    """
    words = (keep,) if isinstance(keep, str) else tuple(keep)
    unknown = next((word for word in words if word not in KEEP_OPTIONS), None)
    if unknown is not None:
        raise ArgumentError(f"unknown keep {unknown!r}; choose from {', '.join(KEEP_OPTIONS)}")
    return words


def check_edits(edits: Edit | Sequence[Edit]) -> list[Edit]:
    """Return the edits as a list, or raise an ArgumentError for something that is not an edit.

    Args:
        edits: One or several edits.
    """
    checked = [edits] if isinstance(edits, Edit) else list(edits)
    for edit in checked:
        if not isinstance(edit, Edit):
            raise ArgumentError(f"{edit!r} is not an edit; use Ablate, KnockOut, Patch, Scale or Remask")
    return checked


def check_edges_exist(edit: Edit, capture: Capture) -> None:
    """Raise an ArgumentError if a KnockOut names positions that do not exist; it would silently change nothing.

    Args:
        capture: The capture of the edited forward pass.
    """
    if not isinstance(edit, KnockOut):
        return
    for site in capture.sites.find_all(edit.layer):
        attention = capture.attentions[site]
        for axis, requested, positions in (
            ("query", edit.query, attention.query_positions),
            ("key", edit.key, attention.key_positions),
        ):
            missing = set(as_tuple(requested) or ()) - set(positions)
            if missing:
                raise ArgumentError(
                    f"{site} has no {axis} at {min(missing)}; its positions are {min(positions)} to {max(positions)}"
                )


def convert_token_list(tokens: list[Any] | tuple[Any, ...]) -> Tensor:
    """Convert a list of token ids to a tensor ``[length]``."""
    if any(isinstance(token, str) for token in tokens):
        raise ArgumentError("a lens reads one text at a time; pass several texts of equal length as a tensor of tokens")
    if not tokens or not all(is_integer(token) for token in tokens):
        raise ArgumentError("a list must hold the token ids of one text: integers, at least one")
    if not all(abs(token) < 2**62 for token in tokens):
        raise ArgumentError("a list must hold the token ids of one text; an id is larger than any vocabulary")
    return torch.tensor(list(tokens))


def convert_token_array(tokens: numpy.ndarray) -> Tensor:
    """Convert a numpy array of token ids to a tensor of the same shape."""
    if tokens.dtype.kind not in "iu":
        raise ArgumentError(
            f"a numpy array must hold token ids, which are integers, not {tokens.dtype}; pass other inputs as tensors: "
            "torch.from_numpy(array)"
        )
    if tokens.size and int(tokens.max()) >= 2**62:
        raise ArgumentError("a numpy array must hold token ids; an id is larger than any vocabulary")
    return torch.from_numpy(tokens.astype(numpy.int64))


def check_input_tensor(tensor: Tensor) -> None:
    """Raise an ArgumentError for a tensor whose numbers a model cannot read."""
    if tensor.is_meta:
        raise ArgumentError("an input is on the meta device, so it has no numbers; create it on the cpu")
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise ArgumentError("an input is a sparse, nested or quantised tensor; a model reads dense tensors")


def check_token_tensor(tokens: object, model: nn.Module) -> None:
    """Raise an ArgumentError if the first input of a model that reads tokens does not hold token ids."""
    if getattr(model, "reads", None) != "text" and getattr(model, "main_input_name", None) != "input_ids":
        return
    if not isinstance(tokens, Tensor):
        kind = type(tokens).__name__
        raise ArgumentError(f"this model reads token ids: a text, a list of integers or a tensor, not a {kind}")
    if tokens.dtype not in (torch.int32, torch.int64) or not tokens.dim() or not tokens.numel():
        raise ArgumentError(
            f"this model reads token ids, integers (torch.int64) [batch, length] with at least one token, not "
            f"{str(tokens.dtype).removeprefix('torch.')} {list(tokens.shape)}"
        )


@contextmanager
def explain_index_errors(model: nn.Module, context_length: int | None) -> Iterator[None]:
    """Explain torch's "index out of range in self", which models of transformers raise for long texts.

    Args:
        context_length: The largest number of positions that it reads, if that is known.
    """
    try:
        yield
    except IndexError as error:
        if isinstance(model, Model) or context_length is None:
            raise
        raise ArgumentError(
            f"{type(model).__name__} reads at most {context_length:,} positions; "
            "the input is longer, or contains an unknown token"
        ) from error


def count_shared_words(name: str, other: str) -> int:
    """Count how many leading words two dotted names share.

    Args:
        name: A module name, such as "encoder.layer.0".
    """
    count = 0
    for word, other_word in zip(name.split("."), other.split("."), strict=False):
        if word != other_word:
            break
        count += 1
    return count
