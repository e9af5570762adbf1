"""Labels of the positions of a capture: one list for the source, and one for the target of an encoder-decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from jumok.errors import ArgumentError
from jumok.lens.sites import SOURCE, TARGET, Sites

from .captured_attention import CapturedAttention

SideLabels = Sequence[str] | None
#: labels of one sequence, or of the source and the target
Labels = Sequence[str] | tuple[SideLabels, SideLabels] | None


def split_labels(
    labels: Labels, attentions: Mapping[str, CapturedAttention], sites: Sites
) -> tuple[list[str] | None, list[str] | None]:
    """Return the labels of the source and those of the target.

    Args:
        labels: One list, which labels the (source) sequence; or a pair of lists, for the source and the target.
    """
    source, target = _split_pair(labels)
    if target is not None and not sites.has_target:
        raise ArgumentError("this model reads one sequence; give labels as one list, not as a pair")
    for side, side_labels in ((SOURCE, source), (TARGET, target)):
        counts = _count_positions(side, attentions, sites)
        if side_labels is not None and counts and len(side_labels) not in counts:
            sequence = f" of the {side}" if sites.has_target else ""
            raise ArgumentError(
                f"there are {len(side_labels)} labels for {min(counts)} positions{sequence}; give one per position"
            )
    return (None if source is None else list(source)), (None if target is None else list(target))


def label_positions(labels: SideLabels, positions: list[int]) -> list[str]:
    """Return the label of each position; its number if there is not a label for every position.

    Args:
        labels: The labels of the sequence that the positions belong to, or None.
        positions: The positions, counted from 0.
    """
    if labels is None or max(positions, default=0) >= len(labels):
        return [str(position) for position in positions]
    return [labels[position] for position in positions]


def _split_pair(labels: Labels) -> tuple[SideLabels, SideLabels]:
    """Return a pair of lists as it is, and one list as the labels of the source; ("a", "b") is one list."""
    if isinstance(labels, tuple) and len(labels) == 2 and not any(isinstance(part, str) for part in labels):
        return labels[0], labels[1]
    return cast(SideLabels, labels), None


def _count_positions(side: str, attentions: Mapping[str, CapturedAttention], sites: Sites) -> set[int]:
    """Return how many positions the attentions have on one side; the windows of an image have fewer."""
    counts = set()
    for site, attention in attentions.items():
        sides = sites.get_sides(site)
        counts |= {attention.queries} if sides.queries == side else set()
        counts |= {attention.keys} if sides.keys == side else set()
    return counts


def check_labels_are_unambiguous(sites: Sites) -> None:
    """Raise an ArgumentError if the parts of a model read separate inputs, as CLIP's two encoders do."""
    parts = list(dict.fromkeys(name.split(".")[0] for name in sites.names))
    if not sites.has_target and len(sites.stacks) > 1 and len(parts) > 1:
        raise ArgumentError(
            f"{' and '.join(parts[:4])} read separate inputs, so one list of labels could belong to any of them; "
            "omit labels"
        )
