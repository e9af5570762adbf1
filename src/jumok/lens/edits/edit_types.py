"""The five edits. A new edit is one class here.

It says everything about itself: its fields and their checks (``check_field``), the taps that it changes (``tap_word``
or ``find_taps``), and the change (``apply``).
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from reprlib import repr as abbreviate  # limits depth and length

import torch
from torch import Tensor, nn

from jumok.attention import mask as masks
from jumok.attention.mask import Mask
from jumok.attention.score import Score
from jumok.errors import ArgumentError
from jumok.lens.blocks import find_block, find_mlp, find_sites_of_block
from jumok.lens.capture.model_capture import Capture
from jumok.lens.sites import Sites

from .ablation import ABLATION_METHODS, ablate_output, read_source
from .edit_base import KEPT_WORDS, Edit, Indices, Layer, TapCall, as_tuple, check_option, is_integer_like

LEAST_TEMPERATURE = 1e-6  # the largest score has all the weight already; scores divided by less would overflow


@dataclass(frozen=True)
class Ablate(Edit):
    """Replace the output of heads, of a layer's attention, or of its MLP by zeros, a mean or a random sample.

    Attributes:
        head: The heads to ablate; None ablates the layer's attention completely, including the output bias.
        part: "attention", or "mlp" for the layer's MLP.
        by: "zero"; "mean", a mean over positions; or "resample", the output at a randomly chosen position.
        seed: The seed of "resample".
        source: The capture that mean and resample read: all its texts and positions without padding, the same mean for
            every position. It must have been made with keep="output" (for an MLP "feedforward_output", for a complete
            attention "block_output"). None reads this forward pass: each position the positions of its own text that
            its self-attention may attend to. In a causal model these are itself and the earlier ones, so that the
            answer at a position never depends on later tokens, and the first position keeps its output; "resample"
            chooses among the others, not itself.
    """

    part: str = "attention"
    by: str = "zero"
    seed: int = 0
    source: Capture | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.part == "residual":
            raise ArgumentError(
                'Ablate changes "attention" or "mlp"; the residual stream can only be replaced, by Patch'
            )
        _check_part_has_heads(self.part, self.head)

    @classmethod
    def check_field(cls, name: str, content: object) -> None:
        if name == "by":
            check_option(name, content, ABLATION_METHODS)
        elif name == "seed" and not (is_integer_like(content) and 0 <= operator.index(content) < 2**63):
            raise ArgumentError(f"seed must be an integer from 0 to 2**63 - 1, not {abbreviate(content)}")
        super().check_field(name, content)

    def find_taps(self, sites: Sites, model: nn.Module) -> list[str]:
        if self.part == "attention" and self.head is None:
            return [f"{site}.block_output" for site in sites.find_all(self.layer)]
        return find_part_taps(self.part, self.layer, sites, model)

    @property
    def needs_masks(self) -> bool:
        return self.by != "zero" and self.source is None

    def apply(self, value: Tensor, call: TapCall) -> Tensor:
        return call.change_heads(value, lambda output: self.replace_output(output, call))

    def replace_output(self, output: Tensor, call: TapCall) -> Tensor:
        """Return what replaces an output.

        Args:
            output: The output of the edited heads, ``[batch, head, query, width]``, or of a block or MLP,
                ``[batch, query, width]``.
            call: The call of the tap.
        """
        if self.by == "zero":
            return torch.zeros_like(output)
        return ablate_output(self, output, call)


@dataclass(frozen=True)
class KnockOut(Edit):
    """Remove edges: these queries may not attend to these keys.

    The remaining weights of the row renormalise to 1; a row with no keys left has weights and output 0.

    Attributes:
        head: The heads; None means all.
        query: The query positions; None means all.
        key: The key positions; None means all.
        batch: The batch rows; None means all.
    """

    tap_word = "mask"
    query: Indices = None
    key: Indices = None
    batch: Indices = None

    def apply(self, value: Mask | None, call: TapCall) -> Mask:
        other_edges = ~masks.edge(self.query, self.key, call.heads, self.batch)
        return other_edges if value is None else value & other_edges

    @property
    def selects_queries(self) -> bool:
        return self.query is not None

    def check_capture(self, capture: Capture) -> None:
        for site in capture.sites.find_all(self.layer):
            attention = capture.attentions[site]
            for axis, requested, positions in (
                ("query", self.query, attention.query_positions),
                ("key", self.key, attention.key_positions),
            ):
                missing = set(as_tuple(requested) or ()) - set(positions)
                if missing:
                    raise ArgumentError(
                        f"{site} has no {axis} at {min(missing)}; its positions are {min(positions)} to "
                        f"{max(positions)}"
                    )


@dataclass(frozen=True)
class Patch(Edit):
    """Replace the output of heads, of an MLP, or the residual stream by that of another capture (activation patching).

    Attributes:
        head: The heads; None means all.
        positions: The positions to replace; None means all, and the source must then have as many.
        source_positions: The positions of the source that replace them, the first one the first; None means the same
            ones.
        part: "attention"; "mlp" for the layer's MLP; or "residual" for the residual stream that enters the layer's
            block (``resid_pre`` in TransformerLens; Meng et al. 2022 call this causal tracing).
        source: The capture to read; it must have been made with keep="output" (for an MLP "feedforward_output", for
            the residual stream "input").
    """

    positions: Indices = None
    part: str = "attention"
    source: Capture | None = None
    source_positions: Indices = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_part_has_heads(self.part, self.head)
        if self.source_positions is not None:
            count, source_count = (len(as_tuple(indices) or ()) for indices in (self.positions, self.source_positions))
            if count != source_count:
                raise ArgumentError(
                    f"positions and source_positions must be equally many, not {count} and {source_count}; each "
                    "position is replaced by one of the source"
                )
        if self.source is None:
            word = KEPT_WORDS[self.part]
            raise ArgumentError(f"a Patch needs another capture to read from: source=lens.run(..., keep={word!r})")

    def find_taps(self, sites: Sites, model: nn.Module) -> list[str]:
        return find_part_taps(self.part, self.layer, sites, model)

    def apply(self, value: Tensor, call: TapCall) -> Tensor:
        assert self.source is not None
        source = read_source(self.source, call.tap, value)
        source = source if call.heads is None else source[:, call.heads]
        return call.change_heads(value, lambda output: self._replace_rows(output, source, call.first_row))

    def _replace_rows(self, output: Tensor, source: Tensor, first_row: int) -> Tensor:
        """Return the output with the rows of the patched positions taken from ``source``."""
        rows = range(first_row, first_row + output.shape[-2])
        requested = rows if self.positions is None else as_tuple(self.positions) or ()
        partners = requested if self.source_positions is None else as_tuple(self.source_positions) or ()
        pairs = [pair for pair in zip(requested, partners, strict=True) if pair[0] in rows]
        positions, source_positions = [[pair[side] for pair in pairs] for side in (0, 1)]
        if source_positions and max(source_positions) >= source.shape[-2]:
            raise ArgumentError(
                f"the source capture has {source.shape[-2]} positions, counted from 0; {max(source_positions)} is not "
                "one of them"
            )
        if source.shape[0] not in (1, output.shape[0]):
            raise ArgumentError(
                f"the source capture has {source.shape[0]} texts, but this forward pass has {output.shape[0]}; capture "
                "one text, or as many"
            )
        source_rows = torch.tensor(source_positions, dtype=torch.long, device=output.device)
        target_rows = torch.tensor(positions, dtype=torch.long, device=output.device) - first_row
        replacement = source.index_select(-2, source_rows).expand_as(output.index_select(-2, target_rows))
        return output.index_copy(-2, target_rows, replacement)

    def check_rows(self, tap: str, count: int) -> None:
        assert self.source is not None
        positions = as_tuple(self.positions)
        if positions is not None and positions[-1] >= count:
            raise ArgumentError(f"{tap} has {count} positions, counted from 0; {positions[-1]} is not one of them")
        available = self.source.activations[tap].shape[-2]
        if positions is None and available != count:
            raise ArgumentError(
                f"the source capture has {available} positions at {tap}, but this text has {count}, so they do not "
                "belong together; patch a text of the same length, or name the positions that are equal in both: "
                "positions=..."
            )


@dataclass(frozen=True)
class Scale(Edit):
    """Divide a head's scores by a temperature: above 1 the weights become more even, below 1 sharper.

    Biases are not divided.

    Attributes:
        head: The heads; None means all.
        temperature: The divisor, at least 1e-6.
    """

    tap_word = "score"
    temperature: int | float = 1.0

    @classmethod
    def check_field(cls, name: str, content: object) -> None:
        if name == "temperature":
            is_number = isinstance(content, int | float) and not isinstance(content, bool)
            if not is_number or not LEAST_TEMPERATURE <= content < 1e30:  # type: ignore[operator]
                raise ArgumentError(
                    f"temperature must be a finite number of at least {LEAST_TEMPERATURE:g}, not {abbreviate(content)}"
                )
        super().check_field(name, content)

    def apply(self, value: Score, call: TapCall) -> Score:
        return TemperatureScore(value, call.heads, self.temperature)


@dataclass(frozen=True)
class Remask(Edit):
    """Replace the mask. ``Remask()`` removes it, including causality.

    Attributes:
        head: The heads; None means all.
        mask: The new mask, for example ``mask.causal & mask.window(8)``; None allows everything.
    """

    tap_word = "mask"
    mask: Mask | None = None

    @classmethod
    def check_field(cls, name: str, content: object) -> None:
        if name == "mask" and content is not None and not isinstance(content, Mask):
            raise ArgumentError(
                f"mask must be a mask of jumok.attention.mask, not a {type(content).__name__}; wrap a table of "
                "booleans in mask.given(table)"
            )
        super().check_field(name, content)

    def apply(self, value: Mask | None, call: TapCall) -> Mask | None:
        if call.heads is None:
            return self.mask
        edited_heads = masks.edge(head=call.heads)
        before = masks.edge() if value is None else value
        after = masks.edge() if self.mask is None else self.mask
        return (before & ~edited_heads) | (after & edited_heads)

    @property
    def selects_queries(self) -> bool:
        return self.mask is not None


class TemperatureScore(Score):
    """A score that divides the scores of some heads by a temperature; without ``scaled_heads``, those of all heads."""

    def __init__(self, inner: Score, scaled_heads: tuple[int, ...] | None, temperature: int | float) -> None:
        self.inner, self.scaled_heads, self.temperature = inner, scaled_heads, temperature
        self.sink, self.is_dot_product, self.hidden_width = inner.sink, inner.is_dot_product, inner.hidden_width
        self.differs_by_head = inner.differs_by_head or scaled_heads is not None

    def check(self, query: Tensor, key: Tensor) -> None:
        self.inner.check(query, key)

    def evaluate(self, query: Tensor, key: Tensor) -> Tensor:
        return self.inner.evaluate(query, key) * self._build_inverse_temperatures(query)

    def fold_into_query(self, query: Tensor) -> tuple[Tensor, float] | None:
        product = self.inner.fold_into_query(query)
        return None if product is None else (product[0] * self._build_inverse_temperatures(query), product[1])

    @property
    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return self.inner.gradient_tensors

    def _build_inverse_temperatures(self, query: Tensor) -> Tensor:
        """Return the factor of each head, ``[head, 1, 1]``."""
        factors = query.new_ones(query.shape[1], 1, 1)
        largest = torch.finfo(query.dtype).max  # of float16 it is 65,504
        factors[slice(None) if self.scaled_heads is None else list(self.scaled_heads)] = min(
            1 / self.temperature, largest
        )
        return factors


def find_part_taps(part: str, layer: Layer, sites: Sites, model: nn.Module) -> list[str]:
    """Return the taps of the output of heads or MLPs, or of the residual streams that enter blocks ("decoder.0")."""
    if part == "residual":
        selected = find_sites_of_block(layer, sites, model) if isinstance(layer, str) else sites.find_all(layer)
        return [f"{find_block(model, site)}.input" for site in selected]
    if part == "mlp":
        return [f"{find_mlp(model, site)}.feedforward_output" for site in sites.find_all(layer)]
    return [f"{site}.output" for site in sites.find_all(layer)]


def _check_part_has_heads(part: str, head: Indices) -> None:
    """Raise an ArgumentError for the head of a part that has none."""
    if head is not None and part == "mlp":
        raise ArgumentError("an MLP has no heads; omit head")
    if head is not None and part == "residual":
        raise ArgumentError("a residual stream has no heads; omit head")
