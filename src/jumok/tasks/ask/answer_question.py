"""Answer a question from an index of files: search, read, cut every passage, and decide what the answer is worth."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jumok.checkpoint import Loaded, load
from jumok.errors import ArgumentError
from jumok.models.fusion import Fusion
from jumok.models.gpt import GPT
from jumok.retrieval import FolderIndex, Hit, open_index
from jumok.retrieval.store.folder_index import DEFAULT_EMBEDDER

from .answer import Answer, CutPassage, Verdict, VerdictRule
from .quotation import find_quotation, find_unsupported_words
from .readers import FusionReader, PromptReader, Reader, Reading

NEAR_HITS = 20  # the first passages of a search are never used as controls: they may be about the question
MAX_QUESTION = 2_000  # characters; the embedding model reads about 250 words
CANDIDATES = 16  # random passages compared for each control; the one with the most similar length is chosen
QUOTED_HITS = 5  # passages in which the sentence that answers the question is searched
SHOWN_HITS = 3  # passages that are shown where nothing is read


@dataclass(frozen=True)
class AskSettings:
    """How a question is answered."""

    passages: int = 1  # that are read; a small model answers better from one than from three
    limit: int = 32  # the largest number of tokens of the answer
    method: str = "auto"  # how passages are found: "auto", "bm25", "dense" or "fused"
    why: bool = False  # also measure the attention on each passage, and the effect of control passages
    controls: int = 2
    rule: VerdictRule = field(default_factory=VerdictRule)

    def __post_init__(self) -> None:
        for name in ("passages", "limit"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1, not {getattr(self, name)}")


def ask(
    files: str | Path | FolderIndex,
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
        with open_index(files, embedder="auto") as index:
            return ask(index, question, reader, settings, report)
    if isinstance(reader, str | Path | Loaded):
        report("loading the reader")
        reader = create_reader(reader if isinstance(reader, Loaded) else load(reader))
    settings = settings or AskSettings()
    if len(question) > MAX_QUESTION:
        raise ArgumentError(f"the question has {len(question):,} characters; ask in at most {MAX_QUESTION:,}")
    if not question.strip():
        raise ArgumentError('the question is empty; ask for example: "Who owns the boat?"')
    report("searching")
    search_result = files.search(question, max(settings.passages, NEAR_HITS), settings.method)
    hits = search_result.hits[: settings.passages]
    method, note = search_result.method, search_result.note
    quotation = find_quotation(question, [hit.passage for hit in search_result.hits[:QUOTED_HITS]])
    if reader is not None and (explanation := reader.explain_unreadable(question)) is not None:
        reader, note = None, explanation if note is None else f"{note}; {explanation}"
    rule = replace(settings.rule, has_cosines=files.embedder in (None, DEFAULT_EMBEDDER))
    if reader is None or rule.rejects_search(question, hits, len(files)):
        shown = search_result.hits[: max(settings.passages, SHOWN_HITS)]
        verdict: Verdict | None = None if reader is None else "nothing fits"
        return Answer(
            question, verdict, None, None, tuple(CutPassage(hit) for hit in shown), method, note, None, quotation
        )

    report("reading")
    reading = reader.read(question, [hit.passage.text for hit in hits], settings.limit)
    report("cutting each passage")
    passages = [
        replace(cut, missing=find_unsupported_words(reading.text, cut.hit.passage, question))
        if rule.is_needed(cut)
        else cut
        for cut in measure_cuts(reader, reading, hits)
    ]
    verdict = rule.judge(question, passages, len(files)) if reading.text else "nothing fits"
    if settings.why:
        report("measuring attention")
        weights = reader.measure_attention(reading)
        passages = [replace(passage, attention=weight) for passage, weight in zip(passages, weights, strict=True)]
        report("cutting control passages")
        passages += measure_controls(
            files, reader, reading, {hit.number for hit in search_result.hits}, settings.controls
        )
    log_probability = sum(reading.log_probabilities)
    return Answer(question, verdict, reading.text, log_probability, tuple(passages), method, note, reading, quotation)


def create_reader(loaded: Loaded) -> Reader:
    """Return a reader for a language model or a Fusion-in-Decoder, with its tokenizer."""
    if isinstance(loaded.model, GPT):
        return PromptReader(loaded)
    if isinstance(loaded.model, Fusion):
        return FusionReader(loaded)
    raise ArgumentError(
        f"a {loaded.family} model cannot answer questions from passages; choose a language model such as smollm2, or a "
        "run of the recipe reader"
    )


def measure_cuts(reader: Reader, reading: Reading, hits: Sequence[Hit]) -> list[CutPassage]:
    """Return each passage with the change of the text's log-probability when it is cut."""
    passages = []
    for hit, scores in zip(hits, reader.score_cuts(reading), strict=True):
        changes = [after - before for after, before in zip(scores, reading.log_probabilities, strict=True)]
        word_change = min(changes, default=0.0)
        word = reading.words[changes.index(word_change)] if changes else ""
        passages.append(CutPassage(hit, sum(changes), word, word_change))
    return passages


def measure_controls(
    index: FolderIndex, reader: Reader, reading: Reading, excluded: set[int], count: int
) -> list[CutPassage]:
    """Put control passages before the others, and cut each of them; the text of the answer stays the same."""
    length = max(map(len, reading.passages))
    hits = choose_controls(index, reading.question, excluded, length, count)
    if not hits or not reading.token_ids:
        return []
    texts = [hit.passage.text for hit in hits]
    scored = reader.score(reading.question, [*reading.passages, *texts], reading.token_ids)
    padding = [hits[0]] * len(reading.passages)  # the passages of the answer were measured without controls
    controls = measure_cuts(reader, scored, [*padding, *hits])[len(padding) :]
    weights = reader.measure_attention(scored)[len(padding) :]
    return [
        replace(passage, attention=weight, is_control=True) for passage, weight in zip(controls, weights, strict=True)
    ]


def choose_controls(
    passages: FolderIndex, question: str, excluded: Collection[int], length: int, count: int
) -> list[Hit]:
    """Return control passages, to compare the effect of a cut with: random ones of a similar length.

    The same question in the same index gives the same passages. ``excluded`` are the numbers of passages that may fit
    the question; fewer than ``count`` are returned if there are too few others.
    """
    generator = random.Random(f"{len(passages)} {question}")
    numbers = [
        number
        for number in generator.sample(range(len(passages)), min(len(passages), CANDIDATES * count + len(excluded)))
        if number not in excluded
    ]
    controls = []
    for start in range(0, min(len(numbers), CANDIDATES * count), CANDIDATES):
        candidates = [(number, passages.get(number)) for number in numbers[start : start + CANDIDATES]]
        number, passage = min(candidates, key=lambda candidate: abs(len(candidate[1].text) - length))
        controls.append(Hit(number, passage, score=0.0))
    return controls
