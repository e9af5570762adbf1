"""What loading gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jumok.models import Config, Model


@dataclass(frozen=True)
class Loaded:
    """A model and what belongs to it. The tokenizer is None where the folder has none."""

    model: Model
    tokenizer: Any
    config: Config
    family: str
