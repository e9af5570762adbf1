"""Reading a model folder. It is hostile until proven otherwise: nothing in it is run or unpickled, nothing outside it
is read, and nothing is believed about its size."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from jumok.errors import CheckpointError

LARGEST_JSON = 8 * 2**20
LARGEST_HEADER = 32 * 2**20
LARGEST_TENSOR = 256 * 2**20
MOST_SHARDS = 1000
SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1,
    "F8_E5M2": 1,
}  # fmt: skip


def safe_join(folder: Path, name: str) -> Path:
    """The file of that base name in the folder; refused where it leads outside."""
    if not name or name != os.path.basename(name) or name in (".", "..") or "\0" in name or "\\" in name:
        raise CheckpointError(f"{folder.name}: the file name {name[:80]!r} is not a plain name inside the folder")
    path = folder / name
    try:
        target = path.resolve()
    except (OSError, RuntimeError):  # a link to itself; the second is what Python 3.11 and 3.12 raise
        raise CheckpointError(f"{path.name} in {folder.name} is a link in a circle") from None
    if not any(target.is_relative_to(root) for root in _roots(folder)):
        raise CheckpointError(f"{path.name} in {folder.name} is a link that leads outside the folder; it is not read")
    if path.is_symlink() and not path.exists():
        raise CheckpointError(f"{path.name} in {folder.name} is a link to a file that is not there; get it again")
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path.name} in {folder.name} is not a file")
    return path


def _roots(folder: Path) -> tuple[Path, ...]:
    """Where files may lie: in the folder, and for one of a Hugging Face cache, whose files are links, in the blobs of
    the same repository."""
    resolved = folder.resolve()
    repository = resolved.parent.parent
    cached = resolved.parent.name == "snapshots" and repository.name.startswith("models--")
    return (resolved, repository / "blobs") if cached else (resolved,)


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object from the folder, of a sensible size."""
    path = safe_join(folder, name)
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {name}; is it a model folder?")
    if path.stat().st_size > LARGEST_JSON:
        raise CheckpointError(f"{name} in {folder.name} is {path.stat().st_size:,} bytes; no real one is so large")
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as wrong:
        raise CheckpointError(f"{name} in {folder.name} is not JSON: {str(wrong)[:200]}") from None
    if not isinstance(told, dict):
        raise CheckpointError(f"{name} in {folder.name} must hold a JSON object, not a {type(told).__name__}")
    return told


