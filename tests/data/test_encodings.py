"""Read files that are not UTF-8, and suggest the encoding when it is missing or wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumok.data.readers.file_format import FileFormat, check_encoding, suggest_encoding
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_examples import read_documents, read_labelled_texts, read_pairs
from jumok.errors import ArgumentError, DataError

TEXT = "리뷰,감정\n재미있는 영화,긍정\n지루하고 길다,부정\n"
EXPECTED = [("재미있는 영화", "긍정"), ("지루하고 길다", "부정")]


@pytest.mark.parametrize("encoding", ["cp949", "EUC-KR", "utf-16", "utf-16-le", "utf-16-be", "utf-8", "utf-32"])
def test_tables_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(TEXT.encode(encoding))
    assert list(read_labelled_texts(path, file_format=FileFormat(encoding))) == EXPECTED


def test_byte_order_marks_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for encoding, content in (
        ("utf-8", TEXT.encode("utf-8-sig")),
        ("utf-16-le", b"\xff\xfe" + TEXT.encode("utf-16-le")),
        ("utf-16", b"\xfe\xff" + TEXT.encode("utf-16-be")),
    ):
        path.write_bytes(content)
        assert list(read_labelled_texts(path, file_format=FileFormat(encoding))) == EXPECTED


def test_all_readers_take_the_encoding(tmp_path: Path) -> None:
    cp949 = FileFormat("cp949")
    for name, content in (
        ("a.txt", "한글\n"),
        ("a.jsonl", '{"text": "한글"}\n'),
        ("a.po", 'msgid "one"\nmsgstr "한글"\n'),
        ("a.tsv", "하나\t한글\n"),
    ):
        (tmp_path / name).write_bytes(content.encode("cp949"))
    assert list(read_documents([tmp_path / "a.txt", tmp_path / "a.jsonl"], file_format=cp949)) == ["한글\n", "한글"]
    assert list(read_pairs([tmp_path / "a.po", tmp_path / "a.tsv"], file_format=cp949)) == [
        ("one", "한글"),
        ("하나", "한글"),
    ]


@pytest.mark.parametrize(
    ("written", "read", "message"),
    [
        ("cp949", "utf-8", r"a.csv:1: character 1 .* not UTF-8 text; it reads as CP949: add --encoding cp949; or skip"),
        ("utf-16", "utf-8", "the file is in UTF-16: add --encoding utf-16; or skip"),
        ("utf-16", "cp949", "the file is in UTF-16: add --encoding utf-16; or skip"),
        ("utf-8-sig", "cp949", "the file is in UTF-8: remove --encoding cp949; or skip"),
        ("utf-8", "cp949", r"a.csv:1: the file is in UTF-8: remove --encoding cp949; or skip"),
        ("utf-8", "latin-1", r"a.csv:1: the file is in UTF-8: remove --encoding latin-1; or skip"),
        ("utf-8", "utf-16", "the file has no byte order mark; give utf-16-le or utf-16-be"),
        ("utf-8", "ascii", "the file is in UTF-8: remove --encoding ascii; or skip"),
    ],
)
def test_wrong_encoding_is_reported_with_a_suggestion(tmp_path: Path, written: str, read: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(TEXT.encode(written))
    with pytest.raises(DataError, match=message):
        list(read_labelled_texts(path, file_format=FileFormat(read)))
    problems = ProblemLog(skip=True)
    with pytest.raises(DataError, match="there are no labelled texts"):
        list(read_labelled_texts(path, problems, file_format=FileFormat(read)))
    assert problems.count >= 1


def test_mixed_file_is_reported_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("처음은 이렇게\n".encode("cp949") * 1000 + "나중은 다르게\n".encode())
    with pytest.raises(DataError, match=r"a.txt:1001: .* not CP949 text; it reads as UTF-8: remove --encoding cp949"):
        list(read_documents(path, file_format=FileFormat("cp949")))


def test_suggestions() -> None:
    assert suggest_encoding("naïve café".encode("latin-1")) == "cp1252"
    assert suggest_encoding("これは日本語です".encode("shift_jis")) == "shift_jis"
    assert suggest_encoding("똠방각하 뷁".encode("cp949")) == "cp949"
    assert suggest_encoding(b"\x81\x20\xff\xfe\x00") is None


def test_utf_16_without_a_mark_is_suggested(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("plain words\n".encode("utf-16-be"))
    with pytest.raises(DataError, match="it reads as UTF-16-BE: add --encoding utf-16-be"):
        list(read_documents(path))
    path.write_bytes(b"\xff\xfe" + "한글".encode("utf-16-le") + b"\xd8")  # cut in the middle of a character
    with pytest.raises(DataError, match=r"(?i)not utf-16 text"):
        list(read_documents(path, file_format=FileFormat("utf-16")))


@pytest.mark.parametrize("name", ["cp94", "utf9", "base64", "rot13", "undefined", "", "a\0b", "x" * 5000])
def test_unknown_encodings_are_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(ArgumentError, match="unknown encoding") as refused:
        FileFormat(name)
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)
    assert check_encoding("euc-kr") == "euc_kr"


def test_near_name_is_suggested() -> None:
    with pytest.raises(ArgumentError, match="did you mean 'cp949'"):
        check_encoding("cp94")
