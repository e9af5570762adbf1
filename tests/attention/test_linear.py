"""The linear layer against torch.nn.Linear, with and without splitting the matrix."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from jumok import small_batch_linear
from jumok.small_batch_linear import Linear


@pytest.mark.parametrize("outer", [1024, 1027, 2049])
@pytest.mark.parametrize("shape", [(1, 257), (1, 1, 257), (2, 3, 257), (40, 257)])
@pytest.mark.parametrize("bias", [True, False])
def test_output_equals_nn_linear(outer: int, shape: tuple[int, ...], bias: bool) -> None:
    ours = Linear(257, outer, bias=bias)
    theirs = nn.Linear(257, outer, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    inputs = torch.randn(shape)
    with torch.no_grad():
        assert small_batch_linear._should_split(inputs, ours.weight) == (inputs.numel() <= 32 * 257)
        assert torch.allclose(ours(inputs), theirs(inputs), atol=1e-5)
    assert not small_batch_linear._should_split(inputs, ours.weight)  # with gradients, the plain product is used
    ours(inputs).sum().backward()
    assert ours.weight.grad is not None
