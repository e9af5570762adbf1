"""Attention maps of several models on the same input, side by side: what does another number of heads change?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint.load import load
from jumok.draw import save_head_grid
from jumok.errors import ArgumentError
from jumok.lens import Lens
from jumok.tasks.labelled_input import prepare_input

MAX_NAME_LENGTH = 24  # letters of a run's name in a title; longer ones would overlap


@dataclass(frozen=True)
class RunMap:
    """The weights of one model.

    Attributes:
        head: The head that is shown; None = the mean of all heads.
        weights: The weights ``[query, key]``.
    """

    run: str
    site: str
    heads: int
    head: int | None
    weights: Float[Tensor, "query key"]
    queries: list[str]
    keys: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the map for JSON."""
        fields = {"run": self.run, "layer": self.site, "heads": self.heads, "head": self.head}
        return {**fields, "queries": self.queries, "keys": self.keys, "weights": self.weights.tolist()}


def read_run_maps(
    runs: Sequence[str | Path], text: str, *, layer: int | str = -1, head: int | None = None
) -> list[RunMap]:
    """Let several models read the same text, and return one map for each of them.

    Args:
        runs: The folders of runs, or other models, as for ``jumok.load``.
        layer: The attention: its number, where -1 is the last, or its name.
        head: The head; None = the mean of all heads, so that models with different numbers of heads can be compared.
    """
    maps = [_read_map(run, text, layer, head) for run in runs]
    for other in maps[1:]:
        if (other.queries, other.keys) != (maps[0].queries, maps[0].keys):
            raise ArgumentError(
                f"{maps[0].run} and {other.run} do not attend to the same tokens in {other.site}: their tokenizers, or "
                "their answers, differ; choose another attention with --layer, such as encoder.0, or compare other runs"
            )
    return maps


def _read_map(run: str | Path, text: str, layer: int | str, head: int | None) -> RunMap:
    loaded = load(run)
    labelled = prepare_input(loaded, text)
    with Lens(loaded) as lens:
        capture = lens.run(*labelled.positional, **labelled.named)
    site = capture.sites.find(layer)
    heads = capture.attentions[site].heads
    if head is not None and not -heads <= head < heads:
        raise ArgumentError(f"{run} has heads 0 to {heads - 1} in {site}, not {head}; leave --head out for their mean")
    selected = range(heads) if head is None else [head % heads]
    weights = torch.stack([capture.weights(site, index).float() for index in selected]).mean(0)
    sides = capture.sites.get_sides(site)
    queries, keys = labelled.get_labels(sides.queries), labelled.get_labels(sides.keys)
    index = None if head is None else head % heads
    return RunMap(str(run), site, heads, index, weights, queries, keys)


def save_run_maps(path: str | Path, maps: Sequence[RunMap], **settings: Any) -> Path:
    """Draw the maps side by side, one panel for each run, and return the path; the settings are those of
    ``save_head_grid``."""
    names = [Path(run_map.run).name for run_map in maps]
    if len(set(names)) < len(names):
        names = [run_map.run for run_map in maps]
    titles = []
    for name, run_map in zip(names, maps, strict=True):
        shown = f"head {run_map.head} of {run_map.heads}"
        if run_map.head is None:
            shown = "1 head" if run_map.heads == 1 else f"mean of {run_map.heads} heads"
        titles.append(f"{name[-MAX_NAME_LENGTH:]}: {shown}")
    patterns = [run_map.weights.tolist() for run_map in maps]
    title = ", ".join(dict.fromkeys(run_map.site for run_map in maps))
    return save_head_grid(path, patterns, maps[0].queries, maps[0].keys, titles=titles, title=title, **settings)
