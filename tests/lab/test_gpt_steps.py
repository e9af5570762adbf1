"""The exercises on building a GPT: each known mistake is recognised in a file, and a right file becomes our GPT."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from jumok.lab.exercises import EXERCISES, check_answer
from jumok.lab.exercises.gpt_steps import TEXTS, compute_logits, list_parameters
from jumok.lab.exercises.gpt_training import convert_parameters
from jumok.lab.exercises.program_child import probe_model, train_model

SOLUTIONS = (Path(__file__).parents[2] / "docs" / "en" / "course" / "solutions.md").read_text(encoding="utf-8")
SIZES = {"vocabulary": 13, "width": 12, "heads": 3, "layers": 2, "context": 7}
MISTAKES = {  # what to change in the solution of an exercise, and the answer of the mistake in gpt.toml
    "gpt-2": {
        "future": ("return weights / weights.sum(-1, keepdim=True) @ x", "return x.mean(1, keepdim=True).expand_as(x)"),
        "all lengths": ("weights.sum(-1, keepdim=True)", "length"),
        "sum": ("weights / weights.sum(-1, keepdim=True)", "weights"),
        "columns": ("weights.sum(-1, keepdim=True)", "weights.sum(-1)"),
    },
    "gpt-3": {
        "no mask": (".masked_fill(future, float('-inf'))", ""),
        "mask after softmax": (
            ".masked_fill(future, float('-inf')).softmax(-1)",
            ".softmax(-1).masked_fill(future, 0)",
        ),
        "columns": ("softmax(-1)", "softmax(-2)"),
        "no scale": (" / q.shape[-1] ** 0.5", ""),
        "no root": ("q.shape[-1] ** 0.5", "q.shape[-1]"),
        "no positions": (" + self.positions.weight[: tokens.shape[1]]", ""),
    },
    "gpt-4": {
        "width scale": ("q.shape[-1] ** 0.5", "x.shape[-1] ** 0.5"),
        "interleaved": (
            "torch.cat([head(x) for head in self.heads], dim=-1)",
            "torch.stack([head(x) for head in self.heads], -1).flatten(2)",
        ),
        "no output": ("return self.output(torch.cat(", "return (torch.cat("),
        "no mask": (".masked_fill(future, float('-inf'))", ""),
    },
    "gpt-5": {"no residual": ("return x + self.attention(x)", "return self.attention(x)")},
    "gpt-6": {
        "norm after": ("x + self.attention(self.attention_norm(x))", "self.attention_norm(x + self.attention(x))"),
        "normed residual": ("return x +", "return self.attention_norm(x) +"),
        "no attention norm": ("self.attention(self.attention_norm(x))", "self.attention(x)"),
        "no final norm": ("self.output(self.norm(x))", "self.output(x)"),
    },
    "gpt-7": {
        "relu": ("nn.GELU()", "nn.ReLU()"),
        "tanh": ("nn.GELU()", "nn.GELU(approximate='tanh')"),
        "no activation": ("nn.GELU()", "nn.Identity()"),
        "no second norm": ("self.feed_forward(self.feed_forward_norm(x))", "self.feed_forward(x)"),
        "no second residual": ("return x + self.feed_forward", "return self.feed_forward"),
    },
}
CASES = [(name, answer) for name, mistakes in MISTAKES.items() for answer in mistakes]


def read_solution(name: str) -> str:
    match = re.search(rf"^## {name}\n\n```python\n(.*?)```$", SOLUTIONS, flags=re.MULTILINE | re.DOTALL)
    assert match is not None
    return match.group(1).replace('float("-inf")', "float('-inf')")


def check_changed(name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Check the solution with one change, as in a notebook, and return the reason why it is wrong."""
    code = read_solution(name)
    assert old in code
    module = ModuleType("my_gpt")
    monkeypatch.setitem(sys.modules, "my_gpt", module)
    exec(code.replace(old, new), vars(module))
    verdict = check_answer(name, module.GPT)
    assert not verdict.right
    return verdict.reason.english


def test_every_known_mistake_has_a_file_here() -> None:
    steps = [exercise for name, exercise in EXERCISES.items() if name.startswith("gpt-")]
    declared = [(exercise.name, mistake.compute()) for exercise in steps for mistake in exercise.mistakes]
    assert sorted(declared) == sorted(CASES)


