"""The embedding model of an index: its identity, and the texts that it can read."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from jumok.checkpoint.manifest import compute_sha256
from jumok.checkpoint.resolve import resolve_model_path
from jumok.data import catalogue

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded

_LETTER = re.compile(r"[^\W\d_]")
_UNREADABLE = re.compile("[가-힣ㄱ-ㆎᄀ-ᇿ一-鿿㐀-䶿ぁ-ヿ]")


def identify_model(name: str) -> str:
    """Return a text that changes when the parameters of a model change.

    Args:
        name: The model, as for ``jumok.load``.

    Raises:
        CheckpointError: If there is no such model on this machine.
    """
    path = resolve_model_path(name)
    entry = next((entry for entry in catalogue.list_entries() if entry.name == name), None)
    if entry is not None and not Path(name).exists():
        return hashlib.sha256(json.dumps(entry.pins, sort_keys=True).encode()).hexdigest()
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    digests = [f"{file.name} {compute_sha256(file)}" for file in files if file.is_file()]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def load_model(name: str) -> Loaded:
    """Load an embedding model.

    Args:
        name: The model, as for ``jumok.load``.

    Raises:
        ArgumentError: If the model computes no vectors of texts.
    """
    from jumok.checkpoint import load
    from jumok.retrieval.search import check_embedder

    loaded = load(name)
    check_embedder(loaded)
    return loaded


def is_readable(text: str) -> bool:
    """Return True if an English model can read a text: half of its letters are not Korean, Chinese or Japanese.

    >>> is_readable("a cat"), is_readable("고양이 cat"), is_readable("1, 2")
    (True, True, True)
    """
    if text.isascii():
        return True
    letters = len(_LETTER.findall(text))
    return 2 * len(_UNREADABLE.findall(text)) <= letters
