"""Build package archives and a catalogue entry for tests."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile

from jumok.data.catalogue import Archive, Entry, FileSet

POEM = "주목\nattention is all you need\n".encode() * 3
LICENCE = b"do what you like\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def build_wheel(**extra: bytes) -> bytes:
    """Return a wheel with a poem, a licence and two pages."""
    files = {
        "sample/poem.txt": POEM,
        "sample/pages/one.txt": b"1",
        "sample/pages/two.txt": b"22",
        "sample-1.0.dist-info/LICENSE": LICENCE,
        "sample-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n",
        "sample-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "sample-1.0.dist-info/RECORD": b"",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in {**files, **extra}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def build_tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


# computed here, not by the code under test
PAGES = sha256(f"pages/one.txt\0{sha256(b'1')}\npages/two.txt\0{sha256(b'22')}\n".encode())
FILE_SETS = (
    FileSet("sample/poem.txt", "poem.txt", len(POEM), sha256(POEM)),
    FileSet("sample/pages/*.txt", "pages/*.txt", 3, PAGES, count=2),
    FileSet("sample-1.0.dist-info/LICENSE", "LICENSE", len(LICENCE), sha256(LICENCE)),
)


def build_entry(content: bytes, file_sets: tuple[FileSet, ...] = FILE_SETS) -> Entry:
    archive = Archive("pip", "sample", "1.0", len(content), sha256(content), file_sets)
    return Entry("sample", "data", "MIT", "a poem", "시 한 편", (archive,))
