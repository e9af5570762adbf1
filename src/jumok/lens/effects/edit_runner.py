"""Measure a metric under many edits of one text: one clean forward pass, then batches of edited ones."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lens.lens import Lens
from jumok.lens.lens_inputs import convert_inputs
from jumok.lens.restart import Restart, repeat_input
from jumok.tap import Listener, listen

from .metrics import Metric, MetricFunction, choose_default_metric, extract_answer, read_metric

POSITIONS_PER_BATCH = 4096  # larger batches need more memory and are not faster


class EditRunner:
    """Runs edits of one text in batches, restarting the model at the edited layer.

    ``capture`` is that of the clean forward pass, with the outputs and values of all heads; ``metric`` has token ids in
    place of texts; ``rows_per_batch`` edits run in one batch.
    """

    def __init__(
        self, lens: Lens, inputs: tuple[Any, ...], settings: dict[str, Any], metric: Metric | MetricFunction | None
    ) -> None:
        """Run the model once without edits; without a metric, its own answer is measured."""
        metric = read_metric(metric)
        self.lens, self.model = lens, lens.model
        self.inputs, settings = convert_inputs(lens, inputs, settings)
        # no decoding step follows these forward passes, so a cache would only use memory
        self.settings = {**lens.facts.build_no_cache_arguments(), **settings}
        first_read_position = -1 if metric is None else metric.first_read_position
        if first_read_position is not None and first_read_position < 0:
            self.settings |= lens.facts.build_last_logits_arguments(-first_read_position)

        self.restart = Restart(self.model)
        with self.restart.record():
            self.capture = lens.run(*self.inputs, keep=("output", "value"), logits=True, **self.settings)
        positions = max(attention.queries for attention in self.capture.attentions.values())
        self.rows_per_batch = max(1, POSITIONS_PER_BATCH // positions)
        answer = extract_answer(self.capture.output)
        self.clean_answer = answer.tensor
        if len(self.clean_answer) != 1:
            raise ArgumentError(f"effect measures one text at a time, not {len(self.clean_answer)}")
        self.metric = choose_default_metric(answer) if metric is None else metric.resolve_tokens(lens.tokenizer)
        self.metric.check(answer)
        self.clean_value = float(self.metric(self.clean_answer, self.clean_answer)[0])

    @torch.no_grad()
    def measure(self, listener: Listener, site: str, rows: int) -> Float[Tensor, " row"]:
        """Measure the effects of a batch whose rows are copies of the text, each with its own edit at a site."""
        inputs = [repeat_input(model_input, rows) for model_input in self.inputs]
        settings = {name: repeat_input(setting, rows) for name, setting in self.settings.items()}
        skipped = self.restart.list_blocks_before([site])
        with self.lens.prepare_model(), self.restart.skip(skipped, rows), listen(listener):
            answer = extract_answer(self.model(*inputs, **settings))
        return self.metric(answer.tensor, self.clean_answer) - self.clean_value

    def compute_gradients(self) -> dict[str, Float[Tensor, "head query width"]]:
        """Compute the gradient of the metric with respect to the output of each head, by site."""
        leaves = GradientLeaves(frozenset(self.capture.attentions))
        with torch.enable_grad(), self.lens.prepare_model(), listen(leaves):
            answer = extract_answer(self.model(*self.inputs, **self.settings))
            metric = self.metric.surrogate(self.clean_answer)(answer.tensor, self.clean_answer)[0]
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


class GradientLeaves(Listener):
    """Adds a zero tensor to the output of every head, so that gradients exist even where no parameter requires one."""

    def __init__(self, sites: frozenset[str]) -> None:
        self.sites = sites
        self.tensors: dict[str, list[Tensor]] = {}

    def accepts(self, site: str) -> bool:
        attention_site, _, word = site.rpartition(".")
        return word == "output" and attention_site in self.sites

    def __call__(self, site: str, value: Tensor) -> Tensor:
        leaf = torch.zeros_like(value, requires_grad=True)
        self.tensors.setdefault(site.rpartition(".")[0], []).append(leaf)
        return value + leaf
