"""Read the files of an untrusted model folder.

No code in it is executed, no file outside it is read, and every stated size is checked. Pickled files are read only on
request, and then nothing but tensors and numbers (``weights_only``).
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from jumok.errors import ArgumentError, CheckpointError, describe_type
from jumok.files import read_limited

MAX_JSON_BYTES = 8 * 2**20
MAX_HEADER_BYTES = 32 * 2**20
MAX_HEADER_CONTAINERS = 1_000_000  # lists and objects in a header; a tensor has three
MAX_TENSOR_BYTES = 256 * 2**20
MAX_SHARDS = 1000
PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
INDEX_FILE = "model.safetensors.index.json"
DTYPE_SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1,
    "F8_E5M2": 1,
}  # fmt: skip


def check_path_encoding(path: str | Path) -> None:
    """Raise an error if a path is not UTF-8: neither run.json nor the safetensors library can hold such a name."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise CheckpointError(
            f"the path {str(path)[:200]!r} is not UTF-8; rename the folder or the file, for example to plain letters"
        ) from None


def safe_join(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder."""
    if not name or name != os.path.basename(name) or name in (".", "..") or "\0" in name or "\\" in name:
        raise CheckpointError(f"{folder.name}: the file name {name[:80]!r} is not a plain name inside the folder")
    path = folder / name
    try:
        target = path.resolve()
    except (OSError, RuntimeError):  # a circular symlink; Python 3.11 and 3.12 raise RuntimeError
        raise CheckpointError(f"{path.name} in {folder.name} is a circular symlink") from None
    if not any(target.is_relative_to(root) for root in _find_roots(folder)):
        raise CheckpointError(
            f"{path.name} in {folder.name} is a symlink that points outside the folder; it is not read"
        )
    if path.is_symlink() and not path.exists():
        raise CheckpointError(f"{path.name} in {folder.name} is a symlink to a missing file; download it again")
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path.name} in {folder.name} is not a file")
    return path


def _find_roots(folder: Path) -> tuple[Path, ...]:
    """Return the folders that files may be in: the folder itself and, for a snapshot in a Hugging Face cache (whose
    files are symlinks), the blobs folder of the same repository."""
    resolved = folder.resolve()
    repository = resolved.parent.parent
    cached = resolved.parent.name == "snapshots" and repository.name.startswith("models--")
    return (resolved, repository / "blobs") if cached else (resolved,)


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Return a JSON object from a file."""
    path = safe_join(folder, name)
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {name}; is it a model folder?")
    try:
        content = json.loads(read_limited(path, MAX_JSON_BYTES))
    except ArgumentError as error:  # too large
        raise CheckpointError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} in {folder.name} is not JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{name} in {folder.name} must hold a JSON object, not {describe_type(content)}")
    return content


class TensorFiles:
    """The tensors of a folder: model.safetensors, or the shards that model.safetensors.index.json lists."""

    def __init__(self, folder: Path) -> None:
        check_path_encoding(folder)
        self.folder = folder
        self._open: dict[Path, safe_open] = {}
        single = safe_join(folder, "model.safetensors")
        if single.is_file():
            self._files = dict.fromkeys(check_header(single), single)
        elif safe_join(folder, INDEX_FILE).is_file():
            self._files = self._read_index()
        else:
            names = [path.name for path in list_pickled_files(folder)]
            pickled = f" (pickled files such as {names[0]} are read only with pickled=True)" if names else ""
            raise CheckpointError(f"{folder} has no model.safetensors and no {INDEX_FILE}{pickled}")

    def _read_index(self) -> dict[str, Path]:
        """Return the file of each tensor."""
        weight_map = read_json(self.folder, INDEX_FILE).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
            raise CheckpointError(f"the index in {self.folder.name} has no weight_map that maps tensor names to files")
        shards = sorted(set(weight_map.values()))
        if len(shards) > MAX_SHARDS:
            raise CheckpointError(
                f"the index in {self.folder.name} lists {len(shards)} files; the limit is {MAX_SHARDS}"
            )
        stored: dict[str, Path] = {}
        for shard in shards:
            if not shard.endswith(".safetensors"):
                raise CheckpointError(
                    f"the index in {self.folder.name} names {shard[:80]!r}, which is not a safetensors file"
                )
            path = safe_join(self.folder, shard)
            if not path.is_file():
                raise CheckpointError(f"{self.folder.name} has no file {shard[:80]}, which its index names")
            stored.update(dict.fromkeys(check_header(path), path))
        for name, shard in weight_map.items():
            if name not in stored or stored[name].name != shard:
                raise CheckpointError(
                    f"the index in {self.folder.name} lists {name[:80]!r} in {shard[:80]}, but that file does not "
                    "contain it"
                )
        return {name: stored[name] for name in weight_map}

    @property
    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self._files)

    @property
    def paths(self) -> list[Path]:
        """The files that hold the tensors."""
        return list(dict.fromkeys(self._files.values()))

    def read(self, name: str) -> Tensor:
        """Return a tensor."""
        path = self._files[name]
        try:
            if path not in self._open:
                self._open[path] = safe_open(str(path), framework="pt")
            tensor: Tensor = self._open[path].get_tensor(name)  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path.name} cannot be read: {str(error)[:200]}") from None
        return tensor


