"""Cut files into passages: sizes, exact lines, headings, records, messages, encodings."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from jumok.retrieval import Passage
from jumok.retrieval.files.passage_cutter import LIMIT_WORDS, MIN_WORDS
from jumok.retrieval.files.read_passages import CLOCK_TICK, read_open_file, read_passages
from jumok.retrieval.files.safe_folder import UnusableFileError

WORDS = "the boat sails over a calm sea while gulls cry above old wooden masts and sailors sing".split()  # noqa: SIM905


def read(tmp_path: Path, name: str, content: str | bytes) -> list[Passage]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_passages(path, name))


def write_prose(seed: int, paragraphs: int = 40) -> str:
    """Paragraphs of sentences of 3 to 40 words, in lines of at most 60 characters."""
    generator = random.Random(seed)
    blocks = []
    for _ in range(paragraphs):
        words: list[str] = []
        for _ in range(generator.randint(1, 8)):
            sentence = generator.choices(WORDS, k=generator.randint(3, 40))
            words += [*sentence[:-1], sentence[-1] + generator.choice([".", "!", '?"'])]
        lines, line = [], ""
        for word in words:
            if len(line) + len(word) > 60:
                lines.append(line)
                line = ""
            line = f"{line} {word}" if line else word
        blocks.append("\n".join([*lines, line]))
    return ("\n" * generator.randint(2, 3)).join(blocks) + "\n"


@pytest.mark.parametrize("seed", range(5))
def test_passages_contain_every_word_once_on_their_lines(tmp_path: Path, seed: int) -> None:
    text = write_prose(seed)
    passages = read(tmp_path, "a.txt", text)
    assert " ".join(passage.text for passage in passages).split() == text.split()

    lines = text.split("\n")
    for passage in passages:
        words = passage.text.split()
        between = " ".join(lines[passage.first - 1 : passage.last]).split()
        # the words of the passage follow each other on these lines, and the first and the last line have some of them
        start = next(start for start in range(len(between)) if between[start : start + len(words)] == words)
        assert start < len(lines[passage.first - 1].split())
        assert start + len(words) > len(between) - len(lines[passage.last - 1].split())


@pytest.mark.parametrize("seed", range(5))
def test_passages_have_similar_sizes_and_end_with_sentences(tmp_path: Path, seed: int) -> None:
    passages = read(tmp_path, "a.txt", write_prose(seed))
    sizes = [len(passage.text.split()) for passage in passages]
    assert max(sizes) <= LIMIT_WORDS
    assert sum(size >= MIN_WORDS - 30 for size in sizes) >= 0.95 * len(sizes) - 1
    assert all(passage.text.endswith((".", "!", '?"')) for passage in passages)


def test_long_sentences_and_words_are_cut(tmp_path: Path) -> None:
    passages = read(tmp_path, "a.txt", "word " * 1000)
    assert [len(passage.text.split()) for passage in passages] == [90] * 11 + [10]
    assert {(passage.first, passage.last) for passage in passages} == {(1, 1)}

    encoded = "QUJD" * 100_000
    passages = read(tmp_path, "b.txt", f"before\n{encoded}\nafter\n")
    assert max(len(passage.text) for passage in passages) < 1500
    joined = "".join(passage.text for passage in passages).replace(" ", "")
    assert joined == f"before{encoded}after"
    assert (passages[0].first, passages[-1].last) == (1, 3)


def test_abbreviations_do_not_end_sentences(tmp_path: Path) -> None:
    text = "word " * 50 + "end. At 5 p.m. Mr. J. Smith " + "word " * 40 + "end.\n"
    assert [passage.text[:9] for passage in read(tmp_path, "a.txt", text)] == ["word word", "At 5 p.m."]


def test_line_ends_of_all_systems(tmp_path: Path) -> None:
    for end in ("\n", "\r\n", "\r"):
        text = end.join(["", "One.", "", "word " * 88 + "end.", "Last."])
        assert [(passage.first, passage.last) for passage in read(tmp_path, "a.txt", text)] == [(2, 4), (5, 5)]


def test_control_characters_are_removed(tmp_path: Path) -> None:
    (passage,) = read(tmp_path, "a.txt", "red \x1b[31mtext\x07 and \u2028 more\x9b.")
    assert passage.text == "red [31mtext and more ."


def test_markdown_headings_begin_the_passages_below_them(tmp_path: Path) -> None:
    text = f"""Before.

# Boats #

{"The boat sails. " * 40}

## Times

It leaves at seven.

```python
# not a heading
x = 1
```

