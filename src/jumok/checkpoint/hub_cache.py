"""Hub names, owner/name or owner/name@revision, found in Hugging Face's cache on this machine; nothing is fetched.

The cache is models--owner--name/refs/main, a file with the commit, and snapshots/<commit>/, the files of that commit as
links into ../../blobs. It is read here, without the huggingface_hub package.
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
    """Where the cache is, by the variables that Hugging Face's own programs go by."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _path(os.environ[variable])
    if os.environ.get("HF_HOME"):
        return _path(os.environ["HF_HOME"]) / "hub"
    return _path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def _path(told: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(told)))


def find_snapshot(name: str) -> Path | None:
    """The folder of a model in the cache. None where ``name`` cannot be a hub name; refused where it is not there."""
    name, at, revision = name.partition("@")
    if not NAME.fullmatch(name) or "--" in name or ".." in name:
        return None
    revision = revision if at else "main"
    if not REVISION.fullmatch(revision) or ".." in revision:
        raise CheckpointError(f"{revision[:80]!r} is no revision; it would be a branch, a tag or a commit")
    repository = locate_hub_cache() / ("models--" + name.replace("/", "--"))
    if not repository.is_dir():
        if "/" not in name:  # more likely a folder or a catalogue's name that was mistyped
            return None
        raise CheckpointError(
            f"there is no folder {name}, and no such model in Hugging Face's cache on this machine; if the Hub has it, "
            f"{_advice(name)}"
        )
    commit = revision if COMMIT.fullmatch(revision) else _commit(repository, name, revision)
    snapshot = repository / "snapshots" / commit
    if not snapshot.is_dir():
        raise CheckpointError(f"of {name} the revision {revision} is not in the cache; {_advice(name, revision)}")
    if snapshot.resolve() != repository.resolve() / "snapshots" / commit:
        raise CheckpointError(f"in the cache {name} is a link that leads elsewhere; it is not read")
    return snapshot


def _commit(repository: Path, name: str, revision: str) -> str:
    """What a branch or a tag was when it was last fetched."""
    reference = repository / "refs" / revision
    if not reference.resolve().is_relative_to(repository.resolve() / "refs"):
        raise CheckpointError(f"in the cache the revision {revision} of {name} is a link that leads elsewhere")
    if not reference.is_file():
        raise CheckpointError(f"of {name} the revision {revision} is not in the cache; {_advice(name, revision)}")
    with reference.open("rb") as file:
        told = file.read(100).decode("utf-8", "replace").strip()
    if not COMMIT.fullmatch(told):
        raise CheckpointError(f"in the cache refs/{revision} of {name} holds no commit; {_advice(name, revision)}")
    return told


def _advice(name: str, revision: str = "main") -> str:
    chosen = "" if revision == "main" else f" --revision {revision}"
    installed = "" if find_spec("huggingface_hub") else ' (pip install "jumok[hub]" brings that command)'
    return f"get it with: hf download {name}{chosen}{installed}"
