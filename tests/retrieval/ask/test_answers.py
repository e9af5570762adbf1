"""Answers from files: verdicts, controls, notes, and the whole path with smollm2 and minilm."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest
import torch

import jumok
from catalogue_cache import CACHE, download_or_skip
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.models import GPT, GPTConfig
from jumok.retrieval import FolderIndex, Hit, Passage, open_index
from jumok.tasks.ask import AskSettings, CutPassage, PromptReader, Reading, VerdictRule, ask
from jumok.tasks.ask.answer import share_words
from jumok.tasks.ask.answer_question import choose_controls, measure_cuts
from jumok.tasks.ask.named_words import find_missing_words

FILES = {
    "boat.txt": "The ferry Halla leaves Jeju for Mokpo at 13:40 every day except Monday.\n\n"
    "A ticket for a car costs 64,000 won, and a dog travels without a fee.\n",
    "bakery.md": "# The bakery\n\nMrs. Oh opened the bakery in 1987 together with her sister.\n\n"
    "Their most popular bread contains chestnuts from Gongju.\n",
    "tower.txt": "The old tower has 214 steps. A blue lamp burns in its highest window in stormy nights.\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of notes, with an index in a cache of its own."""
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    notes = tmp_path / "notes"
    notes.mkdir()
    for name, text in FILES.items():
        (notes / name).write_text(text)
    return notes


@pytest.fixture
def index(folder: Path) -> Iterator[FolderIndex]:
    with open_index(folder, embedder=None) as opened:
        yield opened


@pytest.fixture
def reader() -> PromptReader:
    torch.manual_seed(5)
    model = GPT(GPTConfig(vocabulary=256, length=2048, width=16, layers=2, heads=2, positions="rotary")).eval()
    return PromptReader(Loaded(model, Tokenizer.for_bytes()))


def make_hit(cosine: float | None, text: str = "The ferry leaves at noon.") -> Hit:
    return Hit(0, Passage("a.txt", 1, 1, text), 1.0, bm25=2.0, cosine=cosine)


@pytest.mark.parametrize(
    ("cosine", "word_change", "expected"),
    [
        (0.44, -20.0, "nothing fits"),  # the search rules it out, whatever the model wrote
        (0.46, -3.1, "supported"),
        (0.46, -2.9, "nothing fits"),
        (0.56, -2.9, "not supported"),
        (0.56, +4.0, "not supported"),
        (0.56, -9.0, "supported"),
    ],
)
def test_a_verdict_reads_the_search_and_the_cut(cosine: float, word_change: float, expected: str) -> None:
    cuts = [CutPassage(make_hit(0.1), word_change=0.0), CutPassage(make_hit(cosine), word_change=word_change)]
    assert VerdictRule().judge("Who?", cuts, 30_000) == expected


def test_in_a_small_index_a_lower_cosine_is_enough() -> None:
    rule = VerdictRule()
    assert rule.rejects_search("Who?", [make_hit(0.3)], 30_000)
    assert not rule.rejects_search("Who?", [make_hit(0.3)], 30)


def test_without_vectors_the_shared_words_decide() -> None:
    rule = VerdictRule()
    question = "When does the ferry leave?"
    assert not rule.rejects_search(question, [make_hit(None)], 3)
    assert rule.rejects_search("Which volcano erupted last?", [make_hit(None)], 3)
    assert rule.judge(question, [CutPassage(make_hit(None), word_change=-1.0)], 3) == "not supported"
    assert rule.rejects_search(question, [], 3)
    assert share_words("what is the", "anything") == 0.0


def test_controls_are_other_passages_of_similar_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(40):
        (notes / f"{number}.txt").write_text(f"Note {number}. " + "word " * (3 * number))
    with open_index(notes, embedder=None) as index:
        excluded = {3, 4, 5}
        controls = choose_controls(index, "What?", excluded, 60, 2)
        assert controls == choose_controls(index, "What?", excluded, 60, 2)
        assert controls != choose_controls(index, "Who?", excluded, 60, 2)
    numbers = {control.number for control in controls}
    assert len(numbers) == 2 and not numbers & excluded
    assert all(len(control.passage.text) < 200 for control in controls), "the longest note has more than 500 letters"


