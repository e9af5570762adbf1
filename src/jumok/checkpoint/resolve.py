"""Resolve a model name to a folder or file.

A name is a path, a training run, a model that comes with the package, a catalogue name, or the hub name of a model in
the local Hugging Face cache; nothing is downloaded. That cache is models--owner--name/refs/main, a file with the
commit, and snapshots/<commit>/, the files of that commit as links into ../../blobs.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

from jumok.defaults import INCLUDED_MODELS, LOADABLE_MODELS
from jumok.errors import CheckpointError, describe_type

from . import run_folder

HUB_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
REVISION = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")


def resolve_model_path(name: str | Path) -> Path:
    """Return the model folder or .gguf file for a name."""
    if not isinstance(name, str | Path) or not str(name).strip():
        received = repr(name) if isinstance(name, str | Path) else describe_type(name)
        names = ", ".join((*INCLUDED_MODELS, *LOADABLE_MODELS))
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
    if str(name) in INCLUDED_MODELS:
        return Path(__file__).with_name(str(name))
    return _find_by_name(str(name))


def _find_by_name(name: str) -> Path:
    from jumok.data import catalogue  # only names need it, not paths

    entries = {entry.name: entry for entry in catalogue.list_entries()}
    if name in LOADABLE_MODELS:
        folder = catalogue.get_cache_folder() / name
        damage = catalogue.find_damage(name, verify=False)
        if damage is not None and folder.is_dir():
            raise CheckpointError(f"{damage}; download it again with: jumok data get {name}")
        if damage is not None:
            megabytes = entries[name].download_size / 1e6
            raise CheckpointError(
                f"{name} is not on this machine yet; download its {megabytes:.0f} MB with: jumok data get {name}"
            )
        from .conversion import find_converted_folder, needs_conversion

        if needs_conversion(folder):
            return find_converted_folder(folder)
        return next(iter(sorted(folder.glob("*.gguf"))), folder)
    if name in entries:
        raise CheckpointError(
            f"{name} is in the catalogue, but is not a model that jumok can load; choose one of "
            f"{', '.join(LOADABLE_MODELS)}"
        )

    snapshot = find_snapshot(name)
    if snapshot is not None:
        return snapshot
    raise CheckpointError(
        f"there is no folder or .gguf file {name!r}, and the catalogue has no such model "
        f"({', '.join(sorted(LOADABLE_MODELS))}); {', '.join(INCLUDED_MODELS)} come with the package"
    )


def find_snapshot(name: str) -> Path | None:
    """Return the folder of owner/name or owner/name@revision in the cache; None if this cannot be a hub name."""
    name, at, revision = name.partition("@")
    if not HUB_NAME.fullmatch(name) or "--" in name or ".." in name:
        return None
    revision = revision if at else "main"
    if not REVISION.fullmatch(revision) or ".." in revision:
        raise CheckpointError(f"{revision[:80]!r} is not a valid revision; give a branch, a tag or a commit")

    repository = locate_hub_cache() / ("models--" + name.replace("/", "--"))
    if not repository.is_dir():
        if "/" not in name:  # without a slash it is more likely a mistyped folder or catalogue name
            return None
        raise CheckpointError(
            f"there is no folder {name}, and the local Hugging Face cache has no such model; if it is on the Hub, "
            f"{_suggest_download(name)}"
        )
    commit = revision if COMMIT.fullmatch(revision) else _read_commit(repository, name, revision)
    snapshot = repository / "snapshots" / commit
    if not snapshot.is_dir():
        raise CheckpointError(
            f"the cache does not have revision {revision} of {name}; {_suggest_download(name, revision)}"
        )
    if snapshot.resolve() != repository.resolve() / "snapshots" / commit:
        raise CheckpointError(f"{name} in the cache is a symlink that points outside the cache; it is not read")
    return snapshot


def _read_commit(repository: Path, name: str, revision: str) -> str:
    """Return the commit that a branch or tag pointed to when it was last downloaded."""
    reference = repository / "refs" / revision
    if not reference.resolve().is_relative_to(repository.resolve() / "refs"):
        raise CheckpointError(f"revision {revision} of {name} in the cache is a symlink that points outside the cache")
    if not reference.is_file():
        raise CheckpointError(
            f"the cache does not have revision {revision} of {name}; {_suggest_download(name, revision)}"
        )
    with reference.open("rb") as file:
        commit = file.read(100).decode("utf-8", "replace").strip()
    if not COMMIT.fullmatch(commit):
        raise CheckpointError(
            f"refs/{revision} of {name} in the cache does not hold a commit; {_suggest_download(name, revision)}"
        )
    return commit


def _suggest_download(name: str, revision: str = "main") -> str:
    option = "" if revision == "main" else f" --revision {revision}"
    install = "" if find_spec("huggingface_hub") else ' (pip install "jumok[hub]" provides that command)'
    return f"get it with: hf download {name}{option}{install}"


def locate_hub_cache() -> Path:
    """Return the cache folder, found by the same environment variables that huggingface_hub reads."""
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    folder = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return Path(os.path.expandvars(os.path.expanduser(folder)))
