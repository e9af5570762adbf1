"""Sweep activation patching over layers and positions: where does the residual stream carry what matters?

The residual stream of one text is copied into the forward pass of another, one block and one position at a time
(Meng et al. 2022, causal tracing; ``resid_pre`` patching in TransformerLens).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.edits.apply_edits import PatchPositionPerRow
from jumok.lens.lens import Lens, LensModel
from jumok.lens.sites import find_block

from .edit_runner import EditRunner
from .metrics import Metric, MetricFunction

CAPTION = "blue: the patch raises the metric; red: it lowers it; white: no effect"


@dataclass(frozen=True)
class PatchSweep:
    """The effects of copying the residual stream of a clean text into a corrupted one.

    Attributes:
        effects: metric(patched) - metric(corrupted) for each block and position; nan where a block has fewer positions
            than others.
        clean: The metric of the clean text.
        corrupted: The metric of the corrupted text, without patches.
        blocks: The names of the blocks, in execution order.
        labels: The tokens of the corrupted text, where there is a tokenizer and one sequence.
    """

    effects: Float[Tensor, "layer position"]
    clean: float
    corrupted: float
    blocks: tuple[str, ...]
    labels: tuple[str, ...] | None

    @property
    def recovered(self) -> Float[Tensor, "layer position"]:
        """The effects as a share of the difference between the texts: 1 = the patch restores the clean metric."""
        return self.effects / (self.clean - self.corrupted)

    def save(self, path: str | Path) -> Path:
        """Write the effects as a heat map, a row for each block and a column for each position.

        Args:
            path: The path of the image; the suffix ``.png`` or ``.svg`` selects the format.
        """
        from jumok.draw import save_effect_map

        title = f"clean {self.clean:.4f}, corrupted {self.corrupted:.4f}"
        settings: dict[str, Any] = {"columns": self.labels, "column_axis": "position", "caption": CAPTION}
        return save_effect_map(path, self.effects.tolist(), self.blocks, title=title, **settings)


def sweep_patches(
    model: LensModel,
    clean: Any,
    corrupted: Any,
    *,
    metric: Metric | MetricFunction | None = None,
    tokenizer: object = None,
    **settings: Any,
) -> PatchSweep:
    """Patch the residual stream of a clean text into a corrupted one, at every block and position.

    Args:
        model: A model, or the name or folder of one, as for ``Lens``.
        clean: The clean input: a text, token ids or a tensor; several inputs as a tuple (source, target), or by name as
            a dictionary.
        corrupted: The corrupted input, with as many positions as the clean one.
        metric: A metric of jumok.lens.effects.metrics or a function, as for ``effect``; default: the log-probability of
            the model's own answer to the corrupted input.
        tokenizer: The tokenizer of texts, as for ``Lens``.
        settings: Further keyword arguments of the model's ``forward``.

    Returns:
        The effects ``[layer, position]``, with the metric of both texts.

    Raises:
        ArgumentError: If the inputs have different numbers of positions, or the model has no blocks.

    >>> from jumok.lens.effects.metrics import LogProbability
    >>> sweep = sweep_patches("tiny", "Mary gave; Mary", "Mark gave; Mary", metric=LogProbability(" "))
    >>> sweep.effects.shape, sweep.blocks
    (torch.Size([2, 15]), ('blocks.0', 'blocks.1'))
    """
    with Lens(model, tokenizer) as lens:
        inputs, named_inputs = _split_inputs(corrupted)
        runner = EditRunner(lens, inputs, {**named_inputs, **settings}, metric)
        clean_inputs, clean_named_inputs = _split_inputs(clean)
        clean_runner = EditRunner(lens, clean_inputs, {**clean_named_inputs, **settings}, runner.metric)
        source = lens.run(*clean_runner.inputs, keep="input", **clean_runner.settings).activations
        target = lens.run(*runner.inputs, keep="input", **runner.settings).activations

        first_sites: dict[str, str] = {}
        for site in runner.capture.sites.names:
            first_sites.setdefault(find_block(lens.model, site), site)
        rows = []
        for block, site in first_sites.items():
            name = f"{block}.input"
            if source[name].shape != target[name].shape:
                raise ArgumentError(
                    f"{block} has {source[name].shape[-2]} positions for the clean input and {target[name].shape[-2]} "
                    "for the corrupted one; patching needs inputs of the same length"
                )
            effects = [
                runner.measure(PatchPositionPerRow(block, positions, source[name]), site, len(positions)).cpu()
                for positions in torch.arange(source[name].shape[-2]).split(runner.rows_per_batch)
            ]
            rows.append(torch.cat(effects))
    longest = max(len(row) for row in rows)
    padded = [torch.nn.functional.pad(row, (0, longest - len(row)), value=torch.nan) for row in rows]
    labels = runner.capture.labels
    return PatchSweep(
        torch.stack(padded),
        clean_runner.clean_value,
        runner.clean_value,
        tuple(first_sites),
        tuple(labels) if labels is not None and len(labels) == longest else None,
    )


def _split_inputs(inputs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the keyword inputs of a model."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}
