"""Resolve a model name to a folder or file.

A name is a path, a training run, a model that comes with the package, a catalogue name, or the hub name of a model in
the local Hugging Face cache.
"""

from __future__ import annotations

from pathlib import Path

from jumok.defaults import INCLUDED_MODELS as INCLUDED
from jumok.defaults import LOADABLE_MODELS as LOADABLE
from jumok.errors import CheckpointError, describe_type

from . import hub_cache, run_folder


def resolve_model_path(name: str | Path) -> Path:
    """Return the model folder or .gguf file for a name."""
    if not isinstance(name, str | Path) or not str(name).strip():
        received = repr(name) if isinstance(name, str | Path) else describe_type(name)
        names = ", ".join((*INCLUDED, *LOADABLE))
        raise CheckpointError(f"give a folder, a .gguf file or a name ({names}), not {received}")
    path = Path(name)
    if path.is_dir() and run_folder.is_run(path):
        return run_folder.select_checkpoint(path)
    problem = run_folder.describe_missing_record(path)
    if problem is not None:
        raise CheckpointError(f"{problem}, or load one by its path: {run_folder.list_checkpoints(path)[0][1]}")
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.exists():
        raise CheckpointError(f"{path} is neither a model folder nor a .gguf file")
    if str(name) in INCLUDED:
        return Path(__file__).with_name(str(name))
    return _find_by_name(str(name))


def _find_by_name(name: str) -> Path:
    from jumok.data import catalogue  # only names need it, not paths

    entries = {entry.name: entry for entry in catalogue.list_entries()}
    if name in LOADABLE:
        folder = catalogue.get_cache_folder() / name
        damage = catalogue.find_damage(name, verify=False)
        if damage is not None and folder.is_dir():
            raise CheckpointError(f"{damage}; download it again with: jumok data get {name}")
        if damage is not None:
            megabytes = entries[name].download_size / 1e6
            raise CheckpointError(
                f"{name} is not on this machine yet; download its {megabytes:.0f} MB with: jumok data get {name}"
            )
        if any(folder.glob("*.pt")):  # OpenAI's files: converted once
            from .openai_whisper.convert import find_converted_folder

            return find_converted_folder(folder)
        return next(iter(sorted(folder.glob("*.gguf"))), folder)
    if name in entries:
        raise CheckpointError(
            f"{name} is in the catalogue, but is not a model that jumok can load; choose one of {', '.join(LOADABLE)}"
        )

    snapshot = hub_cache.find_snapshot(name)
    if snapshot is not None:
        return snapshot
    raise CheckpointError(
        f"there is no folder or .gguf file {name!r}, and the catalogue has no such model "
        f"({', '.join(sorted(LOADABLE))}); {' and '.join(INCLUDED)} come with the package"
    )
