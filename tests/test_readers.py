"""Readers: texts, pairs, labels and captions, held to other readers; what is wrong is named by file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polib
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fetched import CACHE, fetched
from jumok.data.batches import split
from jumok.data.datasets import image_galleries, text_corpora
from jumok.data.readers import documents, lines
from jumok.data.readers.captioned_images import read_captioned_images, read_image_folder
from jumok.data.readers.labelled_texts import read_labelled_texts
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_pairs import read_pairs
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError, JumokError

Read = Callable[[Path, ProblemLog], Iterator[Any]]
READERS: dict[str, Read] = {
    "documents": lambda path, problems: documents.read_documents(path, problems),
    "pairs": lambda path, problems: read_pairs(path, "source", "target", problems),
    "labels": lambda path, problems: read_labelled_texts(path, problems),
}


def write(path: Path, given: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(given if isinstance(given, bytes) else given.encode())
    return path


def numbered(path: Path, problems: ProblemLog | None = None) -> list[tuple[int, str]]:
    return list(lines.read_lines(path, problems or ProblemLog()))


# lines


@given(st.lists(st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]))), st.sampled_from("nrw"))
@example(["\ufeff", "a"], "n")
@example(["a\u2028b", "\x0b\x0c\x1c\x85"], "w")  # what str.splitlines takes for ends
def test_lines_are_those_that_were_written(
    tmp_path_factory: pytest.TempPathFactory, told: list[str], ends: str
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    end = {"n": "\n", "r": "\r", "w": "\r\n"}[ends]
    for mark, pack in ((b"\xef\xbb\xbf", bytes), (b"", gzip.compress)) if told else ():
        data = mark + end.join([*told, ""]).encode()
        if not mark and told[0].startswith("\ufeff"):
            continue
        packed = path.with_suffix(".txt.gz" if pack is gzip.compress else ".txt")
        packed.write_bytes(pack(data))
        assert numbered(packed) == list(enumerate(told, 1))


@pytest.mark.parametrize(
    ("data", "where", "what"),
    [
        (b"", ":1: ", "empty"),
        (b"fine\nfine\ncaf\xe9 noir\nfine\n", ":3: ", "character 4 is the byte E9"),
        (b"fine\n\xed\xa0\x80\n", ":2: ", "the byte ED"),  # a surrogate, in what only looks like UTF-8
        ("한국어\n".encode("utf-16"), ":1: ", "UTF-16"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ":1: ", "binary"),
        (b"a\n" * 5000 + b"b\0c\n", ":5001: ", "NUL"),
        (b"ok\n" + b"x" * (lines.LONGEST + 1) + b"\nok\n", ":2: ", "longer than 16,777,216 characters"),
    ],
)
def test_what_is_no_text_is_named_by_file_and_line(tmp_path: Path, data: bytes, where: str, what: str) -> None:
    path = write(tmp_path / "a.txt", data)
    with pytest.raises(DataError) as refused:
        numbered(path)
    assert f"{path}{where}" in str(refused.value) and what in str(refused.value)
    assert "--skip-bad" in str(refused.value)
    problems = ProblemLog(skip=True)
    left = numbered(path, problems)
    assert problems.count == 1 and what in problems.first[0] and what in str(problems)
    good = [line for line in data.split(b"\n")[:-1] if line in (b"fine", b"ok", b"a")]
    if "binary" not in what and "UTF-16" not in what:
        assert [line.encode() for _, line in left] == good
        bad = int(where.strip(": "))
        assert [number for number, _ in left] == [n for n in range(1, len(good) + 2) if n != bad][: len(good)]


def test_a_line_of_the_largest_length_is_read(tmp_path: Path) -> None:
    for end in (b"", b"\n", b"\r\n", b"\nmore\n"):
        path = write(tmp_path / "a.txt", b"x" * lines.LONGEST + end)
        assert len(numbered(path)[0][1]) == lines.LONGEST


def test_a_damaged_archive_is_one_problem(tmp_path: Path) -> None:
    whole = gzip.compress(b"some words\n" * 100_000)
    for name, data in (
        ("cut", whole[:-20]),
        ("no", b"not packed at all"),
        ("flipped", whole[:200] + b"!!" + whole[202:]),
    ):
        path = write(tmp_path / f"{name}.txt.gz", data)
        with pytest.raises(DataError, match="cannot be unpacked"):
            numbered(path)
        problems = ProblemLog(skip=True)
        numbered(path, problems)
        assert problems.count >= 1


def test_what_is_not_there_is_refused_even_when_skipping(tmp_path: Path) -> None:
    for path in (tmp_path / "none.txt", tmp_path / ("x" * 5000), tmp_path / "a\0b"):
        with pytest.raises(DataError):
            list(documents.read_documents(path, ProblemLog(skip=True)))
    with pytest.raises(DataError, match="no file was given"):
        list(documents.read_documents([]))


# texts


def test_folders_are_read_in_order_without_hidden_files(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "second\n")
    write(tmp_path / "a" / "z.md", "third, in a folder\n")
    write(tmp_path / "a.txt", "first\nof two lines\n")
    write(tmp_path / ".hidden", "never")
    write(tmp_path / ".git" / "x.txt", "never")
    write(tmp_path / "c.jsonl", '{"text": "fourth", "more": [1]}\n\n{"text": "다섯째"}\n')
    write(tmp_path / "d.csv", 'id,text\n1,"six, ""quoted""\non two lines"\n')
    write(tmp_path / "e.TSV", 'text\tid\nseven "as it is\t1\n')
    write(tmp_path / "f.jsonl.gz", gzip.compress(b'{"text": "eight"}\n'))
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert list(documents.read_documents(tmp_path)) == [
        "first\nof two lines\n",
        "second\n",
        "fourth",
        "다섯째",
        'six, "quoted"\non two lines',
        'seven "as it is',
        "eight",
        "third, in a folder\n",
    ]


def test_large_files_come_in_pieces_that_end_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "".join(f"line {number}\n" for number in range(1000))
    path = write(tmp_path / "a.txt", whole + "\n\n")
    monkeypatch.setattr(documents, "PIECE", 100)
    found = list(documents.read_pieces([path, path]))
    assert "".join(piece.text for piece in found) == 2 * (whole + "\n\n")
    assert all(piece.text.endswith("\n") and len(piece.text) < 130 for piece in found)
    assert [piece.ends_document for piece in found].count(True) == 2 and found[-1].ends_document
    blank = write(tmp_path / "blank.txt", "x" * 120 + "\n\n\n")
    assert [piece.ends_document for piece in documents.read_pieces(blank)] == [
        False,
        True,
    ]  # the end of a document is never lost
    letters = Tokenizer.for_bytes()
    assert (
        b"".join(bytes(ids) for ids in documents.encode_pieces(iter(found), letters)) == 2 * (whole + "\n\n").encode()
    )


def test_the_end_token_stands_behind_documents_not_behind_pieces() -> None:
    letters = Tokenizer(Tokenizer.characters("abc|")._inner, {"end": "|"})
    found = [documents.TextPiece("a", False), documents.TextPiece("bb", True), documents.TextPiece("ccc", True)]
    assert [letters.decode(ids) for ids in documents.encode_pieces(iter(found), letters)] == ["a", "bb|", "ccc|"]


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "")
    write(tmp_path / "b.txt", "\n\n")
    problems = ProblemLog(skip=True)
    with pytest.raises(DataError, match=r"there is no text in .*2 skipped; first: .*a.txt:1: the file is empty"):
        list(documents.read_documents(tmp_path, problems))
    with pytest.raises(DataError, match="there is no text"):
        list(documents.read_documents(write(tmp_path / "none" / ".x", "").parent))


# tables

ROWS = [("a b", "가 나"), ("one, two", 'say "hi"'), ("end\\", "  spaces kept  ")]


def tables(folder: Path, names: tuple[str, str] | None) -> list[Path]:
    """The same pairs in every format, by writers that are not ours."""
    heads = [] if names is None else [names]
    quoted = io.StringIO()
    csv.writer(quoted).writerows([*heads, *ROWS])
    made = [
        write(folder / "a.tsv", "".join("\t".join(row) + "\n" for row in [*heads, *ROWS])),
        write(folder / "a.csv", quoted.getvalue()),
    ]
    if names is not None:
        dumped = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in ROWS]
        nested = [
            json.dumps({"translation": dict(zip(names, row, strict=True))}, ensure_ascii=False) + "\n" for row in ROWS
        ]
        made += [write(folder / "a.jsonl", "".join(dumped)), write(folder / "b.jsonl", "".join(nested))]
    return made


@pytest.mark.parametrize("names", [None, ("source", "target"), ("en", "ko")])
def test_pairs_are_the_same_from_every_format(tmp_path: Path, names: tuple[str, str] | None) -> None:
    source, target = names or ("source", "target")
    for path in tables(tmp_path, names):
        assert list(read_pairs(path, source, target)) == ROWS, path
        if names is not None:
            assert list(read_pairs(path, target, source)) == [(there, here) for here, there in ROWS]
    assert len(list(read_pairs(tmp_path, source, target))) == len(tables(tmp_path, names)) * len(ROWS)


def test_labels_by_name_by_order_and_as_numbers(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", "good film\tpositive\nbad film\t negative \n")
    write(tmp_path / "b.csv", "label,source,text\n1,imdb,fine\n0,imdb,poor\n")
    write(
        tmp_path / "c.jsonl", '{"text": "x", "label": 3}\n{"text": "y", "label": true}\n{"text": "z", "label": "w"}\n'
    )
    assert list(read_labelled_texts(tmp_path)) == [
        ("good film", "positive"),
        ("bad film", "negative"),
        ("fine", "1"),
        ("poor", "0"),
        ("x", "3"),
        ("y", "true"),
        ("z", "w"),
    ]
    assert next(read_labelled_texts(tmp_path / "b.csv", text="source", label="text")) == ("imdb", "fine")


@pytest.mark.parametrize(
    ("reader", "name", "data", "where", "what"),
    [  # @ and # stand for good lines of JSON
        ("pairs", "a.tsv", "a\tb\nc\nd\te\n", ":2: ", "1 column where 2 are expected"),
        ("pairs", "a.tsv", "a\tb\n\nc\td\te\nd\te\n", ":3: ", "3 columns where 2 are expected"),
        ("pairs", "a.tsv", "a\tb\nc\t \nd\te\n", ":2: ", "target is empty"),
        ("pairs", "a.csv", 'a,b\n"c\nc",d,e\nd,e\n', ":2: ", "3 columns where 2"),
        ("pairs", "a.csv", 'a,b\n"c"c,d\nd,e\n', ":2: ", "quotes do not match"),
        ("pairs", "a.jsonl", '@{"source": "c"}#', ":2: ", "no 'target'"),
        ("pairs", "a.jsonl", "@{oops#", ":2: ", "not JSON"),
        ("pairs", "a.jsonl", "@[1]#", ":2: ", "a list, not an object"),
        ("pairs", "a.jsonl", "@" + "[" * 99_999 + "#", ":2: ", "not JSON"),
        ("pairs", "a.jsonl", '@{"source": "\\ud800", "target": "x"}#', ":2: ", "half a character"),
        ("pairs", "a.jsonl", '@{"source": 1.5, "target": "x"}#', ":2: ", "a float, not a text"),
        ("labels", "a.tsv", "text\tlabel\na\tb\nc\td\n\tx\n", ":4: ", "text is empty"),
        ("documents", "a.jsonl", '{"text": "a"}\n{"words": "b"}\n{"text": "c"}\n', ":2: ", "no 'text'"),
    ],
)
def test_a_bad_row_is_named_or_counted(
    tmp_path: Path, reader: str, name: str, data: str, where: str, what: str
) -> None:
    good = '{"source": "d", "target": "e"}'
    path = write(tmp_path / name, data.replace("@", f"{good}\n").replace("#", f"\n{good}"))
    with pytest.raises(DataError) as refused:
        list(READERS[reader](path, ProblemLog()))
    assert f"{path}{where}" in str(refused.value) and what in str(refused.value)
    problems = ProblemLog(skip=True)
    assert len(list(READERS[reader](path, problems))) == 2
    assert problems.count == 1


@pytest.mark.parametrize(
    ("reader", "name", "data", "what"),
    [
        ("pairs", "a.tsv", "source\tother\na\tb\n", "there is no column 'target'; the first row is 'source', 'other'"),
        ("pairs", "a.csv", "a,b,c\n1,2,3\n", "there is no column 'source' and 'target'"),
        ("labels", "a.csv", "text,label\n", "nothing below"),
        ("pairs", "a.txt", "a\tb\n", "pairs are read from .tsv, .csv, .jsonl, .po files"),
        ("labels", "a.json", "{}", "labelled texts are read from"),
        ("labels", "a.csv", 'text,label\n"never closed,1\na,b\nc,d\n', "the 2 lines after it are lost with it"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused(tmp_path: Path, reader: str, name: str, data: str, what: str) -> None:
    path = write(tmp_path / name, data)
    with pytest.raises(DataError) as refused:
        list(READERS[reader](path, ProblemLog()))
    assert what in str(refused.value) and str(path) in str(refused.value)
    write(tmp_path / "good.jsonl", '{"source": "a", "target": "b", "text": "c", "label": "d"}')
    problems = ProblemLog(skip=True)
    assert len(list(READERS[reader](tmp_path, problems))) == 1
    assert problems.count == 1, problems.first


def test_only_the_first_few_problems_are_kept() -> None:
    problems = ProblemLog(skip=True)
    for number in range(1234):
        problems.report(f"a:{number}", "bad")
    assert str(problems) == "1,234 skipped; first: a:0: bad" and len(problems.first) == 5
    assert str(ProblemLog()) == "nothing skipped"


@given(
    st.lists(st.tuples(*[st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), min_size=1)] * 2))
)
def test_csv_and_jsonl_give_back_what_other_writers_wrote(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, str]]
) -> None:
    told = [pair for pair in told if all(field.strip() for field in pair)]
    if not told:
        return
    folder, quoted = tmp_path_factory.mktemp("rows"), io.StringIO()
    csv.writer(quoted, lineterminator="\n").writerows([("source", "target"), *told])
    write(folder / "a.csv", quoted.getvalue())
    write(folder / "b.jsonl", "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in told))
    assert list(read_pairs(folder)) == 2 * told


# gettext

PO = r"""
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=1; plural=0;\n"

