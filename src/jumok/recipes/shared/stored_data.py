"""Prepared data in the folder of a run: written once, so that a resumed run trains on the same examples.

A killed process leaves a whole file or none; of several files, ``prepared.json`` is written last.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from jumok.checkpoint.tensor_files import read_json
from jumok.data.token_shards import TokenShards, fingerprint_tokenizer, write_shards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError
from jumok.files import replace_file, write_atomically
from jumok.recipes.request import TrainingRequest

FACTS_FILE = "prepared.json"
TOKENS_FOLDER = "tokens"

Content = TypeVar("Content")


def save_tensors(path: Path, tensors: dict[str, Tensor], **metadata: Any) -> None:
    """Write tensors, and metadata that JSON can represent, into one file."""
    with replace_file(path) as temporary:
        save_file(tensors, temporary, {name: json.dumps(value, ensure_ascii=False) for name, value in metadata.items()})


def load_tensors(path: Path, parse: Callable[[Mapping[str, Tensor], Mapping[str, Any]], Content]) -> Content:
    """Return what a function makes of the tensors and the metadata that ``save_tensors`` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = {name: json.loads(text) for name, text in file.metadata().items()}
            return parse({name: file.get_tensor(name) for name in file.keys()}, metadata)  # noqa: SIM118
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged ({str(error)[:100]}); start a new run") from None


def write_tokens(
    request: TrainingRequest, tokenizer: Tokenizer, token_lists: Iterable[Sequence[int]], part: str = ""
) -> TokenShards:
    """Store lists of tokens in the run's folder."""
    return write_shards(
        token_lists,
        request.folder / TOKENS_FOLDER / part,
        tokenizer.vocabulary,
        unknown=tokenizer.unknown,
        fingerprint=fingerprint_tokenizer(tokenizer),
        report=request.show_message,
    )


def load_tokens(request: TrainingRequest, part: str = "") -> TokenShards:
    """Open the lists of tokens that ``write_tokens`` stored, and verify them."""
    tokens = TokenShards(request.folder / TOKENS_FOLDER / part)
    tokens.verify()
    return tokens


def load_facts(request: TrainingRequest) -> dict[str, Any] | None:
    """Return the facts about the prepared data; None if it must be prepared. What a killed process left is removed."""
    if (request.folder / FACTS_FILE).is_file():
        return read_json(request.folder, FACTS_FILE)
    shutil.rmtree(request.folder / TOKENS_FOLDER, ignore_errors=True)
    return None


def save_facts(request: TrainingRequest, facts: Mapping[str, Any]) -> None:
    """Record that the data is prepared, with facts for the report."""
    write_atomically(request.folder / FACTS_FILE, json.dumps(facts) + "\n")
