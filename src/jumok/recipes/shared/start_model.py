"""Copy the parameters of the model that a run starts from."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from jumok.errors import ArgumentError
from jumok.models import Model


def copy_parameters(model: Model, parameters: Mapping[str, Tensor]) -> None:
    """Copy parameters into a model; the model's other parameters keep their values."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    mismatch = next((name for name, tensor in parameters.items() if shapes.get(name) != tensor.shape), None)
    if mismatch is not None:
        raise ArgumentError(
            f"the parameter {mismatch} of the model to start from has a different size; do not change its sizes"
        )
    model.load_state_dict(dict(parameters), strict=False)
