"""Read PDF files, which are not trusted, in a child process with limits."""

from __future__ import annotations

import io
import os
import zlib
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter

from jumok.retrieval import Passage
from jumok.retrieval.files import pdf_child
from jumok.retrieval.files.read_passages import read_passages
from jumok.retrieval.files.safe_folder import UnusableFileError


def write_pdf(pages: list[list[str]], compressed: bool = False) -> bytes:
    """Return a PDF file with some lines of text on each page, written by hand as the specification describes."""
    objects: list[bytes] = [b"", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    numbers = []
    for lines in pages:
        shown = "\n".join(f"({line}) Tj T*" for line in lines)
        content = f"BT /F1 12 Tf 14 TL 50 700 Td\n{shown}\nET".encode("latin-1")
        filter_name = b" /Filter /FlateDecode" if compressed else b""
        content = zlib.compress(content, 9) if compressed else content
        objects.append(b"<< /Length %d%s >>\nstream\n%s\nendstream" % (len(content), filter_name, content))
        numbers.append(len(objects) + 1)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R >>"
    kids = b" ".join(b"%d 0 R" % number for number in numbers)
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(numbers))

    file = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(file))
    return file + head + table + trailer


def read(tmp_path: Path, content: bytes) -> list[Passage]:
    path = tmp_path / "a.pdf"
    path.write_bytes(content)
    return list(read_passages(path, "a.pdf"))


def test_passages_name_their_pages(tmp_path: Path) -> None:
    first = ["The boat leaves at seven.", *["It sails over the sea."] * 20]
    passages = read(tmp_path, write_pdf([first, [], ["The last page is short."]], compressed=True))
    assert [(passage.unit, passage.first, passage.last) for passage in passages] == [("page", 1, 1), ("page", 1, 3)]
    assert passages[0].text.startswith("The boat leaves at seven. It sails over the sea.")
    assert passages[-1].text.endswith("The last page is short.") and passages[-1].location == "a.pdf:page 1"


def encrypt(content: bytes, password: str) -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(content)))
    writer.encrypt(password, algorithm="RC4-128")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def test_files_without_usable_text(tmp_path: Path) -> None:
    good = write_pdf([["Some text."]])
    for content, reason in {
        encrypt(good, "secret"): "an encrypted PDF",
        write_pdf([[]]): "a PDF without text, such as a scan",
        b"%PDF-1.4 nothing": "a damaged PDF",
        b"not a PDF at all": "a damaged PDF",
        b"": "a damaged PDF",
        os.urandom(5000): "a damaged PDF",
    }.items():
        with pytest.raises(UnusableFileError, match=f"^{reason}$"):
            read(tmp_path, content)
    assert [passage.text for passage in read(tmp_path, encrypt(good, ""))] == ["Some text."]  # needs no password


def test_damaged_bytes_end_with_a_reason_or_a_text(tmp_path: Path) -> None:
    good = write_pdf([["Some text."], ["More text."]], compressed=True)
    reasons = set()
    for position in range(100, len(good), 293):
        damaged = bytearray(good)
        damaged[position] ^= 0xFF
        for content in (bytes(damaged), good[:position]):
            try:
                assert read(tmp_path, content)
            except UnusableFileError as error:
                reasons.add(str(error))
    assert reasons <= {"a damaged PDF", "a PDF without text, such as a scan"}


def write_child(folder: Path, **limits: float) -> str:
    """Write the child program with other limits, and return its file."""
    source = Path(pdf_child.__file__).read_text()
    for name, limit in limits.items():
        line = next(line for line in source.splitlines() if line.startswith(f"{name} = "))
        source = source.replace(line, f"{name} = {limit}")
    path = folder / "child.py"
    path.write_text(source)
    return str(path)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"MAX_PAGES": 2}, "a PDF of more than 2 pages"),
        ({"MAX_CHARACTERS": 20}, "a PDF with too much text"),
        ({"MAX_PAGE_CHARACTERS": 5}, "a PDF with too much text"),
        ({"MAX_SECONDS": 0.001}, "a PDF that takes longer than 60 seconds"),
    ],
)
def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, float], reason: str) -> None:
    monkeypatch.setattr(pdf_child, "__file__", write_child(tmp_path, **limits))
    with pytest.raises(UnusableFileError, match=f"^{reason}$"):
        read(tmp_path, write_pdf([["Some text on a page."] * 50] * 3))


def test_a_small_file_that_expands_to_gigabytes(tmp_path: Path) -> None:
    """pypdf has limits of its own for compressed streams, and the process has one for its memory."""
    compressor = zlib.compressobj(9)
    block = b"(aaaaaaaa) Tj T*\n" * 60_000
    parts = [compressor.compress(block) for _ in range(300)]
    content = b"".join([*parts, compressor.flush()])
    plain = write_pdf([["x"]])
    stream = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(content), content)
    start, end = plain.index(b"<< /Length"), plain.index(b"endstream") + len(b"endstream")
    with pytest.raises(UnusableFileError, match="PDF"):
        read(tmp_path, plain[:start] + stream + plain[end:])
