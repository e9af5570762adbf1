"""FlexAttention, compiled for real, against the explicit formula. One process of its own: the shape checker that
wraps our functions in the other tests is nothing that a compiler can read."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import torch
from jumok import attend
from jumok.attention import mask, score

torch.manual_seed(0)
query, key, value = torch.randn(2, 4, 150, 16), torch.randn(2, 2, 170, 16), torch.randn(2, 2, 170, 24)
ids = torch.arange(170) // 40
settings = [
    {},
    {"mask": mask.causal & mask.window(40), "query_positions": range(20, 170)},
    {"mask": mask.causal & ~mask.edge(query=[0, 7]), "score": score.ScaledDot(softcap=2.0)},
    {"mask": (mask.documents(ids) | mask.global_at([3])) & mask.padding([100, 170])},
    {"mask": mask.blocks((7, 7), grid=(13, 14), shift=(3, 3)), "query_positions": torch.arange(150).flip(0)},
]
with torch.no_grad():
    for one in settings:
        found, wanted = (attend(query, key, value, backend=backend, **one) for backend in ("flex", "explicit"))
        difference = (found - wanted).abs().max().item()
        assert difference < 1e-5, (one, difference)
        print("ok", one)
    half = [tensor.bfloat16() for tensor in (query, key, value)]
    found, wanted = (attend(*half, backend=backend, mask=mask.causal) for backend in ("flex", "explicit"))
    assert found.dtype == torch.bfloat16 and (found - wanted).abs().max() < 3e-2
"""


@pytest.mark.slow
def test_flex_is_the_formula() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("ok") == 5
