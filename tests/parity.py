"""Compare our models with transformers': the same folder gives the same logits, and they load what we save."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import jumok
from jumok.models import Model


def assert_parity(actual: Tensor, expected: Tensor, token_mask: Tensor | None = None) -> None:
    """Assert a difference of at most 1e-5 x max(1, largest |logit|), on real (not padding) tokens."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if token_mask is not None:
        actual, expected = actual[token_mask], expected[token_mask]
    bound = 1e-5 * max(1.0, float(expected.abs().max()))
    difference = float((actual - expected).abs().max())
    assert difference <= bound, f"off by {difference:.2e} (> {bound:.0e})"


def perturb_parameters(model: Any) -> Any:
    """Add noise to all parameters, so that a forgotten norm (initially 1) or bias (initially 0) changes the output and
    heads differ."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.requires_grad:  # sinusoids and the like stay unchanged
                continue
            spread = float(parameter.std()) if parameter.dim() > 1 else 0.0
            scale = min(2 * spread, 0.3) or 0.3  # parameters that start at zero must change too
            parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return model.eval()


def check_round_trip(
    reference: Any, tmp_path: Path, check: Callable[[Model, Any], None], reference_class: type | None = None
) -> Model:
    """Save a model of transformers, load and compare ours; save ours in both formats, load and compare again."""
    reference = perturb_parameters(reference)
    reference.save_pretrained(tmp_path / "theirs")
    loaded = jumok.load(tmp_path / "theirs")
    with torch.no_grad():
        check(loaded.model, reference)
        jumok.save(loaded.model, tmp_path / "again", format="huggingface")
        reloaded = (reference_class or type(reference)).from_pretrained(tmp_path / "again").eval()
        check(loaded.model, reloaded)
        jumok.save(loaded.model, tmp_path / "own")
        check(jumok.load(tmp_path / "own").model, reference)
    return loaded.model
