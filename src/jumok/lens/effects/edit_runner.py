"""Measure a metric under many edits of one text: one clean forward pass, then batches of edited ones."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.lens import Lens
from jumok.lens.restart import Restart, repeat_input
from jumok.tap import Listener, listen

from .answer import extract_answer
from .function_metric import FunctionMetric, MetricFunction
from .metrics import (
    ClassScore,
    Divergence,
    LogitDifference,
    LogProbability,
    Loss,
    Metric,
    Similarity,
    Value,
    choose_default_metric,
    select_position,
)

#: what each kind of answer is called in error messages, and which metrics can measure it
ANSWER_NAMES = {"logits": "logits", "numbers": "numbers", "hidden": "vectors and no logits"}
METRICS_BY_ANSWER: dict[str, tuple[type[Metric], ...]] = {
    "logits": (LogProbability, LogitDifference, Loss, Divergence, ClassScore),
    "numbers": (Value,),
    "hidden": (Similarity,),
}
MetricLike = Metric | MetricFunction | None
POSITIONS_PER_BATCH = 4096  # larger batches need more memory and are not faster


class EditRunner:
    """Runs edits of one text in batches, restarting the model at the edited layer.

    Attributes:
        capture: The capture of the clean forward pass, with the outputs and values of all heads.
        metric: The metric, with token ids in place of texts.
        clean_answer: The output of the clean forward pass.
        clean_value: The metric of the clean forward pass.
    """

    def __init__(self, lens: Lens, inputs: tuple[Any, ...], settings: dict[str, Any], metric: MetricLike) -> None:
        """Run the model once without edits.

        Args:
            settings: Further keyword arguments of the model's ``forward``.
            metric: A metric or a function; None = the log-probability of the model's own answer.

        Raises:
            ArgumentError: If there are several texts, or the metric does not fit the model's output.
        """
        metric = _check_metric_type(metric)
        self.lens, self.model = lens, lens.model
        self.inputs, settings = lens.prepare_arguments(inputs, settings)
        # no decoding step follows these forward passes, so a cache would only use memory
        self.settings = {**lens.facts.build_no_cache_arguments(), **settings}
        first_read_position = -1 if metric is None else metric.first_read_position
        if first_read_position is not None and first_read_position < 0:
            self.settings |= lens.facts.build_last_logits_arguments(-first_read_position)

        self.restart = Restart(self.model)
        with self.restart.record():
            self.capture = lens.run(*self.inputs, keep=("output", "value"), logits=True, **self.settings)
        answer = extract_answer(self.capture.output)
        self.clean_answer = answer.tensor
        if len(self.clean_answer) != 1:
            raise ArgumentError(f"effect measures one text at a time, not {len(self.clean_answer)}")
        self.metric = choose_default_metric(answer) if metric is None else metric.resolve_tokens(lens.tokenizer)
        self._check_metric(answer.kind)
        self.clean_value = float(self.metric(self.clean_answer, self.clean_answer)[0])

    def _check_metric(self, kind: str) -> None:
        """Raise an ArgumentError if the metric does not fit the kind of answer."""
        if isinstance(self.metric, (*METRICS_BY_ANSWER[kind], FunctionMetric)):
            return
        has_classes = kind != "logits" or self.clean_answer.dim() == 2
        suitable = [
            candidate.__name__ for candidate in METRICS_BY_ANSWER[kind] if has_classes or candidate is not ClassScore
        ]
        raise ArgumentError(
            f"this model outputs {ANSWER_NAMES[kind]}, which {type(self.metric).__name__} cannot measure; "
            f"use {', '.join(suitable)}"
        )

    @property
    def head_counts(self) -> tuple[int, ...]:
        """The number of heads of each attention, in execution order."""
        return tuple(self.capture.attentions[site].heads for site in self.capture.sites.names)

    @property
    def rows_per_batch(self) -> int:
        """How many edits run in one batch."""
        positions = max(attention.queries for attention in self.capture.attentions.values())
        return max(1, POSITIONS_PER_BATCH // positions)

    @torch.no_grad()
    def measure(self, listener: Listener, site: str, rows: int) -> Float[Tensor, " row"]:
        """Measure the metric of a batch whose rows are copies of the text, each with its own edit.

        Args:
            site: The edited attention; the blocks before it are not computed again.
        """
        inputs = [repeat_input(model_input, rows) for model_input in self.inputs]
        settings = {name: repeat_input(setting, rows) for name, setting in self.settings.items()}
        with self.lens.execute(), self.restart.skip_before(site, rows), listen(listener):
            answer = extract_answer(self.model(*inputs, **settings))
        return self.metric(answer.tensor, self.clean_answer)

    def compute_gradients(self) -> dict[str, Float[Tensor, "head query width"]]:
        """Compute the gradient of the metric with respect to the output of each head, by site."""
        leaves = GradientLeaves(frozenset(self.capture.attentions))
        with torch.enable_grad(), self.lens.execute(), listen(leaves):
            answer = extract_answer(self.model(*self.inputs, **self.settings))
            metric = self._compute_differentiable_metric(answer.tensor)
            if not metric.requires_grad:
                raise ArgumentError(
                    f"{self.metric} has no gradient, which finds the edges to measure; return a tensor that is "
                    "computed from the logits by differentiable operations of torch"
                )
            sites = [site for site, tensors in leaves.tensors.items() for _ in tensors]
            flat = [tensor for tensors in leaves.tensors.values() for tensor in tensors]
            gradients = torch.autograd.grad(metric, flat, allow_unused=True)

        by_site: dict[str, list[Tensor]] = {}
        for site, leaf, gradient in zip(sites, flat, gradients, strict=True):
            by_site.setdefault(site, []).append(torch.zeros_like(leaf) if gradient is None else gradient)
        return {site: torch.cat(steps, 2)[0] for site, steps in by_site.items()}

    def _compute_differentiable_metric(self, answer: Tensor) -> Tensor:
        """Compute the number whose gradient estimates effects.

        A divergence and a similarity have their extremum at the clean output, where their gradient is 0. The
        log-probability of the most likely token and a projection onto a random direction replace them.
        """
        if isinstance(self.metric, Divergence):
            position = self.metric.position
            token = int(select_position(self.clean_answer, position)[0].argmax())
            return LogProbability(token, position)(answer, self.clean_answer)[0]
        if isinstance(self.metric, Similarity):
            direction = torch.randn(answer.shape[-1], generator=torch.Generator().manual_seed(0)).to(answer)
            return (answer[0].flatten(0, -2).mean(0) * direction).sum()
        return self.metric(answer, self.clean_answer)[0]


def _check_metric_type(metric: MetricLike) -> Metric | None:
    """Return the metric; a function becomes a FunctionMetric."""
    if metric is None or isinstance(metric, Metric):
        return metric
    if not callable(metric) or isinstance(metric, type):
        names = ", ".join(Metric.kinds)
        raise ArgumentError(
            f"{metric!r} is not a metric; use a value of jumok.lens.effects.metrics ({names}) "
            "or a function of the logits"
        )
    return FunctionMetric(metric)


class GradientLeaves(Listener):
    """Adds a zero tensor to the output of every head, so that gradients exist even where no parameter requires one.

    Attributes:
        tensors: The added tensors by site, one for each call.
    """

    def __init__(self, sites: frozenset[str]) -> None:
        """Create a listener."""
        self.sites = sites
        self.tensors: dict[str, list[Tensor]] = {}

    def accepts(self, site: str) -> bool:
        """Return whether this is the output of one of the attentions."""
        attention_site, _, word = site.rpartition(".")
        return word == "output" and attention_site in self.sites

    def __call__(self, site: str, value: Tensor) -> Tensor:
        """Return the output plus a new zero tensor that requires a gradient."""
        leaf = torch.zeros_like(value, requires_grad=True)
        self.tensors.setdefault(site.rpartition(".")[0], []).append(leaf)
        return value + leaf
