"""A model set up for many edits of one text: run once clean, then again and again from where an edit begins."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.capture.capture import Capture
from jumok.lens.lens import Lens, limit_logits
from jumok.tap import Listener, listen

from .metrics import (
    ClassScore,
    Divergence,
    LogitDifference,
    LogProbability,
    Loss,
    Metric,
    Similarity,
    Value,
    at,
    extract_answer,
    usual,
)
from .restart import Restart, disable_cache, repeat_for_batch

#: what a model may give, and what that is measured by
WORDS = {"logits": "logits", "numbers": "numbers", "hidden": "vectors, and no logits"}
MEASURED: dict[str, tuple[type[Metric], ...]] = {
    "logits": (LogProbability, LogitDifference, Loss, Divergence, ClassScore),
    "numbers": (Value,),
    "hidden": (Similarity,),
}
AT_ONCE = 4096  # positions that run together; more are no faster, and need memory


class EditRunner:
    """``lens`` must be open, and ``inputs`` one text. ``metric`` None: how likely the model's own answer is."""

    def __init__(self, lens: Lens, inputs: tuple[Any, ...], settings: dict[str, Any], metric: Metric | None) -> None:
        if metric is not None and not isinstance(metric, Metric):
            known = ", ".join(Metric.kinds)
            raise ArgumentError(f"a metric is a value of jumok.lens.effects.metrics ({known}), not {metric!r}")
        self.lens, self.model = lens, lens.model
        self.inputs = tuple(lens.given(one) for one in inputs)
        several = next(
            (one for one in self.inputs if isinstance(one, Tensor) and one.dim() and one.shape[0] != 1), None
        )
        if several is not None:
            raise ArgumentError(f"an effect is measured on one text at a time; {several.shape[0]} were given")
        self.settings = {**disable_cache(self.model), **settings}
        tokenizer = None if lens.loaded is None else lens.loaded.tokenizer
        first = -1 if metric is None else metric.first
        if first is not None and first < 0:
            self.settings |= limit_logits(self.model, -first)
        self.restart = Restart(self.model)
        with self.restart.recording():
            self.run: Capture = lens.run(*self.inputs, keep=("output", "value"), logits=True, **self.settings)
        self.clean, kind = extract_answer(self.run.output)
        self.metric = usual(self.clean, kind) if metric is None else metric.resolved(tokenizer)
        if not isinstance(self.metric, MEASURED[kind]):
            tokens = kind == "logits" and self.clean.dim() > 2  # which have no classes
            known = ", ".join(one.__name__ for one in MEASURED[kind] if not (tokens and one is ClassScore))
            raise ArgumentError(
                f"this model gives {WORDS[kind]}, which {type(self.metric).__name__} cannot measure; use {known}"
            )
        self.value = float(self.metric(self.clean, self.clean)[0])

    @property
    def positions(self) -> int:
        return max(one.queries for one in self.run.attentions.values())

    @property
    def rows_at_once(self) -> int:
        return max(1, AT_ONCE // self.positions)

    @torch.no_grad()
    def edited(self, listener: Any, site: str, rows: int) -> Float[Tensor, " row"]:
        """The metric of every row of a batch, under a listener that edits each in its own way."""
        inputs = [repeat_for_batch(one, rows) for one in self.inputs]
        settings = {name: repeat_for_batch(one, rows) for name, one in self.settings.items()}
        with self.restart.before(site, rows), listen(listener), self._evaluating():
            answer, _ = extract_answer(self.model(*inputs, **settings))
        return self.metric(answer, self.clean)

    def gradients(self) -> dict[str, Float[Tensor, "head query width"]]:
        """What the metric gains for each number that each head gives, site by site."""
        leaves = GradientLeaves(frozenset(self.run.attentions))
        with torch.enable_grad(), listen(leaves), self._evaluating():
            answer, _ = extract_answer(self.model(*self.inputs, **self.settings))
            value = self._sloped(answer)
            flat = [(site, one) for site, some in leaves.found.items() for one in some]
            found = torch.autograd.grad(value, [one for _, one in flat], allow_unused=True)
        joined: dict[str, list[Tensor]] = {}
        for (site, leaf), gradient in zip(flat, found, strict=True):
            joined.setdefault(site, []).append(torch.zeros_like(leaf) if gradient is None else gradient)
        return {site: torch.cat(some, 2)[0] for site, some in joined.items()}

    def _sloped(self, answer: Tensor) -> Tensor:
        """What gradients are taken of: the metric; but at the clean run a divergence and a likeness are at their best,
        and level there. Then the likeliest token's log-probability, or a step aside in any direction, must do."""
        if isinstance(self.metric, Divergence):
            token = int(at(self.clean, self.metric.position)[0].argmax())
            return LogProbability(token, self.metric.position)(answer, self.clean)[0]
        if isinstance(self.metric, Similarity):
            draw = torch.randn(answer.shape[-1], generator=torch.Generator().manual_seed(0)).to(answer)
            return (answer[0].flatten(0, -2).mean(0) * draw).sum()
        return self.metric(answer, self.clean)[0]

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        mode = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(mode)


class GradientLeaves(Listener):
    """A listener that adds a zero to what every head gives, and remembers it: gradients can be asked for there even
    where no parameter has one."""

    def __init__(self, sites: frozenset[str]) -> None:
        self.sites = sites
        self.found: dict[str, list[Tensor]] = {}

    def accepts(self, site: str) -> bool:
        place, _, word = site.rpartition(".")
        return word == "output" and place in self.sites

    def __call__(self, site: str, value: Any) -> Any:
        leaf = torch.zeros_like(value, requires_grad=True)
        self.found.setdefault(site.rpartition(".")[0], []).append(leaf)
        return value + leaf
