"""Compare the reader of gettext .po files with polib; check errors by file and line."""

from __future__ import annotations

from pathlib import Path

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_examples import read_pairs
from jumok.errors import DataError

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


def test_po_file_agrees_with_polib(tmp_path: Path) -> None:
    path = tmp_path / "ko.po"
    path.write_text(PO, encoding="utf-8")
    expected = []
    for entry in polib.pofile(str(path)):
        if entry.obsolete or "fuzzy" in entry.flags:
            continue
        forms = [entry.msgstr_plural[key] for key in sorted(entry.msgstr_plural)] or [entry.msgstr]
        forms_of_entry = [(entry.msgid, forms[0]), (entry.msgid_plural, forms[-1])]
        expected += [(original, translation) for original, translation in forms_of_entry if original and translation]
    pairs = list(read_pairs(path))
    assert pairs == expected and len(pairs) == 9
    assert ("many days", "여러 날") in pairs and ("%d files", "파일 %d개") in pairs
    assert ("Open", "열림") in pairs and not dict(pairs).get("Perhaps")
    assert list(read_pairs(path, "msgstr", "msgid")) == [(translation, original) for original, translation in pairs]


@given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"))] * 2)))
def test_po_file_written_by_polib_round_trip(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    pairs = [pair for pair in pairs if all(field.strip() for field in pair)]
    if not pairs:
        return
    po_file = polib.POFile()
    po_file.metadata = {"Content-Type": "text/plain; charset=utf-8"}
    for original, translation in pairs:
        po_file.append(polib.POEntry(msgid=original, msgstr=translation))
    path = tmp_path_factory.mktemp("po") / "a.po"
    path.write_bytes(str(po_file).encode())
    assert list(read_pairs(path)) == pairs


@pytest.mark.parametrize(
    ("content", "location", "message"),
    [
        (
            'msgid "a"\nmsgstr "b"\nnonsense\n\nmsgid "c"\nmsgstr "d"\n',
            ":3: ",
            "not a valid line of a .po file: 'nonsense'",
        ),
        (
            'msgid "a"\nmsgstr "b"\n\nmsgid "unclosed\nmsgstr "x"\n\nmsgid "c"\nmsgstr "d"\n',
            ":4: ",
            "not a valid line of a .po",
        ),
        ('"floating"\nmsgid "a"\nmsgstr "b"\nmsgid "c"\nmsgstr "d"\n', ":1: ", "not a valid line of a .po"),
        ('msgid "a"\nmsgstr "b"\nmsgid "c"\nmsgstr "d"\nmsgid "e"\n', ":5: ", "a msgid without a msgstr"),
    ],
)
def test_damaged_po_file_is_reported(tmp_path: Path, content: str, location: str, message: str) -> None:
    path = tmp_path / "a.po"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError) as refused:
        list(read_pairs(path))
    assert f"{path}{location}" in str(refused.value) and message in str(refused.value)
    problems = ProblemLog(skip=True)
    pairs = list(read_pairs(path, problems=problems))
    assert problems.count == 1 and ("c", "d") in pairs
