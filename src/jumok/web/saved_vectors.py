"""Store queries, keys and values in a saved file, from which the page computes each step of any head and query."""

from __future__ import annotations

from typing import Literal

import numpy
import torch
from torch import Tensor

from jumok.lab.steps.model_steps import HeadNumbers, read_head
from jumok.lens.capture.captured_attention import WeightTable
from jumok.lens.edits.edit_types import TemperatureScore

from . import messages
from .answers.head_steps import describe_scale, find_dot_product, write_sentences
from .maps.site_maps import SiteMap, WindowMap
from .opened_model import Pass
from .saved_format import Piece, SavedAttention, SavedScore, SavedVectors
from .saved_maps import Blob, describe_mask

MAX_EXACT_BYTES = 4_000_000  # of all vectors as float32
MAX_BYTES = 32_000_000  # of all vectors; those of a longer input are stored for some attentions only
LARGEST_HALF = 65504.0

Form = Literal["float32", "float16"]


class VectorStore:
    """Stores the vectors of both passes in a blob.

    Attributes:
        form: "float32", or "float16" if there are many numbers.
        largest_difference: Of a weight computed from rounded vectors to the model's; 0.0 if none is rounded.
        stored: The number of attentions whose vectors are stored, and ``total`` the number of all.
    """

    def __init__(self, passes: dict[messages.Pass, Pass | None], blob: Blob) -> None:
        self._passes = {name: shown for name, shown in passes.items() if shown is not None}
        self._blob, self._begin = blob, blob.size
        sizes = [_count_numbers(shown, site) for shown in self._passes.values() for site in range(len(shown.maps))]
        self.form: Form = "float32" if 4 * sum(sizes) <= MAX_EXACT_BYTES else "float16"
        self.largest_difference = 0.0
        self.stored, self.total = 0, sum(size > 0 for size in sizes)

    def store(self, first: int) -> dict[messages.Pass, list[SavedAttention | None] | None]:
        """Store the vectors of the attention ``first``, then those of the others, as far as they fit."""
        stored: dict[messages.Pass, list[SavedAttention | None] | None] = {"clean": None, "edited": None}
        for name, shown in self._passes.items():
            attentions: list[SavedAttention | None] = [None] * len(shown.maps)
            for site in sorted(range(len(shown.maps)), key=lambda site: site != first):
                count = _count_numbers(shown, site)
                if count and self._blob.size - self._begin + count * (4 if self.form == "float32" else 2) <= MAX_BYTES:
                    attentions[site] = self._store_attention(shown, site)
                    self.stored += 1
            stored[name] = attentions
        return stored if self.stored else {"clean": None, "edited": None}

    def _store_attention(self, shown: Pass, site: int) -> SavedAttention:
        site_map = shown.maps[site]
        name = site_map.attention.site
        numbers = [read_head(shown.capture, name, head, dtype=torch.float32) for head in range(site_map.heads)]
        is_small = all(_is_half(tensor) for part in numbers for tensor in (part.query, part.key, part.values))
        form: Form = self.form if is_small else "float32"
        call = numbers[0].call
        return SavedAttention(
            form=form,
            sentences={"en": write_sentences(call, "en"), "ko": write_sentences(call, "ko")},
            heads=[self._store_head(site_map, head, part, form) for head, part in enumerate(numbers)],
        )

    def _store_head(self, site_map: SiteMap, head: int, numbers: HeadNumbers, form: Form) -> SavedVectors:
        score, mask = _describe_score(numbers, head), describe_mask(numbers.call.mask, head)
        exact = site_map.read_tile(head, slice(0, site_map.queries), slice(0, site_map.keys))
        stored_query, stored_key, values = (
            part.half().float() if form == "float16" else part for part in (numbers.query, numbers.key, numbers.values)
        )
        weights = _compute_weights(stored_query @ stored_key.T, numbers, score)
        if form == "float16":
            self.largest_difference = max(self.largest_difference, float((weights - exact).abs().max()))
        assert numbers.output is not None
        difference = (weights @ values - numbers.output).abs().amax(-1)
        bias = numbers.bias
        return SavedVectors(
            width=numbers.query.shape[-1],
            query=self._add(numbers.query, form),
            key=self._add(numbers.key, form),
            value=self._add(numbers.values, form),
            bias=None if bias is None else self._add(bias, form),
            mask=mask,
            allowed=self._blob.add(numbers.allowed.to(torch.uint8).numpy().tobytes()) if mask is None else None,
            score=score,
            difference=self._blob.add_floats(difference),
        )

    def _add(self, numbers: Tensor, form: Form) -> Piece:
        return self._blob.add(numpy.ascontiguousarray(numbers, "<f2" if form == "float16" else "<f4").tobytes())


def _count_numbers(shown: Pass, site: int) -> int:
    """Return how many numbers the vectors of an attention are; 0 if the page cannot compute with them."""
    site_map = shown.maps[site]
    calls, name = site_map.attention.calls, site_map.attention.site
    is_recorded = len(calls) == 1 and {f"{name}.value", f"{name}.output"} <= shown.capture.activations.keys()
    if not is_recorded or isinstance(site_map, WindowMap) or isinstance(calls[0], WeightTable):
        return 0
    if find_dot_product(calls[0].score) is None:
        return 0
    values = shown.capture.activations[f"{name}.value"][0]
    cells = 0 if calls[0].bias is None else site_map.heads * site_map.queries * site_map.keys
    return calls[0].query[0].numel() + calls[0].key[0].numel() + values.numel() + cells


def _is_half(numbers: Tensor) -> bool:
    """Return whether float16 has the range of these numbers."""
    return bool(numbers.abs().amax() < LARGEST_HALF)


def _describe_score(numbers: HeadNumbers, head: int) -> SavedScore:
    score, factor = numbers.call.score, 1.0
    while isinstance(score, TemperatureScore):
        if score.scaled_heads is None or head in score.scaled_heads:
            factor /= score.temperature
        score = score.inner
    dot_product = find_dot_product(score)
    assert dot_product is not None
    return SavedScore(
        text=describe_scale(numbers.call.score, head, numbers.call.query),
        scale=float(dot_product.get_scale(numbers.call.query)),
        softcap=dot_product.softcap,
        factor=factor,
        sink=None if dot_product.sink is None else float(dot_product.sink[head]),
    )


def _compute_weights(products: Tensor, numbers: HeadNumbers, score: SavedScore) -> Tensor:
    """Return the weights, as the page computes them."""
    scores = products.double() * score.scale
    if score.softcap is not None:
        scores = score.softcap * torch.tanh(scores / score.softcap)
    scores = scores * score.factor
    if numbers.bias is not None:
        scores = scores + numbers.bias
    scores = scores.masked_fill(~numbers.allowed, -torch.inf)
    if score.sink is not None:
        scores = torch.cat([scores, torch.full_like(scores[:, :1], score.sink)], -1)
    return scores.softmax(-1)[:, : products.shape[1]].nan_to_num(0.0).float()
