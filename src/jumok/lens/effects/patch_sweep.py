"""Sweep activation patching over heads, or over layers and positions: which of them carry what matters?

The output of a head or of an MLP, or the residual stream, is copied from the forward pass of one text into that of
another, one at a time (Meng et al. 2022, causal tracing; ``resid_pre`` patching in TransformerLens).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.blocks import find_block, find_mlp
from jumok.lens.capture.model_capture import Capture
from jumok.lens.edits.apply_edits import ReplaceHeadPerRow, ReplacePositionPerRow
from jumok.lens.edits.edit_base import KEPT_WORDS, check_option
from jumok.lens.lens import Lens, LensModel
from jumok.reporting import Progress

from .edit_runner import EditRunner
from .metrics import Metric, MetricFunction

CAPTION = "blue: the patch raises the metric; red: it lowers it; white: no effect"


@dataclass(frozen=True)
class PatchSweep:
    """The effects of copying parts of a clean text's forward pass into a corrupted one.

    Attributes:
        effects: metric(patched) - metric(corrupted) for each layer and position, or for each layer and head; nan where
            a layer has fewer of them than others.
        clean: The metric of the clean text.
        corrupted: The metric of the corrupted text, without patches.
        blocks: The names of the blocks, of heads the names of the attentions, in execution order.
        labels: The tokens of the corrupted text, where there is a tokenizer and one sequence; None for heads.
        part: What was patched: "residual", "mlp" or "attention" (heads).
    """

    effects: Float[Tensor, "layer column"]
    clean: float
    corrupted: float
    blocks: tuple[str, ...]
    labels: tuple[str, ...] | None
    part: str = "residual"

    @property
    def recovered(self) -> Float[Tensor, "layer column"]:
        """The effects as a share of the difference between the texts: 1 = the patch restores the clean metric."""
        return self.effects / (self.clean - self.corrupted)

    def save(self, path: str | Path) -> Path:
        """Write the effects as a heat map, a row for each layer and a column for each position or head.

        Args:
            path: The path of the image; the suffix ``.png`` or ``.svg`` selects the format.
        """
        from jumok.draw import save_effect_map

        title = f"clean {self.clean:.4f}, corrupted {self.corrupted:.4f}"
        settings: dict[str, Any] = {"columns": self.labels, "column_axis": self._axis, "caption": CAPTION}
        return save_effect_map(path, self.effects.tolist(), self.blocks, title=title, **settings)

    @property
    def _axis(self) -> str:
        return "head" if self.part == "attention" else "position"


class PatchedLayer(NamedTuple):
    """What patches of one layer change.

    Attributes:
        name: The block, or of heads the attention.
        site: An attention of that layer.
        effects: By head, or by position; nan at a position without a partner in the source.
    """

    name: str
    site: str
    effects: Float[Tensor, " column"]


def sweep_patches(
    model: LensModel,
    clean: Any,
    corrupted: Any,
    *,
    part: str = "residual",
    metric: Metric | MetricFunction | None = None,
    source_model: LensModel | None = None,
    partners: Mapping[str, Sequence[int | None]] | None = None,
    progress: Progress | None = None,
    tokenizer: object = None,
    **settings: Any,
) -> PatchSweep:
    """Patch the heads, the MLPs or the residual stream of a clean text into a corrupted one, one at a time.

    Args:
        model: A model, or the name or folder of one, as for ``Lens``.
        clean: The clean input: a text, token ids or a tensor; several inputs as a tuple (source, target), or by name as
            a dictionary.
        corrupted: The corrupted input, with as many positions as the clean one, unless there are partners.
        part: "residual", the stream that enters each block, at each position; "mlp", the output of each MLP, at each
            position; or "attention", the output of each head, at all positions together.
        metric: A metric of jumok.lens.effects.metrics or a function, as for ``effect``; default: the log-probability of
            the model's own answer to the corrupted input.
        source_model: The model that reads the clean input, of the same shape, such as an earlier checkpoint; default:
            ``model``, which reads the corrupted one.
        partners: Where the inputs have different numbers of positions: of each sequence ("source", "target"), the
            position of the clean input that each position of the corrupted one is patched from, or None, as
            ``align_tokens`` returns them; default: the same position.
        progress: Called with the number of patched layers and their total.
        tokenizer: The tokenizer of texts, as for ``Lens``.
        settings: Further keyword arguments of the model's ``forward``.

    Returns:
        The effects ``[layer, position]``, or ``[layer, head]``, with the metric of both texts.

    Raises:
        ArgumentError: If the inputs have different numbers of positions and no partners, the models have different
            shapes, or the model has no blocks.

    >>> from jumok.lens.effects.metrics import LogProbability
    >>> sweep = sweep_patches("tiny", "Mary gave; Mary", "Mark gave; Mary", metric=LogProbability(" "))
    >>> sweep.effects.shape, sweep.blocks
    (torch.Size([2, 15]), ('blocks.0', 'blocks.1'))
    """
    check_option("part", part, KEPT_WORDS)
    with Lens(model, tokenizer) as lens:
        inputs, named_inputs = _split_inputs(corrupted)
        runner = EditRunner(lens, inputs, {**named_inputs, **settings}, metric)
        clean_inputs, clean_named_inputs = _split_inputs(clean)
        with nullcontext(lens) if source_model is None else Lens(source_model, tokenizer) as source_lens:
            clean_runner = EditRunner(source_lens, clean_inputs, {**clean_named_inputs, **settings}, runner.metric)
            source = source_lens.run(*clean_runner.inputs, keep=KEPT_WORDS[part], **clean_runner.settings)
        layers = measure_patches(runner, source, part, partners=partners, progress=progress)
    longest = max(len(layer.effects) for layer in layers)
    padded = [
        torch.nn.functional.pad(layer.effects, (0, longest - len(layer.effects)), value=torch.nan) for layer in layers
    ]
    labels = runner.capture.labels
    has_labels = part != "attention" and labels is not None and len(labels) == longest
    return PatchSweep(
        torch.stack(padded),
        clean_runner.clean_value,
        runner.clean_value,
        tuple(layer.name for layer in layers),
        tuple(labels) if has_labels and labels is not None else None,
        part,
    )


def measure_patches(
    runner: EditRunner,
    source: Capture,
    part: str,
    *,
    partners: Mapping[str, Sequence[int | None]] | None = None,
    progress: Progress | None = None,
) -> list[PatchedLayer]:
    """Measure what patches from a capture change, one head, or one layer and position, at a time.

    Args:
        runner: Runs the text that is patched.
        source: The capture of another text, which kept what is patched.
        part: As for ``sweep_patches``.
        partners: Of each sequence ("source", "target"), by position: the position of the source capture that it is
            patched from, or None where there is none; default: the same position.
        progress: Called with the number of patched layers and their total.
    """
    sites = runner.capture.sites
    names: dict[str, str] = {}  # by the name of the layer, its first attention
    for site in sites.names:
        names.setdefault(_name_layer(runner, site, part), site)
    layers = []
    for name, site in names.items():
        attention = runner.capture.attentions[site]
        tap = f"{name}.{KEPT_WORDS[part]}"
        tensor = _read_source(runner, source, tap, site, part)
        chosen = None if partners is None else partners[sites.get_sides(site).queries]
        if chosen is None and attention.batch == 1 and tensor.shape[-2] != attention.queries:
            raise ArgumentError(
                f"{name} has {tensor.shape[-2]} positions for the clean input and {attention.queries} for the "
                "corrupted one; patching needs inputs of the same length"
            )
        if part == "attention":
            effects = _patch_heads(runner, site, tensor, chosen)
        else:
            effects = _patch_positions(runner, tap, site, tensor, chosen)
        layers.append(PatchedLayer(name, site, effects))
        if progress is not None:
            progress(len(layers), len(names))
    return layers


def _read_source(runner: EditRunner, source: Capture, tap: str, site: str, part: str) -> Tensor:
    """Return what a capture recorded at a tap; another model must have a part of the same shape there."""
    tensor = source.activations.get(tap)
    heads = runner.capture.activations[f"{site}.output"]
    expected = (*heads.shape[1:2], heads.shape[-1]) if part == "attention" else None
    shape = None if tensor is None else (*tensor.shape[1:2], tensor.shape[-1])
    if tensor is None or (expected is not None and shape != expected):
        raise ArgumentError(f"{tap} of the clean input's model has another shape, or is missing; patch equal models")
    return tensor


def _name_layer(runner: EditRunner, site: str, part: str) -> str:
    if part == "attention":
        return site
    return find_mlp(runner.model, site) if part == "mlp" else find_block(runner.model, site)


def _patch_heads(
    runner: EditRunner, site: str, source: Tensor, partners: Sequence[int | None] | None
) -> Float[Tensor, " head"]:
    """Patch the output ``[part, head, query, width]`` of each head, at all positions that have a partner."""
    outputs = source
    if partners is not None:
        positions, source_positions = _pair_positions(partners)
        outputs = runner.capture.activations[f"{site}.output"].clone()
        outputs[..., positions, :] = source[..., source_positions, :].to(outputs)
    effects = [
        runner.measure(ReplaceHeadPerRow(site, heads, outputs[:, heads].movedim(1, 0)), site, len(heads)).cpu()
        for heads in torch.arange(outputs.shape[1]).split(runner.rows_per_batch)
    ]
    return torch.cat(effects)


def _patch_positions(
    runner: EditRunner, tap: str, site: str, source: Tensor, partners: Sequence[int | None] | None
) -> Float[Tensor, " position"]:
    """Patch each position that has a partner."""
    count = source.shape[-2]
    positions = torch.arange(count)
    if partners is not None:
        count = len(partners)
        positions, source_positions = _pair_positions(partners)
        aligned = source.new_zeros(1, count, source.shape[-1])
        aligned[:, positions] = source[:, source_positions]
        source = aligned
    effects = torch.full((count,), torch.nan)
    for rows in positions.split(runner.rows_per_batch):
        if len(rows):
            effects[rows] = runner.measure(ReplacePositionPerRow(tap, rows, source), site, len(rows)).float().cpu()
    return effects


def _pair_positions(partners: Sequence[int | None]) -> tuple[Tensor, Tensor]:
    """Return the positions that have a partner, and their partners."""
    pairs = [(position, other) for position, other in enumerate(partners) if other is not None]
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).unbind(-1)  # type: ignore[return-value]


def _split_inputs(inputs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the keyword inputs of a model."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}
