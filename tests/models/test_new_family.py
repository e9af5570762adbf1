"""Build, run, save and load the family that CONTRIBUTING.md shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok import ArgumentError
from jumok.models import Model, registry
from jumok.models.gpt import GPT
from jumok.models.registry import FAMILIES, get_family, register_family

ROOT = Path(__file__).parents[2]
MAX_FAMILY_LINES = 60


def read_code_block() -> str:
    """Return the first Python block of the section about a new family."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## A new family in 60 lines")[1]
    return section.split("```python\n")[1].split("```")[0]


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the block in an empty folder and return what it defines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})  # other tests list the families
    defined: dict[str, Any] = {"__name__": "new_family"}
    exec(compile(read_code_block(), "CONTRIBUTING.md", "exec", dont_inherit=True), defined)
    return defined


def test_block_is_the_example_and_short() -> None:
    code = read_code_block()
    assert code == (ROOT / "examples" / "new_family.py").read_text(encoding="utf-8")
    assert len(code.splitlines()) <= MAX_FAMILY_LINES


def test_new_family_builds_runs_saves_and_loads(namespace: dict[str, Any], tmp_path: Path) -> None:
    model_class, config_class = namespace["Alibi"], namespace["AlibiConfig"]
    assert get_family("alibi") is model_class
    assert "alibi" not in FAMILIES

    config = config_class(vocabulary=37, width=12, layers=3, heads=2)
    model = model_class(config).eval()
    tokens = torch.randint(37, (2, 7))
    output = model(tokens, weights=True)
    assert list(output.logits.shape) == [2, 7, 37]
    assert [list(weights.shape) for weights in output.weights] == [[2, 2, 7, 7]] * 3

    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 37
    assert torch.allclose(model(changed).logits[:, :5], output.logits[:, :5], atol=1e-6), "the family is not causal"
    assert not torch.allclose(model(changed).logits[:, 5:], output.logits[:, 5:], atol=1e-3)

    jumok.save(model, tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["family"] == "alibi"
    loaded = jumok.load(tmp_path / "saved")
    assert loaded.config == config and loaded.model.task == "continue"
    assert torch.equal(loaded.model(tokens).logits, model(tokens).logits)


def test_new_family_cannot_take_the_name_of_another() -> None:
    class Impostor(GPT):
        pass

    with pytest.raises(ArgumentError, match="the family 'gpt' already exists; choose another name"):
        register_family(Impostor)


def test_new_family_needs_a_config_of_its_name() -> None:
    class Misnamed(GPT):
        family = "misnamed"

    with pytest.raises(ArgumentError, match="the family 'misnamed' has a config class of the family 'gpt'"):
        register_family(Misnamed)


def test_declarations_are_checked(namespace: dict[str, Any]) -> None:
    class Singer(namespace["Alibi"]):  # type: ignore[misc]
        task = "sing"

    with pytest.raises(ArgumentError, match="declares 'sing'; choose one of continue, translate"):
        Singer(namespace["AlibiConfig"]())
    assert issubclass(Singer, Model)
