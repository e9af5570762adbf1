"""Find hub names (owner/name, owner/name@revision) in Hugging Face's cache on this machine; nothing is downloaded.

The cache is models--owner--name/refs/main, a file with the commit, and snapshots/<commit>/, the files of that commit as
links into ../../blobs. This module reads it without the huggingface_hub package.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

from jumok.errors import CheckpointError

NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
REVISION = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")


def locate_hub_cache() -> Path:
    """Return the cache folder, found by the same environment variables that huggingface_hub reads."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _expand_path(os.environ[variable])
    if os.environ.get("HF_HOME"):
        return _expand_path(os.environ["HF_HOME"]) / "hub"
    return _expand_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def _expand_path(path: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(path)))


def find_snapshot(name: str) -> Path | None:
    """Return the folder of a model in the cache; None if ``name`` cannot be a hub name.

    Args:
        name: owner/name or owner/name@revision, where a revision is a branch, a tag or a commit.
    """
    name, at, revision = name.partition("@")
    if not NAME.fullmatch(name) or "--" in name or ".." in name:
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