#. said of a lamp
#: lamp.py:3
msgid "Turn on"
msgstr "켜기"

msgctxt "menu"
msgid "Open"
msgstr "열기"
msgctxt "door"
msgid "Open"
msgstr "열림"

#, python-format, fuzzy
msgid "Perhaps"
msgstr "아마"

msgid "Later"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "파일 %d개"

msgid "one day"
msgid_plural "many days"
msgstr[0] "하루"
msgstr[1] "여러 날"

#| msgid "Old"
msgid ""
"Two "
"lines\twith \"quotes\"\n"
"and a \\ backslash"
msgstr ""
"두 줄\n"
"\"따옴표\""
msgid  "Close"
msgstr "닫기"

#~ msgid "Gone"
#~ msgstr "없음"
"""


def test_po_files_are_read_as_polib_reads_them(tmp_path: Path) -> None:
    path = write(tmp_path / "ko.po", PO)
    expected = []
    for entry in polib.pofile(str(path)):
        if entry.obsolete or "fuzzy" in entry.flags:
            continue
        forms = [entry.msgstr_plural[key] for key in sorted(entry.msgstr_plural)] or [entry.msgstr]
        both = [(entry.msgid, forms[0]), (entry.msgid_plural, forms[-1])]
        expected += [(here, there) for here, there in both if here and there]
    found = list(read_pairs(path))
    assert found == expected and len(found) == 9
    assert ("many days", "여러 날") in found and ("%d files", "파일 %d개") in found
    assert ("Open", "열림") in found and not dict(found).get("Perhaps")
    assert list(read_pairs(path, "msgstr", "msgid")) == [(there, here) for here, there in found]


@given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"))] * 2)))
def test_po_files_give_back_what_polib_wrote(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, str]]
) -> None:
    told = [pair for pair in told if all(field.strip() for field in pair)]
    if not told:
        return
    made = polib.POFile()
    made.metadata = {"Content-Type": "text/plain; charset=utf-8"}
    for here, there in told:
        made.append(polib.POEntry(msgid=here, msgstr=there))
    path = tmp_path_factory.mktemp("po") / "a.po"
    path.write_bytes(str(made).encode())
    assert list(read_pairs(path)) == told


@pytest.mark.parametrize(
    ("data", "where", "what"),
    [
        ('msgid "a"\nmsgstr "b"\nnonsense\n\nmsgid "c"\nmsgstr "d"\n', ":3: ", "no line of a .po file: 'nonsense'"),
        ('msgid "a"\nmsgstr "b"\n\nmsgid "unclosed\nmsgstr "x"\n\nmsgid "c"\nmsgstr "d"\n', ":4: ", "no line of a .po"),
        ('"floating"\nmsgid "a"\nmsgstr "b"\nmsgid "c"\nmsgstr "d"\n', ":1: ", "no line of a .po"),
        ('msgid "a"\nmsgstr "b"\nmsgid "c"\nmsgstr "d"\nmsgid "e"\n', ":5: ", "a msgid without a msgstr"),
    ],
)
def test_po_files_that_are_damaged(tmp_path: Path, data: str, where: str, what: str) -> None:
    path = write(tmp_path / "a.po", data)
    with pytest.raises(DataError) as refused:
        list(read_pairs(path))
    assert f"{path}{where}" in str(refused.value) and what in str(refused.value)
    problems = ProblemLog(skip=True)
    found = list(read_pairs(path, problems=problems))
    assert problems.count == 1 and ("c", "d") in found


# pictures


def test_captions_from_a_table_or_from_beside_the_picture(tmp_path: Path) -> None:
    for name in ("a.png", "sub/b.JPG"):
        write(tmp_path / name, b"not looked into here")
    write(tmp_path / "a.txt", "a cat\n")
    write(tmp_path / "sub" / "b.txt", "a dog,\n  running\n")
    expected = [(tmp_path / "a.png", "a cat"), (tmp_path / "sub" / "b.JPG", "a dog, running")]
    assert list(read_captioned_images(tmp_path)) == expected
    table = write(tmp_path / "metadata.csv", 'text,file_name\n"a dog, running",sub/b.JPG\na cat,a.png\n')
    assert list(read_captioned_images(str(tmp_path))) == expected[::-1]
    table.unlink()
    for name, data in (
        ("captions.jsonl", '{"file": "a.png", "caption": "a cat"}\n'),
        ("captions.tsv", "a.png\ta cat\na.png\tstill a cat\n"),
    ):
        write(tmp_path / name, data)
        assert next(read_captioned_images(tmp_path)) == expected[0]
    assert [caption for _, caption in read_captioned_images(tmp_path)] == ["a cat", "still a cat"]


def test_captions_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    write(tmp_path / "out.png", b"")
    write(folder / "a.png", b"")
    (folder / "link.png").symlink_to(tmp_path / "out.png")
    rows = ["a.png\tfine", "../out.png\tx", f"{tmp_path}/out.png\tx", "link.png\tx", "none.png\tx", "captions.tsv\tx"]
    table = write(folder / "captions.tsv", "\n".join(rows))
    problems = ProblemLog(skip=True)
    assert list(read_captioned_images(folder, problems)) == [(folder / "a.png", "fine")]
    assert problems.count == 5
    assert [f"{table}:{number}: " in told for number, told in enumerate(problems.first, 2)] == [True] * 5
    assert ["leads out" in told for told in problems.first] == [True, True, True, False, False]
    table.unlink()
    with pytest.raises(DataError, match=r"a.png: the picture has no caption; write one into a.txt"):
        list(read_captioned_images(folder))
    with pytest.raises(DataError, match="no pictures with captions"):
        list(read_captioned_images(folder, ProblemLog(skip=True)))


def test_pictures_are_classed_by_their_folders(tmp_path: Path) -> None:
    for name in ("dog/2.png", "dog/1.jpg", "cat/deep/3.webp", "cat/.DS_Store", "dog/notes.txt"):
        write(tmp_path / name, b"")
    assert [(path.name, kind) for path, kind in read_image_folder(tmp_path)] == [
        ("3.webp", "cat"),
        ("1.jpg", "dog"),
        ("2.png", "dog"),
    ]
    write(tmp_path / "stray.png", b"")
    with pytest.raises(DataError, match=r"stray.png: the picture stands in no class"):
        list(read_image_folder(tmp_path))
    with pytest.raises(DataError, match="not a folder"):
        list(read_image_folder(tmp_path / "stray.png"))
    with pytest.raises(DataError, match="has no pictures"):
        list(read_image_folder(write(tmp_path / "empty" / "x", b"").parent))


# data sets by Hugging Face's names


def test_hub_names_need_the_extra_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install 'jumok\[datasets\]'"):
        list(documents.read_documents("hf:owner/name"))


@pytest.mark.slow
def test_hub_names_are_read_by_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in place of a name: what `datasets` does with either is the same, and nothing is fetched here."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    write(tmp_path / "data" / "train.csv", "text,label\nfine,1\npoor,0\n")
    write(tmp_path / "data" / "test.csv", "text,label\nneither,1\n")
    name = f"hf:{tmp_path / 'data'}"
    assert list(documents.read_documents(name)) == ["fine", "poor"]
    assert list(documents.read_documents(f"{name}@test")) == ["neither"]
    assert list(read_labelled_texts(name)) == [("fine", "1"), ("poor", "0")]
    with pytest.raises(DataError, match="has no column 'source' or 'target'; there are text, label"):
        list(read_pairs(name))
    with pytest.raises(DataError, match="cannot be read"):
        list(documents.read_documents(f"{name}@nowhere"))
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    made = datasets.Dataset.from_dict({"text": ["a"], "label": [1]}, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: made)
    assert list(read_labelled_texts("hf:owner/name")) == [("a", "good")]
    made = datasets.Dataset.from_dict({"translation": [{"en": "hi", "ko": "안녕"}, {"en": "oh", "ko": ""}]})
    with pytest.raises(DataError, match="hf:owner/name:2: ko is empty"):
        list(read_pairs("hf:owner/name", "en", "ko"))


# the catalogue's


@pytest.fixture
def _cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(CACHE))


def sides(read: Callable[[split.Split], Iterator[Any]]) -> tuple[list[Any], list[Any]]:
    return list(read("train")), list(read("held-out"))


def test_what_is_not_here_is_not_fetched_unless_somebody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="shakespeare is not here; fetch it with: jumok data get shakespeare"):
        next(text_corpora.read_shakespeare())
    asked: list[str] = []

    def get(name: str, report: Callable[[str], None]) -> Path:
        asked.append(name)
        raise JumokError("asked")

    monkeypatch.setattr(text_corpora.catalogue, "get", get)
    with pytest.raises(JumokError, match="asked"):
        next(text_corpora.read_shakespeare(report=lambda line: None))
    assert asked == ["shakespeare"]


def test_sides_depend_on_the_text_alone() -> None:
    held = sum(split.assign_split(f"example {number}") == "held-out" for number in range(20_000))
    assert 1850 < held < 2150  # a tenth, give or take 3.5 deviations
    assert all(split.assign_split(f" Example  {n} ") == split.assign_split(f"example {n}") for n in range(200))
    assert split.hash_to_fraction("주목") == 0.9617236273004401  # for ever


@pytest.mark.usefixtures("_cache")
def test_shakespeare_is_whole_and_cut_in_two() -> None:
    folder = fetched("shakespeare")
    train, held = sides(text_corpora.read_shakespeare)
    size = sum(len(path.read_text(encoding="utf-8")) for path in folder.glob("*.txt"))
    assert abs(sum(map(len, train + held)) - size) <= 42  # a last line may lack its end
    assert 0.07 < sum(map(len, held)) / size < 0.13
    assert any("To be, or not to be" in passage for passage in train + held)


@pytest.mark.usefixtures("_cache")
def test_gutenberg_reads_its_two_books_in_latin_1() -> None:
    fetched("gutenberg")
    whole = "".join("".join(side) for side in sides(text_corpora.read_gutenberg))
    assert "Brunetière, Coppée, Hauptmann, Barrès, Bourget, Lemaître" in whole.replace("\n", " ")
    assert "Cæsar, my Lo" in whole and len(whole) > 11_700_000


@pytest.mark.usefixtures("_cache")
def test_en_ko_never_has_a_text_on_both_sides() -> None:
    fetched("en-ko")
    train, held = sides(text_corpora.read_en_ko)
    assert len(set(train)) + len(set(held)) == len(train) + len(held) == 34_006
    assert 0.09 < len(held) / 34_006 < 0.11
    for column in (0, 1):
        assert not {split.normalize_text(pair[column]) for pair in train} & {
            split.normalize_text(pair[column]) for pair in held
        }
    turned = list(text_corpora.read_en_ko("held-out", source="ko", target="en"))
    assert turned == [(korean, english) for english, korean in held]
    assert text_corpora.number_placeholders("{b} and {a}, {b}", "{a}와 {b}") == ("{0} and {1}, {0}", "{1}와 {0}")


@pytest.mark.usefixtures("_cache")
def test_sentiment_is_cut_in_three() -> None:
    fetched("sentiment")
    train, held = sides(text_corpora.read_sentiment)
    assert len(train) + len(held) == 23_619 and {label for _, label in held} == {"negative", "neutral", "positive"}
    assert not {words for words, _ in train} & {words for words, _ in held}
    assert ("Yay. Another good phone interview.", "positive") in train + held
    assert any("We were 17 deep last night & the love was so strong" in words for words, _ in train + held)


@pytest.mark.usefixtures("_cache")
def test_emoji_have_names_and_their_tones_stay_together() -> None:
    fetched("emoji")
    train, held = sides(lambda side: image_galleries.load_emoji(side, tones=True))
    assert len(train) + len(held) == 3786 and all(path.is_file() for path, _ in held)
    plain = [{re.sub(": .*skin tone.*", "", name) for _, name in side} for side in (train, held)]
    assert not plain[0] & plain[1]
    assert len(plain[0]) + len(plain[1]) < 1911 + 60  # tones are of the same emoji, all but the pairs of people
    korean = {path.name: name for path, name in image_galleries.load_emoji("train", language="ko")}
    english = {path.name: name for path, name in image_galleries.load_emoji("train")}
    assert korean.keys() == english.keys() and english["1f63a.png"] == "grinning cat"
    assert korean["1f63a.png"] == "활짝 웃는 고양이 얼굴" and len(english) < 1911


@pytest.mark.usefixtures("_cache")
def test_mnist_has_its_own_parts() -> None:
    fetched("mnist")
    digits = image_galleries.load_mnist("held-out")
    assert digits.pixels.shape == (10_000, 1, 28, 28) and digits.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert digits.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


# memory

MEMORY = """
import resource, sys
from pathlib import Path
from jumok.data import text
from jumok.data.readers.labelled_texts import labelled
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
small, large = Path(sys.argv[1]), Path(sys.argv[2])
read = {".txt": documents.documents, ".csv": labelled}[large.suffix]
for _ in read(small): pass
before, size = peak(), 0
for found in read(large): size += len(found if isinstance(found, str) else found[0])
print(size, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is asked of a Unix system")
@pytest.mark.parametrize(("ending", "size"), [(".txt", 200 * 10**6), (".csv", 80 * 10**6)])
def test_a_large_file_takes_no_more_memory_than_a_small_one(tmp_path: Path, ending: str, size: int) -> None:
    row = "주목은 attention입니다. " * 12 + (",yes\n" if ending == ".csv" else "\n")
    small = write(tmp_path / f"small{ending}", row * 2)
    large = tmp_path / f"large{ending}"
    block = (row * 2000).encode()
    with large.open("wb") as file:
        for _ in range(size // len(block) + 1):
            file.write(block)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(small), str(large)], capture_output=True, text=True, check=True
    )
    read, grown = done.stdout.split()
    assert int(read) > size / 2 and float(grown) < 50, grown