def test_controls_of_a_tiny_index_are_those_that_exist(index: FolderIndex) -> None:
    everything = set(range(len(index)))
    assert choose_controls(index, "What?", everything, 50, 2) == []
    assert len(choose_controls(index, "What?", everything - {0}, 50, 2)) == 1


def test_an_answer_lists_what_was_measured(index: FolderIndex, reader: PromptReader) -> None:
    settings = AskSettings(passages=2, limit=4, why=True, method="bm25")
    steps: list[str] = []
    answer = ask(index, "When does the ferry leave Jeju?", reader, settings, steps.append)
    assert answer.passages[0].hit.passage.location == "boat.txt:1"
    retrieved = [cut for cut in answer.passages if not cut.is_control]
    reading = reader.read(answer.question, [cut.hit.passage.text for cut in retrieved], 4)
    clean = sum(reading.log_probabilities)
    expected = [sum(scores) - clean for scores in reader.score_cuts(reading)]
    assert [cut.change for cut in retrieved] == pytest.approx(expected, abs=1e-5)
    for cut, scores in zip(retrieved, reader.score_cuts(reading), strict=True):
        differences = [after - before for after, before in zip(scores, reading.log_probabilities, strict=True)]
        assert cut.word_change == pytest.approx(min(differences), abs=1e-5)
        assert cut.word == reading.words[differences.index(min(differences))]
    assert all(cut.attention is not None and 0 < cut.attention < 1 for cut in answer.passages)
    assert steps == ["searching", "reading", "cutting each passage", "measuring attention", "cutting control passages"]

    document = json.loads(json.dumps(answer.to_json()))
    assert document["passages"][0]["location"] == "boat.txt:1"
    assert document["log_probability"] == pytest.approx(clean, abs=1e-4)


class FixedReader(PromptReader):
    """A reader whose scores without the passage are given."""

    def __init__(self, scores: tuple[float, ...]) -> None:
        self.scores = scores

    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        return [self.scores]


def test_the_word_that_falls_most_is_named() -> None:
    reading = Reading("Where?", ("text",), (1, 2, 3), "in a tower", (-1.0, -1.0, -2.0), ("in", "a", "tower"))
    (cut,) = measure_cuts(FixedReader((-1.5, -0.5, -9.0)), reading, [make_hit(0.5)])
    assert (cut.word, cut.word_change, cut.change) == ("tower", -7.0, -7.0)


class WritingReader(PromptReader):
    """A reader that writes a given text, whose last word depends on the passages with a given text."""

    def __init__(self, text: str, needed: str) -> None:
        self.text, self.needed = text, needed

    def explain_unreadable(self, question: str) -> str | None:
        return None

    def read(self, question: str, passages: Sequence[str], limit: int, cut: Collection[int] = ()) -> Reading:
        words = tuple(self.text.split())
        return Reading(question, tuple(passages), tuple(range(len(words))), self.text, (-1.0,) * len(words), words)

    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        unchanged = reading.log_probabilities[1:]
        return [(*unchanged, -9.0 if self.needed in passage else -1.0) for passage in reading.passages]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("A ticket for a car costs 64000 won.", ()),
        ("A ticket for a car costs 100 won.", ("100",)),
        ("A ticket for a car costs 46,000 won.", ("46,000",)),
        ("A dog pays Mrs. Oh 64,000 won on Sunday.", ("Oh", "Sunday", "pays")),
        ("Kim owns a car.", ("Kim", "owns")),
    ],
)
def test_a_passage_without_the_numbers_and_names_of_an_answer_does_not_support_it(
    index: FolderIndex, text: str, missing: tuple[str, ...]
) -> None:
    question = "What does a ticket for a car cost?"
    answer = ask(index, question, WritingReader(text, "64,000"), AskSettings(passages=2, method="bm25"))
    needed = answer.passages[0]
    assert needed.hit.passage.location == "boat.txt:1" and needed.word_change == -8.0
    assert needed.missing == missing
    assert answer.verdict == ("partly supported" if missing else "supported")
    assert answer.citation is (None if missing else needed)
    assert answer.to_json()["passages"][0]["missing"] == list(missing)
    assert all(not cut.missing for cut in answer.passages[1:]), "the answer does not depend on these"