class TensorFiles:
    """The tensors of a folder: model.safetensors, or the shards that model.safetensors.index.json lists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._where: dict[str, Path] = {}
        self._open: dict[Path, Any] = {}
        single = safe_join(folder, "model.safetensors")
        if single.is_file():
            self._where = dict.fromkeys(check_header(single), single)
        elif safe_join(folder, "model.safetensors.index.json").is_file():
            self._read_index()
        else:
            raise CheckpointError(
                f"{folder} has no model.safetensors and no model.safetensors.index.json{_pickled(folder)}"
            )

    def _read_index(self) -> None:
        listed = read_json(self.folder, "model.safetensors.index.json").get("weight_map")
        if not isinstance(listed, dict) or not all(isinstance(one, str) for one in listed.values()):
            raise CheckpointError(f"the index in {self.folder.name} has no weight_map of names and files")
        shards = sorted(set(listed.values()))
        if len(shards) > MOST_SHARDS:
            raise CheckpointError(
                f"the index in {self.folder.name} lists {len(shards)} files; at most {MOST_SHARDS} are read"
            )
        held: dict[str, Path] = {}
        for shard in shards:
            if not shard.endswith(".safetensors"):
                raise CheckpointError(
                    f"the index in {self.folder.name} names {shard[:80]!r}, which is no safetensors file"
                )
            path = safe_join(self.folder, shard)
            if not path.is_file():
                raise CheckpointError(f"{self.folder.name} has no file {shard}, which its index names")
            held.update(dict.fromkeys(check_header(path), path))
        for name, shard in listed.items():
            if name not in held or held[name].name != shard:
                raise CheckpointError(f"the index in {self.folder.name} puts {name!r} into {shard}, where it is not")
        self._where = {name: held[name] for name in listed}

    @property
    def names(self) -> list[str]:
        return list(self._where)

    def read(self, name: str) -> Tensor:
        path = self._where[name]
        if path not in self._open:
            try:
                self._open[path] = safe_open(str(path), framework="pt")
            except (SafetensorError, OSError) as wrong:
                raise CheckpointError(f"{path.name} cannot be read: {wrong}") from None
        tensor: Tensor = self._open[path].get_tensor(name)
        return tensor


def _pickled(folder: Path) -> str:
    old = [one.name for one in folder.glob("*") if one.suffix in (".bin", ".pt", ".pth", ".ckpt")]
    return f" (pickled files such as {old[0]} are read only with pickled=True)" if old else ""


def check_header(path: Path) -> list[str]:
    """The names in a safetensors file, once its header has been found to describe exactly the bytes that follow."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little") if size >= 8 else size
        if length > min(size - 8, LARGEST_HEADER):
            raise CheckpointError(f"{path.name} says that its header has {length:,} bytes, but the file has {size:,}")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise CheckpointError(f"the header of {path.name} is not JSON; the file is damaged") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"the header of {path.name} is not a JSON object; the file is damaged")
    header.pop("__metadata__", None)
    spans = sorted(_span(path, name, told) for name, told in header.items())
    end = 0
    for start, stop, name in spans:
        if start != end:
            raise CheckpointError(f"{path.name}: {name!r} does not begin where the tensor before it ends")
        end = stop
    if end != size - 8 - length:
        raise CheckpointError(f"{path.name} should hold {end:,} bytes of tensors and holds {size - 8 - length:,}")
    return list(header)


def _span(path: Path, name: str, told: object) -> tuple[int, int, str]:
    try:
        kind, shape, (start, stop) = told["dtype"], told["shape"], told["data_offsets"]  # type: ignore[index]
        numbers = [*shape, start, stop]
        if kind not in SIZES or not all(isinstance(one, int) and 0 <= one < 2**62 for one in numbers):
            raise ValueError
        if len(shape) > 8 or math.prod(shape) * SIZES[kind] != stop - start:
            raise ValueError
    except (TypeError, KeyError, ValueError):
        raise CheckpointError(f"{path.name} describes the tensor {name[:80]!r} wrongly: {str(told)[:120]}") from None
    return start, stop, name


def read_tensor(path: Path) -> Tensor:
    """The one tensor of a .safetensors file."""
    if not path.is_file() or path.suffix != ".safetensors":
        raise CheckpointError(f"there is no .safetensors file {str(path)[:200]!r}")
    if path.stat().st_size > LARGEST_TENSOR:
        raise CheckpointError(f"{path} has {path.stat().st_size:,} bytes; up to {LARGEST_TENSOR:,} are read")
    names = check_header(path)
    if len(names) != 1:
        raise CheckpointError(f"{path} holds {len(names):,} tensors; give a file with one")
    try:
        with safe_open(str(path), framework="pt") as file:
            tensor: Tensor = file.get_tensor(names[0])
    except (SafetensorError, OSError) as wrong:
        raise CheckpointError(f"{path} cannot be read: {wrong}") from None
    return tensor


def read_pickled_tensors(folder: Path) -> dict[str, Tensor]:
    """pytorch_model.bin or *.pt, tensors alone (weights_only). Only where the caller asked for it."""
    found = sorted(one for one in folder.glob("*") if one.suffix in (".bin", ".pt", ".pth"))
    if len(found) != 1:
        raise CheckpointError(f"{folder} has {len(found)} pickled files; exactly one can be read")
    path = safe_join(folder, found[0].name)
    try:
        told = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as wrong:  # whatever an untrusted pickle raises
        raise CheckpointError(f"{path.name} cannot be read as tensors alone: {str(wrong)[:200]}") from None
    if not isinstance(told, dict) or not all(isinstance(one, Tensor) for one in told.values()):
        raise CheckpointError(f"{path.name} holds more than named tensors; it is not read")
    return told
