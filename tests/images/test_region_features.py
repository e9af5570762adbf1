"""Region features: .safetensors, .npz and .npy files that are not trusted, and their table of captions."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import save_file

from jumok.data.readers import region_features
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.region_features import read_captioned_regions, read_region_file
from jumok.errors import DataError


def write_array(path: Path, array: Any, **options: Any) -> Path:
    with path.open("wb") as file:
        numpy.lib.format.write_array(file, numpy.asarray(array), **options)
    return path


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_formats_give_the_same_numbers(dtype: str, tmp_path: Path) -> None:
    array = numpy.random.default_rng(1).normal(size=(3, 5)).astype(dtype)
    native = array.astype(array.dtype.newbyteorder("="))
    numpy.savez(tmp_path / "a.npz", cat=array)
    numpy.savez_compressed(tmp_path / "b.npz", cat=numpy.asfortranarray(array))
    save_file({"cat": torch.from_numpy(native)}, tmp_path / "c.safetensors")
    write_array(tmp_path / "cat.npy", array, version=(2, 0))
    expected = torch.from_numpy(native).float()
    for name in ("a.npz", "b.npz", "c.safetensors", "cat.npy"):
        ((image, features),) = read_region_file(tmp_path / name)
        assert image == "cat" and features.dtype == torch.float32 and torch.equal(features, expected), name


def write_pickled(path: Path) -> None:
    write_array(path, numpy.array([["a", None]], dtype=object), allow_pickle=True)


def write_huge(path: Path) -> None:
    """A header that claims far more numbers than the file has."""
    content = io.BytesIO()
    numpy.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6)})
    path.write_bytes(content.getvalue() + b"0000")


def write_truncated(path: Path) -> None:
    write_array(path, numpy.ones((3, 5)))
    path.write_bytes(path.read_bytes()[:-8])


def write_negative(path: Path) -> None:
    content = io.BytesIO()
    numpy.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": (-1, 4)})
    path.write_bytes(content.getvalue() + b"0" * 16)


HOSTILE = {
    "pickled": (write_pickled, "holds pickled objects, which are not read"),
    "huge": (write_huge, r"bytes for an array of 4,000,000,000,000"),
    "truncated": (write_truncated, "incomplete"),
    "negative": (write_negative, "damaged"),
    "integers": (lambda path: write_array(path, numpy.ones((3, 5), int)), "must be floating-point numbers, not int64"),
    "one axis": (lambda path: write_array(path, numpy.ones(5)), r"\[region, feature\], not float64\[5\]"),
    "empty": (lambda path: write_array(path, numpy.ones((0, 5))), r"not float64\[0, 5\]"),
    "nan": (lambda path: write_array(path, [[1.0, numpy.nan]]), "contain NaN or an infinity"),
    "infinity": (lambda path: write_array(path, [[1.0, numpy.inf]]), "contain NaN or an infinity"),
    "overflow": (lambda path: write_array(path, [[1.0, 1e300]]), "contain NaN or an infinity"),
    "header": (
        lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x20\x00{'descr': ((((((((((((("),
        "damaged array",
    ),
    "version": (lambda path: path.write_bytes(b"\x93NUMPY\x03\x00\x02\x00\x00\x00{}"), "damaged array"),
    "text": (lambda path: path.write_text("not an array"), "damaged array"),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("packed", [False, True])
def test_hostile_arrays_are_refused(case: str, packed: bool, tmp_path: Path) -> None:
    write, message = HOSTILE[case]
    path = tmp_path / "cat.npy"
    write(path)
    if packed:
        with zipfile.ZipFile(tmp_path / "all.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(path, "cat.npy")
        path = tmp_path / "all.npz"
    with pytest.raises(DataError, match=message):
        list(read_region_file(path))


def test_damaged_and_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bad.npz", "bad.safetensors"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 nothing")
        with pytest.raises(DataError, match=f"{name}.*read"):
            list(read_region_file(tmp_path / name))
    numpy.savez_compressed(tmp_path / "bits.npz", cat=numpy.random.default_rng(1).normal(size=(20, 30)))
    content = bytearray((tmp_path / "bits.npz").read_bytes())
    content[1000:1100] = b"?" * 100
    (tmp_path / "bits.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"bits\.npz"):
        list(read_region_file(tmp_path / "bits.npz"))
    numpy.savez_compressed(tmp_path / "zeros.npz", cat=numpy.zeros((100, 1000)))
    monkeypatch.setattr(region_features, "MAX_BYTES", 100_000)
    assert (tmp_path / "zeros.npz").stat().st_size < 10_000
    with pytest.raises(DataError, match="have more than 100,000 bytes"):
        list(read_region_file(tmp_path / "zeros.npz"))


def test_captions_are_joined_with_features_by_name(tmp_path: Path) -> None:
    cat, dog = torch.randn(3, 5), torch.randn(3, 5)
    save_file({"cat": cat}, tmp_path / "a.safetensors")
    numpy.savez(tmp_path / "b.npz", dog=dog.numpy())
    table = tmp_path / "captions.csv"
    table.write_text("image,caption\ncat.jpg,a cat\ndog,a dog\ncat.jpg,one cat\n", encoding="utf-8")
    examples = read_captioned_regions(tmp_path)
    assert [caption for _, caption in examples] == ["a cat", "a dog", "one cat"]
    assert torch.equal(examples[0][0], cat) and torch.equal(examples[1][0], dog) and examples[2][0] is examples[0][0]

    table.write_text("image,caption\nfox,a fox\ncat,a cat\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"captions\.csv:2: there are no features of 'fox'"):
        read_captioned_regions(tmp_path)
    log = ProblemLog(skip=True)
    assert len(read_captioned_regions(tmp_path, log)) == 1 and log.count == 1

    save_file({"cat": cat}, tmp_path / "c.safetensors")
    with pytest.raises(DataError, match=r"c\.safetensors: the image 'cat' has features in another file, too"):
        read_captioned_regions(tmp_path)
    save_file({"cow": torch.randn(4, 5)}, tmp_path / "c.safetensors")
    with pytest.raises(DataError, match=r"'cow': the features are \[4, 5\], but those of the first image \[3, 5\]"):
        read_captioned_regions(tmp_path)
    table.unlink()
    with pytest.raises(DataError, match=r"no table of captions; add captions\.tsv"):
        read_captioned_regions(tmp_path)
