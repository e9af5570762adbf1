"""Folders of text files, a small embedding model, and the comparison of indexes, for the tests of indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import jumok
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models import BERT, BERTConfig
from jumok.retrieval import FolderIndex

QUESTIONS = ("When does the boat leave?", "Who keeps bees?", "고양이는 어디에 있나요?")


def write_files(folder: Path, texts: dict[str, str | bytes]) -> Path:
    """Write files, with their folders, and return the folder."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def write_notes(folder: Path, count: int = 3) -> Path:
    """Write a few files in several formats, and return the folder."""
    texts: dict[str, str | bytes] = {
        "boat.txt": "The boat to the island leaves at seven.\n\nIt returns at noon.\n",
        "garden/bees.md": "# Bees\n\nAunt Mina keeps bees.\n\n## Honey\n\nThe honey is sold in May.\n",
        "고양이.txt": "고양이는 부엌 창가에 앉아 있습니다.\n",
    }
    for number in range(count):
        texts[f"numbers/{number}.txt"] = f"Note {number} says that room {7 * number} is on floor {number}.\n"
    return write_files(folder, texts)


def save_small_embedder(folder: Path, seed: int = 0) -> str:
    """Save a small encoder with random parameters and bytes as tokens, and return its name for ``jumok.load``."""
    torch.manual_seed(seed)
    config = BERTConfig(vocabulary=256, width=24, layers=1, heads=3, hidden=48, length=2048)
    return str(jumok.save(BERT(config).eval(), folder, tokenizer=Tokenizer.for_bytes()))


def describe_contents(index: FolderIndex, method: str = "auto") -> dict[str, Any]:
    """Return everything that a search can see: two indexes of the same files must be equal in it."""
    searches = {question: index.search(question, 5, method) for question in QUESTIONS}
    vectors = [] if index._vectors is None else np.array(index._vectors._matrix).tolist()
    return {
        "passages": [index.get(number) for number in range(len(index))],
        "hits": {question: [(hit.number, hit.score) for hit in answer.hits] for question, answer in searches.items()},
        "vectors": vectors,
        "files": (index.status.files, index.status.bytes),
    }