def check_header(path: Path) -> list[str]:
    """Return the names in a safetensors file, after checking that its header describes the bytes that follow."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little") if size >= 8 else size
        if length > min(size - 8, MAX_HEADER_BYTES):
            raise CheckpointError(f"{path.name} claims a header of {length:,} bytes, but the file has {size:,}")
        text = file.read(length)
        if text.count(b"[") + text.count(b"{") > MAX_HEADER_CONTAINERS:  # empty lists need 20 times their length
            raise CheckpointError(
                f"the header of {path.name} has more than {MAX_HEADER_CONTAINERS:,} lists; is it damaged?"
            )
        try:
            header = json.loads(text)
        except (ValueError, RecursionError):
            raise CheckpointError(f"the header of {path.name} is not JSON; the file is damaged") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"the header of {path.name} is not a JSON object; the file is damaged")
    header.pop("__metadata__", None)
    end = 0
    for start, stop, name in sorted(_read_span(path, name, entry) for name, entry in header.items()):
        if start != end:
            raise CheckpointError(f"{path.name}: {name[:80]!r} does not begin where the tensor before it ends")
        end = stop
    if end != size - 8 - length:
        raise CheckpointError(f"{path.name} should contain {end:,} bytes of tensors but contains {size - 8 - length:,}")
    return list(header)


def _read_span(path: Path, name: str, entry: object) -> tuple[int, int, str]:
    """Return the start and end offset of a tensor, and its name."""
    try:
        dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]  # type: ignore[index]
        numbers = [*shape, start, stop]
        if dtype not in DTYPE_SIZES or not all(isinstance(number, int) and 0 <= number < 2**62 for number in numbers):
            raise ValueError
        if len(shape) > 8 or math.prod(shape) * DTYPE_SIZES[dtype] != stop - start:
            raise ValueError
    except (TypeError, KeyError, ValueError):
        raise CheckpointError(
            f"{path.name} has an invalid header entry for the tensor {name[:80]!r}: {str(entry)[:120]}"
        ) from None
    return start, stop, name


def read_tensor(path: Path) -> Tensor:
    """Return the only tensor of a .safetensors file."""
    if not path.is_file() or path.suffix != ".safetensors":
        raise CheckpointError(f"there is no .safetensors file {str(path)[:200]!r}")
    check_path_encoding(path)
    if path.stat().st_size > MAX_TENSOR_BYTES:
        raise CheckpointError(f"{path} has {path.stat().st_size:,} bytes; the limit is {MAX_TENSOR_BYTES:,}")
    names = check_header(path)
    if len(names) != 1:
        raise CheckpointError(f"{path} holds {len(names):,} tensors; give a file with one")
    try:
        with safe_open(str(path), framework="pt") as file:
            tensor: Tensor = file.get_tensor(names[0])
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {str(error)[:200]}") from None
    return tensor


def list_pickled_files(folder: Path) -> list[Path]:
    """Return the files of a folder that torch.save may have written, sorted by name."""
    return sorted(path for path in folder.glob("*") if path.suffix in PICKLED_SUFFIXES)


def read_pickled_file(path: Path) -> Any:
    """Return the content of a file that torch.save wrote: nothing but tensors, numbers, strings and containers."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # an untrusted pickle may raise anything
        raise CheckpointError(f"{path.name} cannot be read as tensors: {str(error)[:200]}") from None


def read_pickled_tensors(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of pytorch_model.bin, or of the folder's only pickled file."""
    files = list_pickled_files(folder)
    files = [path for path in files if path.name == "pytorch_model.bin"] or files
    if len(files) != 1:
        raise CheckpointError(f"{folder} has {len(files)} pickled files; exactly one can be read")
    path = safe_join(folder, files[0].name)
    tensors = read_pickled_file(path)
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise CheckpointError(f"{path.name} contains objects other than named tensors; it was not loaded")
    return tensors
