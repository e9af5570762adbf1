"""Decide whether the first row of a table is a header, and find the columns; check what the user is told about it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from jumok.data.readers import tables as table_reader
from jumok.data.readers.file_format import FileFormat
from jumok.data.readers.file_list import UnreadFiles, is_description, list_files
from jumok.data.readers.labelled_files import read_captioned_images
from jumok.data.readers.lines import Notice, ProblemLog
from jumok.data.readers.tables import TableNotice
from jumok.data.readers.text_examples import read_documents, read_labelled_texts, read_pairs
from jumok.errors import ArgumentError, DataError

REVIEWS = [["fine film", "good"], ["dull, long", "bad"], ["great", "good"], ["poor", "bad"], ["nice", "good"]]
STARS = [["fine film", "5"], ["dull", "1"], ["so so", "3"]]
PAIRS = [["good morning", "안녕하세요"], ["thank you", "감사합니다"]]


def write_table(path: Path, rows: list[list[str]]) -> Path:
    lines = io.StringIO()
    if path.suffix == ".csv":
        csv.writer(lines).writerows(rows)
    else:
        lines.write("".join("\t".join(row) + "\n" for row in rows))
    path.write_text(lines.getvalue(), encoding="utf-8")
    return path


@pytest.mark.parametrize("extension", [".csv", ".tsv"])
@pytest.mark.parametrize(
    ("header", "rows"),
    [
        (["review", "sentiment"], REVIEWS),
        (["Text", "Label"], REVIEWS),
        (["문장", "감정"], REVIEWS),
        (["리뷰", "라벨"], STARS),
        (["opinion", "mood"], REVIEWS),  # unknown names: the label "mood" occurs nowhere else
        (["opinion", "worth"], STARS),  # all other labels are numbers
    ],
)
def test_header_of_labelled_texts_is_not_an_example(
    tmp_path: Path, extension: str, header: list[str], rows: list[list[str]]
) -> None:
    path = write_table(tmp_path / f"a{extension}", [header, *rows])
    assert list(read_labelled_texts(path)) == [tuple(row) for row in rows]


@pytest.mark.parametrize(
    "rows",
    [
        REVIEWS,
        STARS,
        [["good", "positive"], ["bad", "negative"], ["fine", "positive"], ["poor", "negative"], ["awful", "negative"]],
        [["class", "noun"], ["label", "noun"], ["run", "verb"], ["go", "verb"], ["text", "noun"]],  # English words
        [["a very good film indeed", "joy"], *[["x", "anger"], ["y", "fear"]] * 4],  # a sentence is no column name
        [["Superb!", "joy"], *[["x", "anger"], ["y", "fear"]] * 4],
        [["first", "9"], *[["x", "1"], ["y", "2"]] * 4],  # a number among numbers is a label
        [["a", "p"], ["b", "q"]],
    ],
)
def test_first_row_of_data_is_an_example(tmp_path: Path, rows: list[list[str]]) -> None:
    assert list(read_labelled_texts(write_table(tmp_path / "a.csv", rows))) == [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("header", "order"),
    [
        (["english", "korean"], (0, 1)),
        (["en", "ko"], (0, 1)),
        (["Korean", "English"], (0, 1)),  # languages are taken in their order
        (["영어", "한국어"], (0, 1)),
        (["원문", "번역"], (0, 1)),
        (["target", "source"], (1, 0)),  # these names say which is which
        (["tgt", "src"], (1, 0)),
    ],
)
def test_header_of_pairs_is_not_a_pair(tmp_path: Path, header: list[str], order: tuple[int, int]) -> None:
    path = write_table(tmp_path / "a.tsv", [header, *PAIRS])
    assert list(read_pairs(path)) == [(row[order[0]], row[order[1]]) for row in PAIRS]


@pytest.mark.parametrize(
    "first",
    [["class", "클래스"], ["english", "영어"], ["label", "레이블"], ["source", "원문"], ["it", "es"], ["text", "문장"]],
)
def test_words_of_a_dictionary_are_pairs(tmp_path: Path, first: list[str]) -> None:
    path = write_table(tmp_path / "a.tsv", [first, *PAIRS])
    assert list(read_pairs(path)) == [tuple(row) for row in [first, *PAIRS]]


def test_columns_are_found_by_name_in_wide_tables(tmp_path: Path) -> None:
    numbered = [[str(number), *row, "2024"] for number, row in enumerate(REVIEWS)]
    path = write_table(tmp_path / "a.csv", [["", "review", "sentiment", "when"], *numbered])
    assert list(read_labelled_texts(path)) == [tuple(row) for row in REVIEWS]
    assert list(read_documents(path)) == [text for text, _ in REVIEWS]
    path = write_table(tmp_path / "b.tsv", [["id", "document", "label"], ["1", "좋다", "1"]])
    assert list(read_labelled_texts(path)) == [("좋다", "1")]
    path = write_table(tmp_path / "c.tsv", [["id", "en", "ko", "remark"], ["1", "one", "하나", "x"]])
    assert list(read_pairs(path)) == [("one", "하나")]
    path = write_table(tmp_path / "d.tsv", [["label", "remarks"], *[[label, text] for text, label in REVIEWS]])
    assert list(read_labelled_texts(path)) == [tuple(row) for row in REVIEWS]


def test_requested_names_numbers_and_header(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.csv", [["a", "b", "c"], ["1", "2", "3"]])
    assert list(read_pairs(path, "c", "a")) == [("3", "1")]
    assert list(read_pairs(path, "3", "1")) == [("c", "a"), ("3", "1")]
    assert list(read_pairs(path, "3", "1", file_format=FileFormat(header="yes"))) == [("3", "1")]
    with pytest.raises(DataError, match="there is no column 'c'"):
        list(read_pairs(path, "c", "a", file_format=FileFormat(header="no")))
    named = write_table(tmp_path / "b.csv", [["text", "label"], ["x", "y"]])
    assert list(read_labelled_texts(named, file_format=FileFormat(header="no"))) == [("text", "label"), ("x", "y")]
    plain = write_table(tmp_path / "c.csv", [["p", "q"], ["x", "y"]])
    assert list(read_labelled_texts(plain, file_format=FileFormat(header="yes"))) == [("x", "y")]
    assert list(read_documents(plain, column="2")) == ["q", "y"]
    jsonl = tmp_path / "d.jsonl"
    jsonl.write_text('{"review": "x", "sentiment": 1, "id": 7}\n', encoding="utf-8")
    assert list(read_labelled_texts(jsonl)) == [("x", "1")]
    assert list(read_labelled_texts(jsonl, text="id", label="review")) == [("7", "x")]
    jsonl.write_text('{"translation": {"ko": "하나", "en": "one"}}\n', encoding="utf-8")
    assert list(read_pairs(jsonl)) == [("하나", "one")]
    with pytest.raises(ArgumentError, match="header must be one of auto, yes, no"):
        FileFormat(header="maybe")


@pytest.mark.parametrize(
    ("rows", "names", "message"),
    [
        ([["review", "sentiment"], ["x", "y"]], {"text": "reveiw"}, "'reveiw'; .*'review'.*did you mean text=review"),
        ([["review", "sentiment"], ["x", "y"]], {"label": "9"}, "there is no column '9'"),
        ([["id", "text", "mood"], ["1", "x", "y"]], {}, "no column 'label'; the first row is 'id', 'text', 'mood'"),
        ([["a", "b", "c"], ["1", "x", "y"]], {}, "say which it is with text=NAME and label=NAME, or with the number"),
        ([["text|label"], ["x|y"]], {}, r"separated by '\|' \(\.csv: commas or semicolons"),
        ([["one"], ["two"]], {}, "there is no column 'text' and 'label'; the first row is 'one'"),
    ],
)
def test_missing_columns_are_listed_with_a_suggestion(
    tmp_path: Path, rows: list[list[str]], names: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message) as refused:
        list(read_labelled_texts(write_table(tmp_path / "a.csv", rows), **names))
    assert "--skip-bad" not in str(refused.value) and len(str(refused.value)) < 400


def test_user_is_told_which_columns_were_taken(tmp_path: Path) -> None:
    notices: list[Notice] = []
    problems = ProblemLog(notify=notices.append)
    path = write_table(tmp_path / "a.csv", [["review", "sentiment"], *REVIEWS])
    list(read_labelled_texts(path, problems))
    list(read_pairs(write_table(tmp_path / "b.tsv", PAIRS), problems=problems))
    assert str(notices[0]) == (
        f"{path}: the first row is a header; text = 'review' (column 1), label = 'sentiment' (column 2); "
        "first example: text 'fine film', label 'good'"
    )
    assert "no header, the first row is data (if not, set header=yes); source = column 1, target = column 2" in str(
        notices[1]
    )
    assert isinstance(notices[0], TableNotice) and notices[0].to_json()["example"] == {
        "text": "fine film",
        "label": "good",
    }
    hostile = write_table(tmp_path / "c.tsv", [["\x1b[31mred" + "x" * 10_000, "[/b]"]])
    list(read_pairs(hostile, problems=problems))
    assert "\x1b" not in str(notices[2]) and len(str(notices[2])) < len(str(hostile)) + 300


def test_only_the_first_rows_are_read_before_the_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "PREVIEW_ROWS", 3)
    path = write_table(tmp_path / "a.csv", [*REVIEWS, ["broken row"]])
    rows = read_labelled_texts(path)
    assert [next(rows) for _ in REVIEWS] == [tuple(row) for row in REVIEWS]
    with pytest.raises(DataError, match=r"a.csv:6: expected 2 columns, got 1"):
        next(rows)


def test_captions_with_other_headers_and_without(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"")
    rows = [["a.png", "a cat"], ["b.png", "a dog"]]
    expected = [(tmp_path / name, text) for name, text in rows]
    for header in ([], [["image", "caption"]], [["Bild", "Beschreibung"]], [["파일명", "설명"]]):
        write_table(tmp_path / "captions.tsv", [*header, *rows])
        assert list(read_captioned_images(tmp_path)) == expected, header
    write_table(tmp_path / "captions.tsv", [["caption", "n", "picture"], ["a cat", "1", "a.png"]])
    assert list(read_captioned_images(tmp_path)) == expected[:1]
    assert list(read_captioned_images(tmp_path, caption="n")) == [(tmp_path / "a.png", "1")]


def test_licences_and_readmes_are_not_data(tmp_path: Path) -> None:
    for name in ("poem.txt", "LICENSE", "README.md", "sub/COPYING.txt", "sub/licence-plates.txt", "LICENSE-MIT"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n", encoding="utf-8")
    notices: list[Notice] = []
    texts = list(read_documents(tmp_path, ProblemLog(notify=notices.append)))
    assert texts == ["poem.txt\n", "sub/licence-plates.txt\n"]
    assert len(notices) == 1 and isinstance(notices[0], UnreadFiles)
    assert "4 files were not read, as licences and readmes are not data: " in str(notices[0])
    assert list(list_files(tmp_path / "LICENSE")) == [tmp_path / "LICENSE"], "a file that is named is read"
    assert [name for name in ("readme", "Readme.ko.md", "NOTICE", "UNLICENSE") if not is_description(name)] == []
    assert [name for name in ("notice-board.txt", "readmes.csv", "licensed.txt") if is_description(name)] == []


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize(("text", "label"), [("review", "review"), (None, "review"), ("2", "stars")])
def test_one_column_for_two_roles_is_refused(tmp_path: Path, name: str, text: str | None, label: str) -> None:
    rows = {
        "a.csv": "review,stars\nfine,5\ndull,1\n",
        "a.jsonl": '{"review": "fine", "stars": "5"}\n{"review": "dull", "stars": "1"}\n',
    }
    path = tmp_path / name
    path.write_text(rows[name])
    with pytest.raises(DataError, match=rf"{path}.*: text and label would both be .* with text=NAME and label=NAME"):
        list(read_labelled_texts(path, text=text, label=label))


def test_header_hint_is_not_given_if_the_user_said_so(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.tsv", REVIEWS)
    for header, has_hint in (("auto", True), ("no", False)):
        notices: list[Notice] = []
        list(read_labelled_texts(path, ProblemLog(notify=notices.append), file_format=FileFormat(header=header)))
        assert "no header, the first row is data" in str(notices[0])
        assert ("set header=yes" in str(notices[0])) == has_hint
