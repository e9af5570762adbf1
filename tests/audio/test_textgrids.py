"""TextGrid files of Praat are read in both forms and both encodings, and damaged ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumok.data.datasets.speech_recordings import RecordedWord, read_textgrid
from jumok.errors import DataError

SHORT = '''File type = "ooTextFile"
Object class = "TextGrid"

0
1.5
<exists>
2
"IntervalTier"
"words"
0
1.5
3
0
0.25
""
0.25
1
"say ""주목"""
1
1.5
" 42 "
"TextTier"
"clicks"
0
1.5
1
0.7
"click"
'''
LONG = '''File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 1.5
tiers? <exists>
size = 2
item []:
    item [1]:
        class = "IntervalTier"
        name = "words"
        xmin = 0
        xmax = 1.5
        intervals: size = 3
        intervals [1]:
            xmin = 0
            xmax = 0.25
            text = ""
        intervals [2]:
            xmin = 0.25
            xmax = 1
            text = "say ""주목"""
        intervals [3]:
            xmin = 1
            xmax = 1.5
            text = " 42 "
    item [2]:
        class = "TextTier"
        name = "clicks"
        xmin = 0
        xmax = 1.5
        points: size = 1
        points [1]:
            number = 0.7
            mark = "click"
'''
WORDS = [RecordedWord("", 0.0, 0.25), RecordedWord('say "주목"', 0.25, 1.0), RecordedWord("42", 1.0, 1.5)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("text", [SHORT, LONG, SHORT.replace("\n", "\r\n"), LONG.replace("\n", " \r\n")])
def test_both_forms_have_the_same_content(text: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.TextGrid").write_bytes(text.encode(encoding))
    assert read_textgrid(tmp_path / "a.TextGrid") == {"words": WORDS}


@pytest.mark.parametrize(
    ("original", "replacement", "message"),
    [
        ("ooTextFile", "other", "is not a TextGrid"),
        ("TextGrid", "PitchTier", "is not a TextGrid"),
        ('"clicks"', '"clicks', "breaks off|could not convert"),
        ("intervals: size = 3", "intervals: size = 999999999999", "could not convert|breaks off|invalid literal"),
        ("xmax = 0.25", "xmax = 1.25", "goes from 0.25 to 1.0 seconds, after one that ends at 1.25"),
        ("xmin = 1\n", "xmin = 2\n", "interval 3 of 'words' goes from 2.0 to 1.5"),
        (
            "xmax = 1.5\n            text",
            "xmax = 1e999\n            text",
            "goes from 1.0 to inf",
        ),
        ("size = 2", "size = two", "could not convert|invalid literal"),
        ('"TextTier"', '"IntervalTier"', "could not convert|invalid literal"),
    ],
)
def test_a_damaged_file_is_refused(original: str, replacement: str, message: str, tmp_path: Path) -> None:
    assert original in LONG
    (tmp_path / "a.TextGrid").write_text(LONG.replace(original, replacement), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_textgrid(tmp_path / "a.TextGrid")


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.TextGrid"
    with pytest.raises(DataError, match=r"cannot be read as a TextGrid: .*No such file"):
        read_textgrid(path)
    for content, message in ((b"", "breaks off"), (b"\xe9" * 9, "codec can't decode"), (b"hello" * 9, "breaks off")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_textgrid(path)
    tier = SHORT[SHORT.index('"IntervalTier"') : SHORT.index('"TextTier"')]
    path.write_text(SHORT[: SHORT.index('"TextTier"')] + tier, encoding="utf-8")
    with pytest.raises(DataError, match="has two tiers named 'words'"):
        read_textgrid(path)
