"""Answer a question from an index of files: search, read, cut every passage, and decide what the answer is worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from jumok.checkpoint import Loaded, load
from jumok.errors import ArgumentError
from jumok.retrieval import open_index
from jumok.retrieval.search import SearchResult

from .answer import Answer, CutPassage
from .controls import PassageCollection, choose_controls
from .reader_choice import create_reader
from .reading import Reader, Reading
from .verdict import VerdictRule

NEAR_HITS = 20  # so many passages of the search are never used as controls: they may be about the question


@runtime_checkable
class SearchableIndex(PassageCollection, Protocol):
    """An index of passages, such as a ``FolderIndex``."""

    def search(self, question: str, count: int = 5, method: str = "auto") -> SearchResult:
        """Return the passages that fit a question best.

        Args:
            question: The question.
            count: The largest number of passages.
            method: "auto", "bm25", "dense" or "fused".
        """
        ...


@dataclass(frozen=True)
class AskSettings:
    """How a question is answered.

    Args:
        passages: The number of passages that are read.
        limit: The largest number of tokens of the answer.
        method: How passages are found: "auto", "bm25", "dense" or "fused".
        why: Also measure the attention on each passage, and the effect of control passages.
        controls: The number of control passages.
        rule: The thresholds of the verdict.
    """

    passages: int = 3
    limit: int = 32
    method: str = "auto"
    why: bool = False
    controls: int = 2
    rule: VerdictRule = field(default_factory=VerdictRule)

    def __post_init__(self) -> None:
        for name in ("passages", "limit"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1, not {getattr(self, name)}")


def ask(
    files: str | Path | SearchableIndex,
    question: str,
    reader: str | Path | Loaded | Reader | None = "smollm2",
    settings: AskSettings | None = None,
    report: Callable[[str], None] | None = None,
) -> Answer:
    """Answer a question from the user's files, and measure which passage the answer depends on.

    Args:
        files: A folder, whose index is built or updated first; or an index that ``open_index`` returned.
        question: The question.
        reader: The model that reads the passages and writes the answer: a name, a folder, or a loaded model. None only
            searches.
        settings: How the question is answered; None = the defaults.
        report: Called with a few words for each step, for a progress display.

    Raises:
        ArgumentError: If the question is empty, does not fit into the reader's context with the passages, or the model
            cannot read passages.
        DataError: If the folder contains no text.
    """
    report = report or (lambda message: None)
    if isinstance(files, str | Path):
        report("indexing")
        with open_index(files) as index:
            return ask(index, question, reader, settings, report)
    if isinstance(reader, str | Path | Loaded):
        report("loading the reader")
        reader = create_reader(reader if isinstance(reader, Loaded) else load(reader))
    return _answer(files, question, reader, settings or AskSettings(), report)


def _answer(
    index: SearchableIndex, question: str, reader: Reader | None, settings: AskSettings, report: Callable[[str], None]
) -> Answer:
    """Search, read, cut every passage, and judge."""
    if not question.strip():
        raise ArgumentError('the question is empty; ask for example: "Who owns the boat?"')
    report("searching")
    search_result = index.search(question, max(settings.passages, NEAR_HITS), settings.method)
    hits = search_result.hits[: settings.passages]
    passages = tuple(CutPassage(hit) for hit in hits)
    note = search_result.note
    if reader is not None and (explanation := reader.explain_unreadable(question)) is not None:
        reader, note = None, join_notes(note, explanation)
    if reader is None:
        return Answer(question, None, None, None, passages, search_result.method, note)
    if settings.rule.rejects_search(question, hits):
        return Answer(question, "nothing fits", None, None, passages, search_result.method, note)

    report("reading")
    reading = reader.read(question, [hit.passage.text for hit in hits], settings.limit)
    report("cutting each passage")
    changes = measure_changes(reader, reading)
    passages = tuple(CutPassage(hit, change) for hit, change in zip(hits, changes, strict=True))
    if settings.why:
        report("measuring attention")
        weights = reader.measure_attention(reading)
        passages = tuple(
            dataclasses.replace(passage, attention=weight) for passage, weight in zip(passages, weights, strict=True)
        )
        report("cutting control passages")
        passages += _measure_controls(
            index, reader, reading, {hit.number for hit in search_result.hits}, settings.controls
        )
    verdict = settings.rule.judge(question, hits, changes) if reading.text else "nothing fits"
    return Answer(
        question,
        verdict,
        reading.text,
        sum(reading.log_probabilities),
        passages,
        search_result.method,
        note,
        reading.reached_limit,
    )


def join_notes(*notes: str | None) -> str | None:
    """Return several sentences as one; None if there are none.

    Args:
        *notes: The sentences, without a full stop.

    >>> join_notes(None, "the first", "the second")
    'the first; the second'
    """
    sentences = [note for note in notes if note is not None]
    return "; ".join(sentences) if sentences else None


def measure_changes(reader: Reader, reading: Reading) -> list[float]:
    """Return for each passage the change of the text's log-probability when the passage is cut, in nats.

    Args:
        reader: The reader.
        reading: The text, with its question and passages.
    """
    clean = sum(reading.log_probabilities)
    return [sum(log_probabilities) - clean for log_probabilities in reader.score_cuts(reading)]


def _measure_controls(
    index: SearchableIndex, reader: Reader, reading: Reading, excluded: set[int], count: int
) -> tuple[CutPassage, ...]:
    """Put control passages before the other passages, and cut each of them; the text of the answer stays the same."""
    length = max(map(len, reading.passages))
    controls = choose_controls(index, reading.question, excluded, length, count)
    if not controls or not reading.token_ids:
        return ()
    passages = [*reading.passages, *(control.passage.text for control in controls)]
    with_controls = reader.score(reading.question, passages, reading.token_ids)
    changes = measure_changes(reader, with_controls)[len(reading.passages) :]
    weights = reader.measure_attention(with_controls)[len(reading.passages) :]
    return tuple(
        CutPassage(hit, change, weight, is_control=True)
        for hit, change, weight in zip(controls, changes, weights, strict=True)
    )
