"""FlexAttention, compiled, against the explicit backend.

The program runs in its own process, because torch.compile cannot trace the shape checker that wraps our functions in
the other tests. Compiling a kernel takes seconds, so three kernels cover everything: in the first, every head has its
own mask.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch
from jumok import attend
from jumok.attention import mask, score

torch.manual_seed(0)
query, key, value = torch.randn(2, 4, 150, 16), torch.randn(2, 2, 170, 16), torch.randn(2, 2, 170, 16)
document_ids = torch.arange(182) // 40
per_head = (
    mask.edge(head=0) & mask.causal & mask.window(40)
    | mask.edge(head=1) & mask.causal & ~mask.edge(query=[0, 27])
    | mask.edge(head=2) & (mask.documents(document_ids) | mask.global_at([3])) & mask.padding([100, 170])
    | mask.edge(head=3) & mask.blocks((7, 7), grid=(13, 14), shift=(3, 3))
)


def compare(tensors, bound, **settings):
    actual = attend(*tensors, backend="flex", **settings)
    expected = attend(*tensors, backend="explicit", **settings)
    assert actual.dtype == expected.dtype
    per_head_error = (actual - expected).abs().amax((0, 2, 3))
    assert per_head_error.max() < bound, (settings, per_head_error)
    print("ok", settings)


with torch.no_grad():
    compare(
        (query, key, value),
        1e-5,
        mask=per_head,
        score=score.ScaledDot(softcap=2.0),
        query_positions=torch.arange(150).flip(0),
        key_positions=range(2, 172),
    )
    # One tensor as key and value, after a call with a mask and two tensors of these shapes: the compiler guards against
    # this, and its report of the failed guard looks for the mask, which is None.
    compare((query, key, key), 1e-5)
    wide_value = torch.randn(2, 2, 170, 24)
    compare((query.bfloat16(), key.bfloat16(), wide_value.bfloat16()), 3e-2, mask=mask.causal)
"""

# One compiler process is enough, and the compiler need not be tried with every vector instruction set.
ENVIRONMENT = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "1"}


@pytest.mark.slow
def test_compiled_flex_equals_the_explicit_backend() -> None:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=os.environ | ENVIRONMENT
    )

    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stdout.count("ok") == 3
