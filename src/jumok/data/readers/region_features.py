"""Read the features of image regions, such as those of a detector, from .safetensors, .npz and .npy files.

Files are not trusted: nothing is unpickled, and the size that a header states is compared with the size of the file
before memory is allocated.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from jumok.data.readers.file_format import UTF_8, FileFormat
from jumok.data.readers.labelled_files import CAPTION_TABLES, find_table
from jumok.data.readers.lines import ProblemLog, close_after
from jumok.data.readers.table_header import Column
from jumok.data.readers.tables import read_rows
from jumok.errors import DataError

Regions = Float[Tensor, "region feature"]

EXTENSIONS = (".safetensors", ".npz", ".npy")
MAX_BYTES = 2**33  # of all features of a data set, which are kept in memory
MAX_HEADER = 10_000  # characters that a .npy header may have
FLOAT_TYPES = ("float16", "float32", "float64")


def is_region_file(path: Path) -> bool:
    """Return whether a path has the ending of a file with region features."""
    return path.suffix.lower() in EXTENSIONS


def list_region_files(folder: Path) -> list[Path]:
    """Return the files with region features in a folder, sorted by name."""
    return sorted(path for path in folder.iterdir() if is_region_file(path) and path.is_file())


def read_region_file(path: Path) -> Iterator[tuple[str, Regions]]:
    """Yield the name and the features of every image in a file, as float32.

    A .safetensors or .npz file holds an array [region, feature] for each image, and a .npy file that of one image,
    which has the name of the file without its ending.
    """
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"{path} has {path.stat().st_size:,} bytes; the limit is {MAX_BYTES:,}")
    readers = {".safetensors": _read_safetensors, ".npz": _read_npz, ".npy": _read_npy}
    for name, tensor in readers[path.suffix.lower()](path):
        location = f"{path}, {name!r}"
        if tensor.dim() != 2 or not tensor.is_floating_point() or not tensor.numel():
            raise DataError(
                f"{location}: the features must be floating-point numbers [region, feature], not "
                f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            )
        features = tensor.to(torch.float32)
        if not bool(torch.isfinite(features).all()):
            raise DataError(f"{location}: the features contain NaN or an infinity")
        yield name, features


def read_captioned_regions(
    folder: Path,
    problems: ProblemLog | None = None,
    file: str | None = None,
    caption: str | None = None,
    file_format: FileFormat = UTF_8,
) -> list[tuple[Regions, str]]:
    """Return (features, caption) for every row of a folder's table of captions.

    The folder holds files with region features, and a table captions.tsv, .csv or .jsonl (or metadata.*) with the name
    of the image and its caption. An image may have several captions. A name may have another ending in the table, such
    as cat.jpg for the array cat.
    """
    log = problems or ProblemLog()
    table = find_table(folder, CAPTION_TABLES)
    if table is None:
        raise DataError(
            f"{folder} has features of image regions but no table of captions; add captions.tsv with the columns image "
            "and caption"
        )
    features = _read_all_features(folder)
    examples: list[tuple[Regions, str]] = []
    columns = [Column("file", file), Column("caption", caption)]
    with close_after(read_rows(table, columns, log, file_format)) as rows:
        for number, (name, text) in rows:
            matrix = features.get(name, features.get(Path(name).stem))
            if matrix is None:
                log.report(f"{table}:{number}", f"there are no features of {name!r} in {folder}")
            else:
                examples.append((matrix, text.strip()))
    if not examples:
        raise DataError(f"{folder} contains no region features with captions ({log})")
    return examples


def _read_all_features(folder: Path) -> dict[str, Regions]:
    """Return the features of all files in a folder by the name of the image."""
    features: dict[str, Regions] = {}
    shape: list[int] | None = None
    total = 0
    for path in list_region_files(folder):
        for name, matrix in read_region_file(path):
            if name in features:
                raise DataError(f"{path}: the image {name!r} has features in another file, too; remove one of them")
            shape = shape or list(matrix.shape)
            if list(matrix.shape) != shape:
                raise DataError(
                    f"{path}, {name!r}: the features are {list(matrix.shape)}, but those of the first image {shape}; "
                    "all images need the same number of regions and features"
                )
            total += matrix.numel() * matrix.element_size()
            if total > MAX_BYTES:
                raise DataError(f"the features in {folder} take more than {MAX_BYTES:,} bytes; train on a part of them")
            features[name] = matrix
    return features


def _read_safetensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(str(path), framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  # it is not a dict
                yield name, file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} cannot be read: {str(error)[:200]}") from None


def _read_npy(path: Path) -> Iterator[tuple[str, Tensor]]:
    with path.open("rb") as file:
        yield path.stem, _read_array(file, path.stat().st_size, str(path))


def _read_npz(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            # compressed entries may be much larger than the file
            if sum(entry.file_size for entry in entries) > MAX_BYTES:
                raise DataError(f"the arrays of {path} have more than {MAX_BYTES:,} bytes")
            for entry in entries:
                with archive.open(entry) as file:
                    content = cast(io.BufferedIOBase, file)
                    yield entry.filename.removesuffix(".npy"), _read_array(content, entry.file_size, str(path))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise DataError(f"{path} is not a readable .npz file: {str(error)[:200]}") from None


def _read_array(file: io.BufferedIOBase, size: int, location: str) -> Tensor:
    """Read a .npy array of floating-point numbers; the header must agree with the size in bytes."""
    try:
        headers = {(1, 0): numpy.lib.format.read_array_header_1_0, (2, 0): numpy.lib.format.read_array_header_2_0}
        read_header = headers[numpy.lib.format.read_magic(file)]
        shape, is_fortran, dtype = read_header(file, max_header_size=MAX_HEADER)
    except Exception as error:  # the header is parsed as Python and may raise anything
        raise DataError(f"{location} has a damaged array: {str(error)[:200]}") from None
    if dtype.hasobject:
        raise DataError(f"{location} holds pickled objects, which are not read; save arrays of numbers")
    if dtype.name not in FLOAT_TYPES:
        raise DataError(f"{location}: the features must be floating-point numbers, not {dtype.name[:40]}")
    length = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or length > size:
        raise DataError(f"{location} has {size:,} bytes for an array of {length:,}; it is damaged or incomplete")
    content = file.read(length)
    if len(content) != length:
        raise DataError(f"{location} ends inside an array; it is incomplete")
    array = numpy.frombuffer(content, dtype).reshape(shape, order="F" if is_fortran else "C")
    return torch.from_numpy(array.astype(dtype.newbyteorder("="), order="C"))
