"""The linear map against torch's, where it takes its own way and where it does not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from jumok import small_batch_linear as module
from jumok.small_batch_linear import Linear


@pytest.mark.parametrize("outer", [1024, 1027, 2049])
@pytest.mark.parametrize("shape", [(1, 257), (1, 1, 257), (2, 3, 257), (40, 257)])
@pytest.mark.parametrize("bias", [True, False])
def test_it_is_torch_s(outer: int, shape: tuple[int, ...], bias: bool) -> None:
    ours = Linear(257, outer, bias=bias)
    theirs = nn.Linear(257, outer, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    inputs = torch.randn(shape)
    with torch.no_grad():
        assert module._should_split(inputs, ours.weight) == (inputs.numel() <= 32 * 257)
        assert torch.allclose(ours(inputs), theirs(inputs), atol=1e-5)
    assert not module._should_split(inputs, ours.weight)  # gradients go torch's way
    ours(inputs).sum().backward()
    assert ours.weight.grad is not None
