"""Compare the readers of texts, pairs, labels and captions with other readers; check errors by file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jumok.data.readers import lines, text_examples
from jumok.data.readers.labelled_files import read_captioned_images, read_image_folder
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_examples import TextPiece, encode_pieces, read_labelled_texts, read_pairs
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError

# one word in composed and in decomposed characters, which look the same
NFC, NFD = "\uae0d\uc815", unicodedata.normalize("NFD", "\uae0d\uc815")

Read = Callable[[Path, ProblemLog], Iterator[Any]]
READERS: dict[str, Read] = {
    "documents": lambda path, problems: text_examples.read_documents(path, problems),
    "pairs": lambda path, problems: read_pairs(path, problems=problems),
    "named pairs": lambda path, problems: read_pairs(path, "source", "target", problems),
    "labels": lambda path, problems: read_labelled_texts(path, problems),
}


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_numbered_lines(path: Path, problems: ProblemLog | None = None) -> list[tuple[int, str]]:
    return list(lines.read_lines(path, problems or ProblemLog()))


# lines


@given(st.lists(st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]))), st.sampled_from("nrw"))
@example(["\ufeff", "a"], "n")
@example(["a\u2028b", "\x0b\x0c\x1c\x85"], "w")  # str.splitlines splits at these
def test_lines_round_trip(tmp_path_factory: pytest.TempPathFactory, written: list[str], ends: str) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    end = {"n": "\n", "r": "\r", "w": "\r\n"}[ends]
    for mark, pack in ((b"\xef\xbb\xbf", bytes), (b"", gzip.compress)) if written else ():
        content = mark + end.join([*written, ""]).encode()
        if not mark and written[0].startswith("\ufeff"):
            continue
        packed = path.with_suffix(".txt.gz" if pack is gzip.compress else ".txt")
        packed.write_bytes(pack(content))
        assert read_numbered_lines(packed) == list(enumerate(written, 1))


@pytest.mark.parametrize(
    ("content", "location", "message"),
    [
        (b"", ":1: ", "empty"),
        (b"fine\nfine\ncaf\xe9 noir\nfine\n", ":3: ", "character 4 is byte E9"),
        (b"fine\n\xed\xa0\x80\n", ":2: ", "byte ED"),  # an encoded surrogate is not UTF-8
        ("한국어\n".encode("utf-16"), ":1: ", "UTF-16"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ":1: ", "binary"),
        (b"a\n" * 5000 + b"b\0c\n", ":5001: ", "NUL"),
        (b"ok\n" + b"x" * (lines.MAX_LINE + 1) + b"\nok\n", ":2: ", "longer than 16,777,216 characters"),
    ],
)
def test_unusable_line_is_reported_by_file_and_number(
    tmp_path: Path, content: bytes, location: str, message: str
) -> None:
    path = write(tmp_path / "a.txt", content)
    with pytest.raises(DataError) as refused:
        read_numbered_lines(path)
    assert f"{path}{location}" in str(refused.value) and message in str(refused.value)
    assert "--skip-bad" in str(refused.value)
    problems = ProblemLog(skip=True)
    numbered = read_numbered_lines(path, problems)
    assert problems.count == 1 and message in problems.first[0] and message in str(problems)
    good = [line for line in content.split(b"\n")[:-1] if line in (b"fine", b"ok", b"a")]
    if "binary" not in message and "UTF-16" not in message:
        assert [line.encode() for _, line in numbered] == good
        bad = int(location.strip(": "))
        assert [number for number, _ in numbered] == [n for n in range(1, len(good) + 2) if n != bad][: len(good)]


def test_line_of_the_maximum_length_is_read(tmp_path: Path) -> None:
    for end in (b"", b"\n", b"\r\n", b"\nmore\n"):
        path = write(tmp_path / "a.txt", b"x" * lines.MAX_LINE + end)
        assert len(read_numbered_lines(path)[0][1]) == lines.MAX_LINE


def test_damaged_gzip_file_is_reported(tmp_path: Path) -> None:
    content = gzip.compress(b"some words\n" * 100_000)
    for name, damaged in (
        ("truncated", content[:-20]),
        ("plain", b"not compressed"),
        ("changed", content[:200] + b"!!" + content[202:]),
    ):
        path = write(tmp_path / f"{name}.txt.gz", damaged)
        with pytest.raises(DataError, match="cannot be decompressed"):
            read_numbered_lines(path)
        problems = ProblemLog(skip=True)
        read_numbered_lines(path, problems)
        assert problems.count >= 1


def test_missing_file_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    for path in (tmp_path / "none.txt", tmp_path / ("x" * 5000), tmp_path / "a\0b"):
        with pytest.raises(DataError):
            list(text_examples.read_documents(path, ProblemLog(skip=True)))
    with pytest.raises(DataError, match="there is no file to read"):
        list(text_examples.read_documents([]))


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
    assert list(text_examples.read_documents(tmp_path)) == [
        "first\nof two lines\n",
        "second\n",
        "fourth",
        "다섯째",
        'six, "quoted"\non two lines',
        'seven "as it is',
        "eight",
        "third, in a folder\n",
    ]


def test_large_files_are_read_in_pieces_that_end_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    path = write(tmp_path / "a.txt", text + "\n\n")
    monkeypatch.setattr(text_examples, "PIECE_SIZE", 100)
    pieces = list(text_examples.read_pieces([path, path]))
    assert "".join(piece.text for piece in pieces) == 2 * (text + "\n\n")
    assert all(piece.text.endswith("\n") and len(piece.text) < 130 for piece in pieces)
    assert [piece.ends_document for piece in pieces].count(True) == 2 and pieces[-1].ends_document
    blank = write(tmp_path / "blank.txt", "x" * 120 + "\n\n\n")
    # the end of a document is never lost
    assert [piece.ends_document for piece in text_examples.read_pieces(blank)] == [False, True]

    encoded = encode_pieces(iter(pieces), Tokenizer.for_bytes())
    assert b"".join(bytes(ids) for ids in encoded) == 2 * (text + "\n\n").encode()


def test_end_token_follows_documents_not_pieces() -> None:
    tokenizer = Tokenizer(Tokenizer.for_characters("abc|")._inner, {"end": "|"})
    pieces = [
        TextPiece("a", False),
        TextPiece("bb", True),
        TextPiece("ccc", True),
    ]
    assert [tokenizer.decode(ids) for ids in encode_pieces(iter(pieces), tokenizer)] == [
        "a",
        "bb|",
        "ccc|",
    ]


def test_empty_input_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "")
    write(tmp_path / "b.txt", "\n\n")
    problems = ProblemLog(skip=True)
    with pytest.raises(DataError, match=r"there is no text in .*2 skipped; first: .*a.txt:1: the file is empty"):
        list(text_examples.read_documents(tmp_path, problems))
    with pytest.raises(DataError, match="there is no text"):
        list(text_examples.read_documents(write(tmp_path / "none" / ".x", "").parent))


# tables

ROWS = [("a b", "가 나"), ("one, two", 'say "hi"'), ("end\\", "  spaces kept  ")]


def write_tables(folder: Path, names: tuple[str, str] | None) -> list[Path]:
    """Write the same pairs in every format, without our own code."""
    header = [] if names is None else [names]
    quoted = io.StringIO()
    csv.writer(quoted).writerows([*header, *ROWS])
    paths = [
        write(folder / "a.tsv", "".join("\t".join(row) + "\n" for row in [*header, *ROWS])),
        write(folder / "a.csv", quoted.getvalue()),
    ]
    if names is not None:
        flat = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in ROWS]
        nested = [
            json.dumps({"translation": dict(zip(names, row, strict=True))}, ensure_ascii=False) + "\n" for row in ROWS
        ]
        paths += [write(folder / "a.jsonl", "".join(flat)), write(folder / "b.jsonl", "".join(nested))]
    return paths


@pytest.mark.parametrize("names", [None, ("source", "target"), ("en", "ko")])
def test_pairs_are_the_same_from_every_format(tmp_path: Path, names: tuple[str, str] | None) -> None:
    source, target = names or (None, None)
    for path in write_tables(tmp_path, names):
        assert list(read_pairs(path, source, target)) == ROWS, path
        if names is not None:
            assert list(read_pairs(path, target, source)) == [(second, first) for first, second in ROWS]
    assert len(list(read_pairs(tmp_path, source, target))) == len(write_tables(tmp_path, names)) * len(ROWS)


def test_labels_by_column_name_by_order_and_as_numbers(tmp_path: Path) -> None:
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
    ("reader", "name", "content", "location", "message"),
    [  # @ and # are replaced by valid lines of JSON
        ("pairs", "a.tsv", "a\tb\nc\nd\te\n", ":2: ", "expected 2 columns, got 1"),
        ("pairs", "a.tsv", "a\tb\n\nc\td\te\nd\te\n", ":3: ", "expected 2 columns, got 3"),
        ("pairs", "a.tsv", "a\tb\nc\t \nd\te\n", ":2: ", "target is empty"),
        ("pairs", "a.csv", 'a,b\n"c\nc",d,e\nd,e\n', ":2: ", "expected 2 columns, got 3"),
        ("pairs", "a.csv", 'a,b\n"c"c,d\nd,e\n', ":2: ", "quotes do not match"),
        ("pairs", "a.jsonl", '@{"source": "c"}#', ":2: ", "no 'target'"),
        ("pairs", "a.jsonl", "@{oops#", ":2: ", "not JSON"),
        ("pairs", "a.jsonl", "@[1]#", ":2: ", "a JSON list, not an object"),
        ("pairs", "a.jsonl", "@" + "[" * 99_999 + "#", ":2: ", "not JSON"),
        ("pairs", "a.jsonl", '@{"source": "\\ud800", "target": "x"}#', ":2: ", "lone surrogate"),
        ("pairs", "a.jsonl", '@{"source": 1.5, "target": "x"}#', ":2: ", "a float, not text"),
        ("labels", "a.tsv", "text\tlabel\na\tb\nc\td\n\tx\n", ":4: ", "text is empty"),
        ("documents", "a.jsonl", '{"text": "a"}\n{"words": "b"}\n{"text": "c"}\n', ":2: ", "no 'text'"),
    ],
)
def test_unusable_row_is_reported_or_counted(
    tmp_path: Path, reader: str, name: str, content: str, location: str, message: str
) -> None:
    good = '{"source": "d", "target": "e"}'
    path = write(tmp_path / name, content.replace("@", f"{good}\n").replace("#", f"\n{good}"))
    with pytest.raises(DataError) as refused:
        list(READERS[reader](path, ProblemLog()))
    assert f"{path}{location}" in str(refused.value) and message in str(refused.value)
    problems = ProblemLog(skip=True)
    assert len(list(READERS[reader](path, problems))) == 2
    assert problems.count == 1


@pytest.mark.parametrize(
    ("reader", "name", "content", "message"),
    [
        (
            "named pairs",
            "a.tsv",
            "source\tother\na\tb\n",
            "there is no column 'target'; the first row is 'source', 'other'",
        ),
        ("pairs", "a.csv", "a,b,c\n1,2,3\n", "there is no column 'source' and 'target'"),
        ("labels", "a.csv", "text,label\n", "column names but no rows"),
        ("pairs", "a.txt", "a\tb\n", "pairs are read from .tsv, .csv, .jsonl, .parquet, .po files"),
        ("labels", "a.json", "{}", "labelled texts are read from"),
        ("labels", "a.csv", 'text,label\n"never closed,1\na,b\nc,d\n', "2 more lines cannot be read because of it"),
    ],
)
def test_unusable_table_is_refused(tmp_path: Path, reader: str, name: str, content: str, message: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DataError) as refused:
        list(READERS[reader](path, ProblemLog()))
    assert message in str(refused.value) and str(path) in str(refused.value)
    write(tmp_path / "good.jsonl", '{"source": "a", "target": "b", "text": "c", "label": "d"}')
    problems = ProblemLog(skip=True)
    assert len(list(READERS[reader](tmp_path, problems))) == 1
    assert len(problems.first) == 1


def test_problem_log_stores_the_first_messages() -> None:
    problems = ProblemLog(skip=True)
    for number in range(1234):
        problems.report(f"a:{number}", "bad")
    assert str(problems) == "1,234 skipped; first: a:0: bad" and len(problems.first) == 5
    assert str(ProblemLog()) == "nothing skipped"


@given(
    st.lists(st.tuples(*[st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), min_size=1)] * 2))
)
def test_csv_and_jsonl_round_trip(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    pairs = [pair for pair in pairs if all(field.strip() for field in pair)]
    if not pairs:
        return
    folder, quoted = tmp_path_factory.mktemp("rows"), io.StringIO()
    csv.writer(quoted, lineterminator="\n").writerows([("source", "target"), *pairs])
    write(folder / "a.csv", quoted.getvalue())
    write(folder / "b.jsonl", "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in pairs))
    assert list(read_pairs(folder)) == 2 * pairs


# images


def test_captions_from_a_table_or_text_files(tmp_path: Path) -> None:
    for name in ("a.png", "sub/b.JPG"):
        write(tmp_path / name, b"not read here")
    write(tmp_path / "a.txt", "a cat\n")
    write(tmp_path / "sub" / "b.txt", "a dog,\n  running\n")
    expected = [(tmp_path / "a.png", "a cat"), (tmp_path / "sub" / "b.JPG", "a dog, running")]
    assert list(read_captioned_images(tmp_path)) == expected
    table = write(tmp_path / "metadata.csv", 'text,file_name\n"a dog, running",sub/b.JPG\na cat,a.png\n')
    assert list(read_captioned_images(str(tmp_path))) == expected[::-1]
    table.unlink()
    for name, content in (
        ("captions.jsonl", '{"file": "a.png", "caption": "a cat"}\n'),
        ("captions.tsv", "a.png\ta cat\na.png\tstill a cat\n"),
    ):
        write(tmp_path / name, content)
        assert next(read_captioned_images(tmp_path)) == expected[0]
    assert [caption for _, caption in read_captioned_images(tmp_path)] == ["a cat", "still a cat"]


def test_unusable_captions_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    write(tmp_path / "out.png", b"")
    write(folder / "a.png", b"")
    (folder / "link.png").symlink_to(tmp_path / "out.png")
    rows = ["a.png\tfine", "../out.png\tx", f"{tmp_path}/out.png\tx", "link.png\tx", "none.png\tx", "captions.tsv\tx"]
    table = write(folder / "captions.tsv", "\n".join(rows))
    problems = ProblemLog(skip=True)
    assert list(read_captioned_images(folder, problems)) == [(folder / "a.png", "fine")]
    assert problems.count == 5
    assert [f"{table}:{number}: " in message for number, message in enumerate(problems.first, 2)] == [True] * 5
    assert ["is outside" in message for message in problems.first] == [True, True, True, False, False]
    table.unlink()
    with pytest.raises(DataError, match=r"a.png: the image has no caption; write one into a.txt"):
        list(read_captioned_images(folder))
    with pytest.raises(DataError, match="contains no images with captions"):
        list(read_captioned_images(folder, ProblemLog(skip=True)))


def test_image_classes_are_folder_names(tmp_path: Path) -> None:
    for name in ("dog/2.png", "dog/1.jpg", "cat/deep/3.webp", "cat/.DS_Store", "dog/notes.txt"):
        write(tmp_path / name, b"")
    assert [(path.name, class_name) for path, class_name in read_image_folder(tmp_path)] == [
        ("3.webp", "cat"),
        ("1.jpg", "dog"),
        ("2.png", "dog"),
    ]
    write(tmp_path / "stray.png", b"")
    with pytest.raises(DataError, match=r"stray.png: the image has no class"):
        list(read_image_folder(tmp_path))
    with pytest.raises(DataError, match="not a folder"):
        list(read_image_folder(tmp_path / "stray.png"))
    with pytest.raises(DataError, match="contains no images"):
        list(read_image_folder(write(tmp_path / "empty" / "x", b"").parent))


# Hugging Face datasets


def test_missing_datasets_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r'pip install "jumok\[datasets\]"'):
        list(text_examples.read_documents("hf:owner/name"))


@pytest.mark.slow
def test_hub_names_are_read_by_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a folder instead of a name, which `datasets` treats in the same way, so that nothing is downloaded."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    write(tmp_path / "data" / "train.csv", "text,label\nfine,1\npoor,0\n")
    write(tmp_path / "data" / "test.csv", "text,label\nneither,1\n")
    name = f"hf:{tmp_path / 'data'}"
    assert list(text_examples.read_documents(name)) == ["fine", "poor"]
    assert list(text_examples.read_documents(f"{name}@test")) == ["neither"]
    assert list(read_labelled_texts(name)) == [("fine", "1"), ("poor", "0")]
    with pytest.raises(DataError, match="has no column 'source' or 'target'; its columns are text, label"):
        list(read_pairs(name))
    with pytest.raises(DataError, match="cannot be read"):
        list(text_examples.read_documents(f"{name}@nowhere"))
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    )
    dataset = datasets.Dataset.from_dict({"text": ["a"], "label": [1]}, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: dataset)
    assert list(read_labelled_texts("hf:owner/name")) == [("a", "good")]
    dataset = datasets.Dataset.from_dict({"translation": [{"en": "hi", "ko": "안녕"}, {"en": "oh", "ko": ""}]})
    with pytest.raises(DataError, match="hf:owner/name:2: ko is empty"):
        list(read_pairs("hf:owner/name", "en", "ko"))


# memory

MEMORY = """
import resource, sys
from pathlib import Path
from jumok.data.readers.text_examples import read_documents
from jumok.data.readers.text_examples import read_labelled_texts
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
small, large = Path(sys.argv[1]), Path(sys.argv[2])
read = {".txt": read_documents, ".csv": read_labelled_texts}[large.suffix]
for _ in read(small): pass
before, size = peak(), 0
for example in read(large): size += len(example if isinstance(example, str) else example[0])
print(size, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="peak memory needs a Unix system")
@pytest.mark.parametrize(("extension", "size"), [(".txt", 200 * 10**6), (".csv", 80 * 10**6)])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, extension: str, size: int) -> None:
    row = "주목은 attention입니다. " * 12 + (",yes\n" if extension == ".csv" else "\n")
    small = write(tmp_path / f"small{extension}", row * 2)
    large = tmp_path / f"large{extension}"
    block = (row * 2000).encode()
    with large.open("wb") as file:
        for _ in range(size // len(block) + 1):
            file.write(block)
    process = subprocess.run(
        [sys.executable, "-c", MEMORY, str(small), str(large)], capture_output=True, text=True, check=True
    )
    characters, growth = process.stdout.split()
    assert int(characters) > size / 2 and float(growth) < 50, growth


def test_parquet_is_read_like_other_tables(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {"id": [1, 2, 3], "review": ["warm", "dull", "fine"], "label": [1, 0, 1]}
    path = tmp_path / "reviews.parquet"
    parquet.write_table(pyarrow.table(rows), path)
    assert list(read_labelled_texts(path)) == [("warm", "1"), ("dull", "0"), ("fine", "1")]
    assert list(text_examples.read_documents(path, column="review")) == rows["review"]
    pairs = [{"en": "cat", "ko": "고양이"}, {"en": "dog", "ko": "개"}]
    parquet.write_table(pyarrow.table({"translation": pairs}), tmp_path / "pairs.parquet")
    assert list(read_pairs(tmp_path / "pairs.parquet", "en", "ko")) == [("cat", "고양이"), ("dog", "개")]

    with pytest.raises(
        DataError, match=r"reviews.parquet:1: there is no 'body'; the fields are 'id', 'review', 'label'"
    ):
        list(text_examples.read_documents(path, column="body"))
    path.write_bytes(path.read_bytes()[:90])
    with pytest.raises(DataError, match=r"reviews.parquet cannot be read as a Parquet file"):
        list(read_labelled_texts(path))


def test_two_spellings_of_a_label_are_one_class(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(f"text\tlabel\nwarm\t{NFC}\nfine\t{NFD}\n")
    notices: list[str] = []
    problems = ProblemLog(notify=lambda notice: notices.append(str(notice)))
    assert [label for _, label in read_labelled_texts(tmp_path / "a.tsv", problems)] == [NFC, NFC]
    assert len([line for line in notices if "decomposed" in line and NFC in line]) == 1


def test_a_huge_cell_is_reported_or_cut(tmp_path: Path) -> None:
    """One word of ten million characters took minutes, or gigabytes, in the tokenizer."""
    text = "x" * 10_000_000
    (tmp_path / "pairs.tsv").write_text(f"source\ttarget\na\tb\n{text}\tb\n")
    with pytest.raises(DataError, match=r"pairs.tsv:3: a cell has 10,000,000 characters; the limit is 1,000,000"):
        list(read_pairs(tmp_path / "pairs.tsv"))
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": text}))
    (tmp_path / "plain.txt").write_text("a line\n" + text)
    for name, expected in (("texts.jsonl", text), ("plain.txt", f"a line\n{text}\n")):
        pieces = list(text_examples.read_pieces(tmp_path / name))
        assert "".join(piece.text for piece in pieces) == expected
        assert max(len(piece.text) for piece in pieces) <= text_examples.PIECE_SIZE + len("a line\n")
        assert [piece.ends_document for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    words = " ".join(["word"] * 100_000)
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": words}))
    texts = list(text_examples.read_documents(tmp_path / "texts.jsonl"))
    assert "".join(texts) == words and len(texts) == 4 and all(text.endswith("word") for text in texts)