@pytest.mark.parametrize(
    ("text", "passage", "question", "missing"),
    [
        ("It cost 840.00 euros.", "The rent is 840 euros.", "", ()),
        ("Yes, it costs 100 euros.", "The rent is 840 euros.", "Is it 100 euros?", ("100",)),
        ("It has two hundred and fourteen steps.", "The tower has 214 steps.", "", ()),
        ("Twenty-one of 3 million.", "21 of 3,000,000", "", ()),
        ("at 13:40", "at 13:45, or 13.40", "", ("13:40",)),
        ("on 12 March 1987", "on 1987-03-12", "", ("March",)),
        ("on 2024-03-12", "12/3/2024", "", ()),
        ("One of them is in the house.", "They are at home.", "", ()),
        ("Because the cat is Alice's. I'm here.", "The cat of ALICE.", "", ()),
        ("Ahab killed the whale with J. Smith", "The whale died.", "Who was Captain Ahab?", ("J", "Smith")),
        ("In Cafe\u0301 Jeju, Mr. Oh", "the Caf\u00e9 is OH’s", "in Jeju?", ()),
        ("방은 840유로이다", "방세는 800유로이다", "", ("840",)),
    ],
)  # fmt: skip
def test_numbers_and_names_that_a_passage_does_not_contain(
    text: str, passage: str, question: str, missing: tuple[str, ...]
) -> None:
    assert find_missing_words(text, passage, question) == missing


def test_search_only_reads_nothing(index: FolderIndex) -> None:
    answer = ask(index, "When does the ferry leave Jeju?", None, AskSettings(passages=1))
    assert answer.verdict is None and answer.text is None
    assert answer.passages[0].hit.passage.location == "boat.txt:1"
    assert all(cut.change is None for cut in answer.passages)


def test_a_question_that_no_file_mentions_is_not_read(index: FolderIndex) -> None:
    answer = ask(index, "Which volcano erupted in Iceland?", RefusingReader())
    assert answer.verdict == "nothing fits" and answer.text is None


class RefusingReader(PromptReader):
    """A reader that must not be asked to read."""

    def __init__(self) -> None:
        pass

    def explain_unreadable(self, question: str) -> str | None:
        return None

    def read(self, *arguments: object) -> object:  # type: ignore[override]
        raise AssertionError("nothing fits, so nothing may be read")


def test_a_korean_question_says_that_an_english_reader_cannot_answer(index: FolderIndex, reader: PromptReader) -> None:
    answer = ask(index, "배는 언제 떠나나요?", reader)
    assert answer.verdict is None and answer.text is None
    assert answer.note is not None and "was not trained on the language of the question" in answer.note


@pytest.mark.parametrize("question", ["", "  \n"])
def test_an_empty_question_is_refused(index: FolderIndex, question: str) -> None:
    with pytest.raises(ArgumentError, match="the question is empty"):
        ask(index, question, None)


def test_a_question_that_is_too_long_is_refused(index: FolderIndex) -> None:
    with pytest.raises(ArgumentError, match="the question has 2,001 characters; ask in at most 2,000"):
        ask(index, "a" * 2001, None)


@pytest.mark.parametrize("settings", [{"passages": 0}, {"limit": 0}])
def test_wrong_settings_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match="must be at least 1"):
        AskSettings(**settings)


@pytest.fixture
def downloaded_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real reader and embedding model, beside a cache of indexes that is not shared."""
    names = ("smollm2", "minilm")
    cache = Path(os.environ["JUMOK_CACHE"])
    cache.mkdir(parents=True, exist_ok=True)
    for name in names:
        download_or_skip(name)
        (cache / name).symlink_to(CACHE / name)


def test_smollm2_answers_from_the_notes_and_the_cited_passage_is_measured(
    folder: Path, downloaded_models: None
) -> None:
    with open_index(folder) as index:
        reader = PromptReader(jumok.load("smollm2"))
        answer = ask(index, "How many steps does the old tower have?", reader)
        assert answer.verdict == "supported" and answer.text is not None and "214" in answer.text
        assert answer.citation is not None and answer.citation.hit.passage.location == "tower.txt:1"

        unrelated = ask(index, "Who won the football match in Lisbon?", reader)
        assert unrelated.verdict == "nothing fits" and unrelated.citation is None
