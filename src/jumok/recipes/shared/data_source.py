"""Choose between the user's own files, the catalogue's data sets and generated data."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path

from jumok.data import catalogue
from jumok.data.readers.hub_datasets import HUB_PREFIX
from jumok.errors import ArgumentError, DataError
from jumok.recipes.request import TrainingRequest


def select_dataset(request: TrainingRequest, default: str | None, available: Collection[str]) -> str | None:
    """Return the catalogue entry or the generated data to read; None if the data is the user's own."""
    if request.data is None:
        return default
    name = request.catalogue_name or request.generated_name
    if name is None or name in available:
        return name
    if request.generated_name is not None:
        raise ArgumentError(f"the {request.recipe} recipe cannot read {name}; only the translate recipe can")
    if catalogue.find_entry(name).kind == "model":
        raise ArgumentError(f"{name} is a model, not data; start from it with --from {name}")
    choices = f"give {' or '.join(available)}, or files of your own" if available else "give files of your own"
    raise ArgumentError(f"the {request.recipe} recipe cannot read {name} of the catalogue; {choices}")


def require_files(request: TrainingRequest) -> str:
    """Return the path of the user's own files, or the name of a Hugging Face dataset."""
    assert request.data is not None
    path = request.data
    if path.startswith(HUB_PREFIX) or Path(path).exists():
        return path
    names = [entry.name for entry in catalogue.list_entries() if entry.kind == "data"]
    near = difflib.get_close_matches(path.lower(), names, 1)
    hint = f"did you mean {near[0]}, of the catalogue?" if near else "give a file, a folder or a name of the catalogue"
    raise DataError(f"{path[:200]} does not exist; {hint}")
