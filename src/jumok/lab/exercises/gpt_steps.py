"""The exercises gpt-1 to gpt-8: a person builds a GPT in one file, step by step, in plain PyTorch.

``compute_logits`` is the reference, on a dictionary of parameters; a *variant* is a mistake that people make, computed
in the same way, so that a wrong answer can be recognised by its numbers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from jumok.bilingual_text import Text, Texts

from .exercise import Exercise, Verdict, describe_failure, run_file
from .program_child import probe_model

Parameters = Mapping[str, Tensor]
TEXTS = Texts(__file__)
AVERAGE, HEAD, HEADS, RESIDUAL, NORM, FEED_FORWARD, CACHE = range(2, 9)  # the steps; step 1 is the bigram
SIZES = {"vocabulary": 11, "width": 12, "heads": 3, "layers": 2, "context": 15}
TOKENS = [[3, 1, 4, 1, 5, 9, 2, 6, 5], [8, 9, 7, 9, 3, 2, 3, 8, 4]]
PROMPT, COUNT = 3, 12  # generation ends with the last position
TOLERANCE = 1e-4


def compute_logits(parameters: Parameters, tokens: Tensor, step: int, variant: str = "") -> Tensor:
    """Return the logits of the model of one step."""
    hidden = parameters["embedding.weight"][tokens]
    if step == AVERAGE:
        hidden = _average(hidden, variant)
    if step >= HEAD and variant != "no positions":
        hidden = hidden + parameters["positions.weight"][: tokens.shape[1]]
    if step == HEAD:
        hidden = _attend(parameters, "head.", hidden, variant)
    elif step == HEADS:
        hidden = _attend_in_heads(parameters, "attention.", hidden, variant)
    elif step >= RESIDUAL:
        for block in range(SIZES["layers"]):
            hidden = _apply_block(parameters, f"blocks.{block}.", hidden, step, variant)
    if step >= NORM and variant != "no final norm":
        hidden = _normalize(parameters, "norm.", hidden)
    return _apply_linear(parameters, "output.", hidden)


def _average(hidden: Tensor, variant: str) -> Tensor:
    length = hidden.shape[1]
    if variant == "future":
        return hidden.mean(1, keepdim=True).expand_as(hidden)
    counts = torch.arange(1.0, length + 1)
    if variant == "columns":
        return (torch.ones(length, length).tril() / counts) @ hidden
    divisor = {"sum": 1.0, "all lengths": float(length)}.get(variant, counts[:, None])
    return hidden.cumsum(1) / divisor


def _attend(parameters: Parameters, name: str, hidden: Tensor, variant: str) -> Tensor:
    query, key, value = (_apply_linear(parameters, f"{name}{part}.", hidden) for part in ("query", "key", "value"))
    divisors = {"no scale": 1.0, "no root": query.shape[-1], "width scale": math.sqrt(hidden.shape[-1])}
    divisor = divisors.get(variant, math.sqrt(query.shape[-1]))
    scores = query @ key.mT / divisor
    future = torch.ones_like(scores).triu(1).bool()
    if variant == "no mask":
        weights = scores.softmax(-1)
    elif variant == "mask after softmax":
        weights = scores.softmax(-1).masked_fill(future, 0.0)
    elif variant == "columns":
        weights = scores.masked_fill(future, -math.inf).softmax(-2)
    else:
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
    return weights @ value


def _attend_in_heads(parameters: Parameters, name: str, hidden: Tensor, variant: str) -> Tensor:
    heads = [_attend(parameters, f"{name}heads.{head}.", hidden, variant) for head in range(SIZES["heads"])]
    joined = torch.stack(heads, dim=-1).flatten(2) if variant == "interleaved" else torch.cat(heads, dim=-1)
    return joined if variant == "no output" else _apply_linear(parameters, f"{name}output.", joined)


def _apply_block(parameters: Parameters, name: str, hidden: Tensor, step: int, variant: str) -> Tensor:
    attention_input = hidden
    if step >= NORM and variant not in ("norm after", "no attention norm"):
        attention_input = _normalize(parameters, f"{name}attention_norm.", hidden)
    attended = _attend_in_heads(parameters, f"{name}attention.", attention_input, variant)
    base = attention_input if variant == "normed residual" else hidden
    hidden = attended if variant == "no residual" else base + attended
    if step >= NORM and variant == "norm after":
        hidden = _normalize(parameters, f"{name}attention_norm.", hidden)
    if step < FEED_FORWARD:
        return hidden
    normed = _normalize(parameters, f"{name}feed_forward_norm.", hidden)
    inner = _apply_linear(parameters, f"{name}feed_forward.0.", hidden if variant == "no second norm" else normed)
    activations = {"relu": inner.relu(), "no activation": inner, "tanh": functional.gelu(inner, approximate="tanh")}
    changed = _apply_linear(parameters, f"{name}feed_forward.2.", activations.get(variant, functional.gelu(inner)))
    return changed if variant == "no second residual" else hidden + changed


def _apply_linear(parameters: Parameters, name: str, hidden: Tensor) -> Tensor:
    return functional.linear(hidden, parameters[f"{name}weight"], parameters.get(f"{name}bias"))


def _normalize(parameters: Parameters, name: str, hidden: Tensor) -> Tensor:
    weight, bias = parameters[f"{name}weight"], parameters[f"{name}bias"]
    return functional.layer_norm(hidden, weight.shape, weight, bias)


def list_parameters(step: int, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the parameters of one step, in the order of the pages."""
    vocabulary, width, heads = sizes["vocabulary"], sizes["width"], sizes["heads"]

    def list_linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}

    def list_head(name: str, head_width: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.{part}.weight": (head_width, width) for part in ("query", "key", "value")}

    def list_attention(name: str) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for head in range(heads):
            shapes |= list_head(f"{name}.heads.{head}", width // heads)
        return shapes | list_linear(f"{name}.output", width, width)

    shapes: dict[str, tuple[int, ...]] = {"embedding.weight": (vocabulary, width)}
    norm = {"weight": (width,), "bias": (width,)}
    if step >= HEAD:
        shapes["positions.weight"] = (sizes["context"], width)
    if step == HEAD:
        shapes |= list_head("head", width)
    elif step == HEADS:
        shapes |= list_attention("attention")
    elif step >= RESIDUAL:
        for block in range(sizes["layers"]):
            name = f"blocks.{block}"
            if step >= NORM:
                shapes |= {f"{name}.attention_norm.{part}": shape for part, shape in norm.items()}
            shapes |= list_attention(f"{name}.attention")
            if step >= FEED_FORWARD:
                shapes |= {f"{name}.feed_forward_norm.{part}": shape for part, shape in norm.items()}
                shapes |= list_linear(f"{name}.feed_forward.0", width, 4 * width)
                shapes |= list_linear(f"{name}.feed_forward.2", 4 * width, width)
    if step >= NORM:
        shapes |= {f"norm.{part}": shape for part, shape in norm.items()}
    return shapes | {"output.weight": (vocabulary, width)}


@dataclass(frozen=True)
class ModelExercise(Exercise):
    """An exercise whose answer is a Python file with a class ``GPT``, as far as one step of the course has come.

    The ``compute`` of a mistake returns the name of a variant of ``compute_logits``.

    Attributes:
        step: 1 to 8.
    """

    step: int

    def check(self, answer: str) -> Verdict:
        outcome = run_file(answer, self._create_request(), "GPT")
        return outcome if isinstance(outcome, Verdict) else self._judge(outcome)

    def check_class(self, model_class: type) -> Verdict:
        """Check a class of this process and the functions beside it, for notebooks."""
        namespace = vars(sys.modules[model_class.__module__])
        outcome = probe_model({**namespace, "GPT": model_class}, self._create_request())
        return Verdict(False, describe_failure(outcome)) if "error" in outcome else self._judge(outcome)

    def _create_request(self) -> dict[str, Any]:
        functions = ["compute_loss", "generate"] if self.step == CACHE else ["compute_loss"]
        request = {"kind": "probe", "sizes": SIZES, "tokens": TOKENS, "prompt": PROMPT, "count": COUNT}
        return {**request, "functions": functions}

    def _judge(self, outcome: Mapping[str, Any]) -> Verdict:
        parameters = {name: torch.tensor(value) for name, value in outcome["parameters"].items()}
        problem = (
            self._judge_parameters(parameters, outcome)
            or self._judge_logits(outcome, parameters)
            or self._judge_loss(outcome)
            or (self._judge_generation(outcome, parameters) if self.step == CACHE else None)
        )
        return Verdict(problem is None, problem or self.reason)

    def _judge_parameters(self, parameters: Parameters, outcome: Mapping[str, Any]) -> Text | None:
        expected = list_parameters(self.step, SIZES)
        missing = [name for name in expected if name not in parameters]
        unknown = [name for name in parameters if name not in expected]
        names = ", ".join(unknown[:3])
        if missing:
            for name in outcome["plain_lists"]:
                if missing[0].startswith(f"{name}."):
                    return TEXTS("plain_list", name=name)
            if missing[0] in outcome["repeated"]:
                return TEXTS("repeated_module", name=missing[0])
            hint = TEXTS("unknown_parameter", names=names) if unknown else ""
            return TEXTS("missing_parameter", name=missing[0], unknown=hint)
        for name, shape in expected.items():
            if tuple(parameters[name].shape) != shape:
                shapes = {"shape": list(parameters[name].shape), "expected": list(shape)}
                return TEXTS("wrong_parameter_shape", name=name, **shapes)
        if unknown:
            return TEXTS("too_many_parameters", count=sum(parameters[name].numel() for name in unknown), names=names)
        return None

    def _judge_logits(self, outcome: Mapping[str, Any], parameters: Parameters) -> Text | None:
        tokens, logits = torch.tensor(TOKENS), torch.tensor(outcome["logits"])
        expected_shape = [*tokens.shape, SIZES["vocabulary"]]
        if list(logits.shape) != expected_shape:
            return TEXTS("wrong_shape", shape=list(logits.shape), expected=expected_shape)
        if logits.isnan().any():
            return TEXTS("nan_average" if self.step == AVERAGE else "nan_logits")
        for mistake in self.mistakes:
            if _is_close(logits, compute_logits(parameters, tokens, self.step, mistake.compute())):
                return mistake.reason
        if not _is_close(logits[:, :-1], torch.tensor(outcome["shorter_logits"])):
            return TEXTS("not_causal")
        expected = compute_logits(parameters, tokens, self.step)
        if _is_close(logits, expected.softmax(-1)):
            return TEXTS("softmax_logits")
        if not _is_close(logits, expected):
            return TEXTS("wrong_logits", difference=float((logits - expected).abs().max()))
        return None

    def _judge_loss(self, outcome: Mapping[str, Any]) -> Text | None:
        tokens, logits, loss = torch.tensor(TOKENS), torch.tensor(outcome["logits"]), outcome["loss"]
        expected = float(functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()))
        if abs(loss - expected) < TOLERANCE:
            return None
        for end in (None, -1):  # with and without the last position
            unshifted = functional.cross_entropy(logits[:, :end].flatten(0, 1), tokens[:, :end].flatten())
            if abs(loss - float(unshifted)) < TOLERANCE:
                return TEXTS("unshifted_loss")
        if abs(loss - expected * tokens[:, 1:].numel()) < TOLERANCE * tokens.numel():
            return TEXTS("summed_loss")
        normalized = functional.cross_entropy(logits[:, :-1].softmax(-1).flatten(0, 1), tokens[:, 1:].flatten())
        if abs(loss - float(normalized)) < TOLERANCE:
            return TEXTS("softmax_loss")
        return TEXTS("wrong_loss", loss=loss, expected=expected)

    def _judge_generation(self, outcome: Mapping[str, Any], parameters: Parameters) -> Text | None:
        tokens = torch.tensor(TOKENS)[:, :PROMPT]
        for _ in range(COUNT):
            following = compute_logits(parameters, tokens, self.step)[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, following], dim=1)
        generated = outcome["generated"]
        if generated == tokens[:, PROMPT:].tolist():
            return TEXTS("no_prompt")
        if torch.tensor(generated).shape != tokens.shape:
            shapes = {"shape": list(torch.tensor(generated).shape), "expected": list(tokens.shape)}
            return TEXTS("wrong_generated_shape", **shapes)
        for row, expected in zip(generated, tokens.tolist(), strict=True):
            if row != expected:
                return TEXTS("wrong_tokens", tokens=row, expected=expected)
        if outcome["embedded"] > tokens.numel():
            return TEXTS("no_cache", count=outcome["embedded"], expected=tokens.numel())
        return None


def _is_close(logits: Tensor, expected: Tensor) -> bool:
    return logits.shape == expected.shape and torch.allclose(logits, expected, rtol=0, atol=TOLERANCE)