@pytest.mark.parametrize(("name", "answer"), CASES)
def test_known_mistakes_are_recognised(name: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {mistake.compute(): mistake.reason.english for mistake in EXERCISES[name].mistakes}
    assert check_changed(name, *MISTAKES[name][answer], monkeypatch) == reasons[answer]


@pytest.mark.parametrize(
    ("name", "old", "new", "text"),
    [
        ("gpt-1", "tokens[:, 1:].flatten()", "tokens[:, :-1].flatten()", "unshifted_loss"),
        ("gpt-1", "tokens[:, 1:].flatten()", "tokens[:, 1:].flatten(), reduction='sum'", "summed_loss"),
        ("gpt-1", "logits.flatten(0, 1)", "logits.softmax(-1).flatten(0, 1)", "softmax_loss"),
        ("gpt-1", "tokens[:, 1:].flatten()", "tokens[:, 1:].flatten(), label_smoothing=0.5", "wrong_loss"),
        ("gpt-1", "self.embedding(tokens)", "self.embedding(tokens)[:, -1]", "wrong_shape"),
        (
            "gpt-1",
            "self.output(self.embedding(tokens))",
            "self.output(self.embedding(tokens)).softmax(-1)",
            "softmax_logits",
        ),
        ("gpt-2", "tril()", "tril(-1)", "nan_average"),
        ("gpt-3", "triu(1)", "triu()", "nan_logits"),
        ("gpt-3", "softmax(-1)", "softmax(0)", "nan_logits"),
        ("gpt-5", "torch.bool).triu(1)", "torch.bool).triu(2)", "not_causal"),
        ("gpt-5", "x + self.attention(x)", "x - self.attention(x)", "wrong_logits"),
        ("gpt-5", "self.blocks", "self.layers", "missing_parameter"),
        ("gpt-4", "nn.ModuleList(Head(", "list(Head(", "plain_list"),
        ("gpt-5", "Block(width, heads) for _ in range(layers)", "[Block(width, heads)] * layers", "repeated_module"),
        ("gpt-7", "4 * width", "2 * width", "wrong_parameter_shape"),
        ("gpt-5", "self.attention = ", "self.extra = nn.Linear(3, 2); self.attention = ", "too_many_parameters"),
        ("gpt-8", "triu(past + 1)", "triu(1)", "wrong_tokens"),
        ("gpt-8", '[start : cache["length"]]', "[: tokens.shape[1]]", "wrong_tokens"),
        ("gpt-8", "return tokens", "return tokens[:, -count:]", "no_prompt"),
        ("gpt-8", "return tokens", "return tokens[:, :-1]", "wrong_generated_shape"),
        ("gpt-8", "new = model(new, cache)", "new = model(tokens)", "no_cache"),
    ],
)
def test_other_mistakes_are_described(
    name: str, old: str, new: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "cache['length']" in old:
        old = old.replace("'", '"')
    reason = check_changed(name, old, new, monkeypatch)
    beginning = TEXTS._get_entry(text)["en"].partition("{")[0]
    assert reason.startswith(beginning) and len(beginning) > 5


def test_a_file_that_fails_is_described_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "my_gpt.py"
    file.write_text(read_solution("gpt-3").replace("self.query(x)", "self.queries(x)"), encoding="utf-8")
    reason = check_answer("gpt-3", str(file)).reason.english
    assert re.fullmatch(r"my_gpt.py failed: line \d+: AttributeError: .*queries.*", reason)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            "return self.output(self.embedding(tokens))",
            "return self.output(self.embedding(tokens)), None",
            "my_gpt.py 실행이 실패했습니다: GPT(...)(tokens)의 결과는 텐서여야 하는데, 지금은 tuple입니다",
        ),
        (
            "return F.cross_entropy",
            "F.cross_entropy",
            "my_gpt.py 실행이 실패했습니다: compute_loss(model, tokens)의 결과는 텐서여야 하는데, 지금은 None",
        ),
        ("def compute_loss", "def loss", "my_gpt.py 실행이 실패했습니다: compute_loss() 정의가 없습니다"),
        ("self.embedding(tokens)", "self.embed(tokens)", "my_gpt.py 실행이 실패했습니다: 13번째 줄: AttributeError"),
    ],
)
def test_failures_are_described_in_korean(tmp_path: Path, old: str, new: str, text: str) -> None:
    file = tmp_path / "my_gpt.py"
    file.write_text(read_solution("gpt-1").replace(old, new), encoding="utf-8")
    assert check_answer("gpt-1", str(file)).reason.korean.startswith(text)


def test_a_class_that_is_no_module_is_described() -> None:
    outcome = probe_model(
        {"GPT": dict, "compute_loss": len}, {"functions": ["compute_loss"], "sizes": SIZES, "tokens": [[1]]}
    )
    assert outcome["missing"] == "class GPT(nn.Module)"


def test_training_keeps_parameters_and_no_buffers(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    code = read_solution("gpt-1").replace(
        "super().__init__()", "super().__init__(); self.register_buffer('mask', torch.ones(2))"
    )
    exec(code, namespace)
    request = {"sizes": SIZES, "training": list(range(13)), "held_out": list(range(13)), "steps": 2, "batch": 2}
    file = tmp_path / "parameters.safetensors"
    train_model(namespace, {**request, "learning_rate": 0.01, "evaluations": 1, "parameters_file": str(file)})
    assert set(load_file(file)) == {"embedding.weight", "output.weight"}


def test_a_persons_gpt_becomes_ours_with_equal_logits() -> None:
    namespace: dict[str, Any] = {}
    exec(read_solution("gpt-8"), namespace)
    torch.manual_seed(0)
    model = namespace["GPT"](**SIZES).eval()
    parameters, tokens = model.state_dict(), torch.randint(13, (2, 7))
    assert {name: tuple(tensor.shape) for name, tensor in parameters.items()} == list_parameters(8, SIZES)
    ours = convert_parameters(parameters, SIZES)
    assert torch.allclose(ours(tokens).logits, model(tokens), atol=1e-5)
    assert torch.allclose(compute_logits(parameters, tokens, 8), model(tokens), atol=1e-5)
