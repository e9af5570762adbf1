"""Our models against transformers': the same folder, the same logits; and what we save, they load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import jumok
from jumok.models import Model


def assert_parity(found: Tensor, wanted: Tensor, real: Tensor | None = None) -> None:
    """Within 1e-5 x max(1, largest |logit|), on real (not padding) tokens."""
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    if real is not None:
        found, wanted = found[real], wanted[real]
    bound = 1e-5 * max(1.0, float(wanted.abs().max()))
    assert (found - wanted).abs().max() <= bound, f"off by {float((found - wanted).abs().max()):.2e} (> {bound:.0e})"


def perturb_parameters(theirs: Any) -> Any:
    """Norms start at one and biases at zero: with other numbers a forgotten one is seen. Larger matrices make heads
    that differ."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if not parameter.requires_grad:  # sinusoids and the like are what they are
                continue
            spread = float(parameter.std()) if parameter.dim() > 1 else 0.0
            scale = min(2 * spread, 0.3) or 0.3  # what starts at zero must move too
            parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return theirs.eval()


def check_round_trip(
    theirs: Any, tmp_path: Path, check: Callable[[Model, Any], None], their_class: type | None = None
) -> Model:
    """Save theirs, load ours, compare; save ours in their format, load theirs, compare again; and in our own."""
    theirs = perturb_parameters(theirs)
    theirs.save_pretrained(tmp_path / "theirs")
    loaded = jumok.load(tmp_path / "theirs")
    with torch.no_grad():
        check(loaded.model, theirs)
        jumok.save(loaded.model, tmp_path / "again", format="huggingface")
        again = (their_class or type(theirs)).from_pretrained(tmp_path / "again").eval()
        check(loaded.model, again)
        jumok.save(loaded.model, tmp_path / "own")
        check(jumok.load(tmp_path / "own").model, theirs)
    return loaded.model
