"""CSV files with semicolons, as Korean and European spreadsheets write them, and lines lost to an open quote."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from jumok.data.readers.file_format import FileFormat
from jumok.data.readers.lines import Notice, ProblemLog
from jumok.data.readers.tables import TableNotice
from jumok.data.readers.text_examples import read_documents, read_labelled_texts, read_pairs
from jumok.errors import DataError

REVIEWS = [("재미있다, 정말", "좋음"), ('"명작"; 또 본다', "좋음"), ("지루하다", "나쁨"), ("두 줄\n리뷰", "나쁨")]


def write_rows(path: Path, rows: list[tuple[str, ...]], separator: str, quoting: int, encoding: str = "utf-8") -> Path:
    lines = io.StringIO()
    csv.writer(lines, delimiter=separator, quoting=quoting).writerows(rows)
    path.write_bytes(lines.getvalue().encode(encoding))
    return path


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("header", [[], [("리뷰", "감정")]])
def test_both_separators_give_the_same_rows(
    tmp_path: Path, quoting: int, separator: str, header: list[tuple[str, str]]
) -> None:
    path = write_rows(tmp_path / "a.csv", header + REVIEWS, separator, quoting, "cp949")
    notices: list[Notice] = []
    texts = read_labelled_texts(path, ProblemLog(notify=notices.append), file_format=FileFormat("cp949"))
    assert list(texts) == REVIEWS
    assert ("the cells are separated by semicolons" in str(notices[0])) == (separator == ";")
    assert isinstance(notices[0], TableNotice) and notices[0].to_json()["separator"] == separator


def test_row_with_too_few_cells_is_reported_with_semicolons_too(tmp_path: Path) -> None:
    rows: list[tuple[str, ...]] = [("text", "label"), *REVIEWS, ("한 칸",), ("끝", "좋음")]
    path = write_rows(tmp_path / "a.csv", rows, ";", csv.QUOTE_MINIMAL)
    with pytest.raises(DataError, match=r"a\.csv:7: expected 2 columns, got 1"):
        list(read_labelled_texts(path))
    assert len(list(read_labelled_texts(path, ProblemLog(skip=True)))) == 5


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("text\nI came; I saw\nHe ate; he left\n", ["I came; I saw", "He ate; he left"]),
        ("I came; I saw\nHe ate; he left\n", ["I came; I saw", "He ate; he left"]),
        ("id;text\n1;a, b\n2;c\n", ["a, b", "c"]),
    ],
)
def test_semicolons_of_a_text_are_no_separators(tmp_path: Path, content: str, expected: list[str]) -> None:
    (tmp_path / "a.csv").write_text(content)
    assert list(read_documents(tmp_path / "a.csv")) == expected


def test_semicolon_columns_by_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;good morning;안녕하세요\n2;thank you, Kim;감사합니다\n")
    file_format = FileFormat(header="no")
    pairs = [("안녕하세요", "good morning"), ("감사합니다", "thank you, Kim")]
    assert list(read_pairs(tmp_path / "a.csv", "3", "2", file_format=file_format)) == pairs
    assert list(read_documents(tmp_path / "a.csv", column="2", file_format=file_format))[1] == "thank you, Kim"


@pytest.mark.parametrize(
    ("content", "location", "count"),
    [
        (b'text,label\na,x\n"b,x\nc,y\nd,y\n', "a.csv:3", 3),
        (b'text,label\na,x\n"b,x\nc,y\nd"z,y\n', "a.csv:3", 3),
        (b'text,label\na,x\n\n"b,x\n', "a.csv:4", 1),
        (b'text,label\na,x\n\xff\n"b,x\n\xff\nd,y\n', "a.csv:4", 4),  # two of them are not UTF-8
    ],
)
def test_every_line_lost_to_an_open_quote_is_counted(tmp_path: Path, content: bytes, location: str, count: int) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    problems = ProblemLog(skip=True)
    assert list(read_labelled_texts(tmp_path / "a.csv", problems)) == [("a", "x")]
    assert problems.count == count
    assert any(f"{location}: the quotes do not match" in line for line in problems.first)


def test_row_with_an_unusable_line_inside_has_its_own_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'text,label\nc,x\n"\n\xff\n",y\n')
    problems = ProblemLog(skip=True)
    assert list(read_labelled_texts(tmp_path / "a.csv", problems)) == [("c", "x")]
    assert f"{tmp_path / 'a.csv'}:3: text is empty" in problems.first
