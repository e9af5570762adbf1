"""Which folder or file a name means: a path, a training run, the model that comes with the package, a name of the
catalogue, a hub name that is cached."""

from __future__ import annotations

from pathlib import Path

from jumok.errors import CheckpointError

from . import hub_cache, run_folder

TINY = "tiny"  # two blocks on bytes, of the recipe induction; it lies beside this file
LOADABLE = ("smollm2", "minilm")  # the models of the catalogue that a family here can hold


def resolve_model_path(name: str | Path) -> Path:
    if not isinstance(name, str | Path) or not str(name).strip():
        raise CheckpointError(f"give a folder, a .gguf file or a name ({TINY}, {', '.join(LOADABLE)}), not {name!r}")
    path = Path(name)
    if path.is_dir() and run_folder.is_run(path):
        return run_folder.select_checkpoint(path)
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.exists():
        raise CheckpointError(f"{path} is neither a model folder nor a .gguf file")
    if str(name) == TINY:
        return Path(__file__).with_name(TINY)
    from jumok.data import catalogue  # only names need it, not paths

    known = {entry.name: entry for entry in catalogue.list_entries() if entry.name in LOADABLE}
    if str(name) in known:
        found = catalogue.locate_entry(str(name))
        if found is None:
            size = known[str(name)].download / 1e6
            raise CheckpointError(
                f"{name} is not on this machine yet; get its {size:.0f} MB with: jumok data get {name}"
            )
        files = sorted(found.glob("*.gguf"))
        return files[0] if files else found
    if any(entry.name == str(name) for entry in catalogue.list_entries()):
        raise CheckpointError(f"{name} is no model that can be loaded here; {' and '.join(LOADABLE)} can")
    cached = hub_cache.find_snapshot(str(name))
    if cached is not None:
        return cached
    there = ", ".join(sorted(known))
    raise CheckpointError(
        f"there is no folder or .gguf file {str(name)!r}, and no such name in the catalogue ({there}); "
        f"{TINY} comes with the package"
    )