Empty
-----
Title
=====
{"word " * 50}
"""
    passages = read(tmp_path, "a.md", text)
    assert [(passage.first, passage.last, passage.text.split("\n")[0]) for passage in passages] == [
        (1, 1, "Before."),
        (5, 5, "Boats"),
        (5, 5, "Boats"),
        (9, 14, "Boats > Times"),
        (16, 16, "Boats > Empty"),
        (20, 20, "Title"),
    ]
    assert passages[3].text == "Boats > Times\nIt leaves at seven.\n```python\n# not a heading\nx = 1\n```"
    assert passages[4].text == "Boats > Empty"
    assert read(tmp_path, "b.md", "# " + "very long heading " * 50)[0].text.startswith("very long heading")


def test_fields_at_the_beginning_of_markdown_are_no_headings(tmp_path: Path) -> None:
    text = "---\ntitle: Boats\ndate: 2026\n---\n\nThey sail.\n\nTimes\n---\nSeven.\n"
    assert [(passage.first, passage.last, passage.text) for passage in read(tmp_path, "a.md", text)] == [
        (1, 6, "---\ntitle: Boats\ndate: 2026\n---\nThey sail."),
        (10, 10, "Times\nSeven."),
    ]


def test_restructured_text_headings(tmp_path: Path) -> None:
    text = "Boats\n=====\n\nThey sail.\n\nTimes\n-----\nSeven.\n\nCats\n====\nThey sleep.\n"
    assert [(passage.first, passage.text) for passage in read(tmp_path, "a.rst", text)] == [
        (4, "Boats\nThey sail."),
        (8, "Boats > Times\nSeven."),
        (12, "Cats\nThey sleep."),
    ]


def test_lists_and_tables_keep_their_lines(tmp_path: Path) -> None:
    assert read(tmp_path, "a.txt", "Bring:\n- a rope\n- two\n  knives\n3. water\n")[0].text == (
        "Bring:\n- a rope\n- two knives\n3. water"
    )
    assert read(tmp_path, "a.csv", "name,age\nAda,36\nAlan,41\n")[0].text == "name,age\nAda,36\nAlan,41"


def test_po_messages(tmp_path: Path) -> None:
    text = r"""msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#: a.c:3
msgid "Open the "
"file"
msgstr "파일 열기"

#, fuzzy
msgid "%d boat"
msgid_plural "%d boats"
msgstr[0] "배 %d척"
nonsense
msgid "last"
msgstr ""
"끝"
"""
    problems: list[tuple[int, str]] = []
    path = tmp_path / "ko.po"
    path.write_text(text)
    with path.open("rb") as file:
        passages = list(read_open_file(file.fileno(), "ko.po", lambda line, reason: problems.append((line, reason))))
    assert [(passage.first, passage.last, passage.text) for passage in passages] == [
        (5, 7, "Open the file\n파일 열기"),
        (14, 16, "last\n끝"),
    ]
    assert problems == [(13, "a line that is not part of a .po message")]


def test_json_lines(tmp_path: Path) -> None:
    records = [
        json.dumps({"id": "7", "title": "Boats", "text": "They sail.\nThey float."}),
        "{broken",
        json.dumps({"name": "Ada", "born": 1815, "works": ["Notes", {"x": "Letters"}]}),
        "",
        json.dumps({"본문": "고양이가 잔다."}, ensure_ascii=False),
        "[" * 100_000,
        '{"text": "\\ud800 lone \\u0000 surrogate"}',
        json.dumps({"text": "word " * 200}),
        "17",
    ]
    problems: list[int] = []
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(records))
    with path.open("rb") as file:
        passages = list(read_open_file(file.fileno(), "a.jsonl", lambda line, reason: problems.append(line)))
    assert [(passage.first, passage.text) for passage in passages[:4]] == [
        (1, "Boats They sail. They float."),
        (3, "Ada Notes Letters"),
        (5, "고양이가 잔다."),
        (7, "lone surrogate"),
    ]
    assert [passage.first for passage in passages[4:]] == [8, 8, 8]
    assert problems == [2, 6]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8-sig", "A café on the pier."),
        ("utf-16", "A café on the pier."),
        ("cp949", "고양이는 창가에 앉아 있습니다. " * 5000),
        ("cp1252", "ASCII only here.\n" * 5000 + "The café of Brunetière opens at “noon”."),
    ],
)
def test_encodings(tmp_path: Path, encoding: str, text: str) -> None:
    passages = read(tmp_path, "a.txt", text.encode(encoding))
    assert " ".join(passage.text for passage in passages).split() == text.split()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"text\n" * 100_000 + b"\0", "binary"),
        ("UTF-16 without a mark".encode("utf-16-le"), "binary"),
        (bytes(range(1, 256)) * 100, "binary"),
        (b"\xff\xfe\xff", "not text in its encoding"),
        (b"abc \xf1\xf2\xf3 \x80\x81\x8d", "not UTF-8 text"),
        (b"", "empty"),
        (b" \n\n\t ", "empty"),
    ],
)
def test_files_that_are_not_text(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(UnusableFileError, match=f"^{reason}$"):
        read(tmp_path, "a.txt", content)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One sentence. " * 1000)
    passages = read_passages(path, "a.txt")
    next(passages)
    with path.open("a") as file:
        file.write("More.")
    with pytest.raises(UnusableFileError, match=r"^changed while it was read$"):
        list(passages)


def test_a_file_is_read_when_a_later_change_has_another_time(tmp_path: Path) -> None:
    """Reading waits for the next tick of the file system's clock: a change after it cannot have the same time."""
    path = tmp_path / "a.txt"
    path.write_text("old.")
    passages = read_passages(path, "a.txt")
    assert next(passages).text == "old."
    assert time.time() - path.stat().st_ctime >= CLOCK_TICK


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.po", "a.jsonl", "a.csv"])
def test_hostile_lines_take_linear_time(tmp_path: Path, name: str) -> None:
    """Each line takes minutes if a pattern is tried again at each of its characters."""
    letters = ["[", " ", "#", "-", "`", '"', "\\", ".", "!", "\t", "=", "é", "*", "x ", '."', "# ", "- "]
    lines = [start + letter * (8000 // len(letter)) + "x" for letter in letters for start in ("", "# ", 'msgid "')]
    path = tmp_path / name
    path.write_text("\n".join(lines))
    try:
        passages = list(read_passages(path, name))
    except UnusableFileError:
        passages = []
    assert all(len(passage.text) < 2000 for passage in passages)
