"""Models of transformers, led to our door while a lens is open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from jumok.errors import ArgumentError


@contextmanager
def led_to_the_door(model: nn.Module) -> Iterator[None]:
    raise ArgumentError(
        f"a lens is opened on our own models until now; {type(model).__name__} is none. Save it with save_pretrained, "
        "and load the folder: jumok.load(folder)"
    )
    yield
