"""Check the arguments of ``Lens.run``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from jumok.errors import ArgumentError

from .capture.model_capture import Capture
from .edits.edit_types import Edit, KnockOut, as_tuple

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
        edit: Any edit.
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
    """Convert a list of token ids to a tensor ``[length]``.

    Args:
        tokens: The token ids of one text.

    Raises:
        ArgumentError: If the list is empty or contains something else.
    """
    if any(isinstance(token, str) for token in tokens):
        raise ArgumentError("a lens reads one text at a time; pass several texts of equal length as a tensor of tokens")
    if not tokens or not all(isinstance(token, int) for token in tokens):
        raise ArgumentError("a list must hold the token ids of one text: integers, at least one")
    return torch.tensor(list(tokens))


def count_shared_words(name: str, other: str) -> int:
    """Count how many leading words two dotted names share.

    Args:
        name: A module name, such as "encoder.layer.0".
        other: Another module name.
    """
    count = 0
    for word, other_word in zip(name.split("."), other.split("."), strict=False):
        if word != other_word:
            break
        count += 1
    return count
