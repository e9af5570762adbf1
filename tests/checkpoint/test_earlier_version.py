"""A model folder and an unfinished run that version 0.1.0 wrote still load and resume. Do not regenerate the files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import jumok
from jumok.recipes.toys import numbers

FILES = Path(__file__).parent / "version_0_1_0"


def test_a_model_folder_of_0_1_0_has_the_same_logits() -> None:
    loaded = jumok.load(FILES / "model")
    with torch.no_grad():
        logits = loaded.model(torch.tensor([[3, 5, 7, 11, 2]]), torch.tensor([[1, 4, 6]])).logits
    torch.testing.assert_close(logits, load_file(FILES / "model_logits.safetensors")["logits"], atol=1e-6, rtol=1e-5)


def test_a_run_of_0_1_0_resumes_to_the_same_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sample_as_0_1_0(count: int, generator: torch.Generator) -> torch.Tensor:
        return torch.rand(count, 5, generator=generator) * 100

    monkeypatch.setattr(numbers, "sample_sequences", sample_as_0_1_0)  # the recipe draws other numbers since
    folder = tmp_path / "run"
    shutil.copytree(FILES / "run", folder)
    jumok.train(resume=folder)
    resumed = load_file(folder / "checkpoints" / "step-00000004" / "model.safetensors")
    expected = load_file(FILES / "run_after_4_steps.safetensors")
    assert resumed.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(resumed[name], tensor, atol=1e-5, rtol=1e-4, msg=name)
