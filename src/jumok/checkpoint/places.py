"""Which folder or file a name means: a path, a name of the catalogue, or a hub name in the local cache."""

from __future__ import annotations

from pathlib import Path

from .errors import CheckpointError

LOADABLE = ("smollm2", "minilm")  # the models of the catalogue that a family here can hold


def resolve(name: str | Path) -> Path:
    path = Path(name)
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.exists():
        raise CheckpointError(f"{path} is neither a model folder nor a .gguf file")
    from jumok.data import catalogue  # only names need it, not paths

    known = {entry.name: entry for entry in catalogue.entries() if entry.name in LOADABLE}
    if str(name) in known:
        found = catalogue.where(str(name))
        if found is None:
            size = known[str(name)].download / 1e6
            raise CheckpointError(
                f"{name} is not on this machine yet; get its {size:.0f} MB with: jumok data get {name}"
            )
        files = sorted(found.glob("*.gguf"))
        return files[0] if files else found
    if any(entry.name == str(name) for entry in catalogue.entries()):
        raise CheckpointError(f"{name} is no model that can be loaded here; {' and '.join(LOADABLE)} can")
    return _hub(str(name), sorted(known))


def _hub(name: str, known: list[str]) -> Path:
    """A hub name whose files are in Hugging Face's cache already; nothing is fetched."""
    if name.count("/") <= 1 and not name.startswith((".", "/", "~")):
        try:
            from huggingface_hub import snapshot_download
            from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
        except ImportError:
            pass
        else:
            try:
                return Path(snapshot_download(name, local_files_only=True))
            except (LocalEntryNotFoundError, HFValidationError):
                pass
    raise CheckpointError(
        f"there is no folder or .gguf file {name!r}, no such name in the catalogue ({', '.join(known)}), and no such "
        "model in Hugging Face's cache on this machine"
    )
