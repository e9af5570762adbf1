"""Answer the page's questions from an index. The page sends a question and indices of passages, and nothing else."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.tasks.ask import Answer, AskSettings, CutPassage, PromptReader, Reader, Reading, ask, create_reader
from jumok.tasks.ask.answer_question import NEAR_HITS, SearchableIndex, measure_controls
from jumok.web import ask_fields as fields
from jumok.web.forward_pass import watch_taps
from jumok.web.opened_model import OpenedModel
from jumok.web.work_queue import Job, Send

from .answered_prompt import AnsweredPrompt, build_answered_prompt, locate_passages
from .cut_answer import read_without, score_without

MAX_QUESTION = 2_000  # characters
MAX_ANSWERS = 4  # of all clients together
READER = "reader"  # under which an opened model keeps its reader
# what ``ask`` reports, as a word that the page translates
PAGE_PASSAGES = 3  # the page compares passages, so it reads several by default
STAGES = {"searching": "searching", "reading": "answering", "cutting each passage": "cutting"}


@dataclass(frozen=True)
class StoredAnswer:
    """An answer that a client received."""

    number: int
    answer: Answer


class FolderQuestions:
    """Answers questions from the index of a folder, and again without some of the passages.

    Its methods are called by the thread that runs models, except ``describe`` and ``forget``.

    Args:
        folder: The folder, as the user wrote it; the page shows it.
        question: The question to answer first; "" waits for one.
        settings: How questions are answered; the attention and the controls are measured after the answer is shown.
    """

    def __init__(
        self, index: SearchableIndex, folder: str, question: str = "", settings: AskSettings | None = None
    ) -> None:
        self.index = index
        self.folder = folder
        self.question = question
        self.settings = dataclasses.replace(settings or AskSettings(passages=PAGE_PASSAGES), why=False)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._answers: OrderedDict[Send, StoredAnswer] = OrderedDict()

    def describe(self) -> dict[str, Any]:
        """Return what the page receives first."""
        return {"folder": self.folder, "question": self.question, "max_question": MAX_QUESTION}

    def forget(self, send: Send) -> None:
        """Drop the answer of a client that is gone."""
        with self._lock:
            self._answers.pop(send, None)

    def answer(self, opened: OpenedModel, job: Job) -> dict[str, Any]:
        """Answer an ask of one kind: "question", "evidence" or "cut".

        Raises:
            ArgumentError: If a field of the ask is invalid, or the model cannot read the passages.
        """
        answers = {"question": self._answer_question, "evidence": self._measure_evidence, "cut": self._cut_passages}
        with watch_taps(job.check):
            return answers[job.kind](_get_reader(opened), job)

    def build_prompt(self, opened: OpenedModel, job: Job) -> AnsweredPrompt:
        """Return the prompt and the answer that an ask names, as the input of a run.

        Raises:
            ArgumentError: If there is no such answer, or nothing was read.
        """
        stored = self._find(job)
        locations = [passage.hit.passage.location for passage in stored.answer.passages]
        return build_answered_prompt(stored.number, _get_reader(opened), _require_reading(stored), locations)

    def _answer_question(self, reader: Reader, job: Job) -> dict[str, Any]:
        question = fields.read_text(job.ask, "question", MAX_QUESTION)
        answer = ask(
            self.index,
            question or "",
            reader,
            self.settings,
            report=lambda stage: job.report(0, 0, STAGES.get(stage, "computing")),
        )
        stored = StoredAnswer(next(self._numbers), answer)
        job.check()  # not after the answer is kept: the client must learn of it
        with self._lock:
            self._answers[job.send] = stored
            self._answers.move_to_end(job.send)
            while len(self._answers) > MAX_ANSWERS:
                self._answers.popitem(last=False)
        return self._describe_answer(stored, reader)

    def _describe_answer(self, stored: StoredAnswer, reader: Reader) -> dict[str, Any]:
        answer = stored.answer
        ranges = None if stored.answer.reading is None else locate_passages(reader, stored.answer.reading)
        passages = [passage.to_json() | {"range": None} for passage in answer.passages]
        for passage, positions in zip(passages, ranges or (), strict=ranges is not None):
            passage["range"] = [positions.start, positions.stop]
        citation = None if answer.citation is None else answer.passages.index(answer.citation)
        has_text = stored.answer.reading is not None and bool(stored.answer.reading.token_ids)
        return answer.to_json() | {
            "number": stored.number,
            "citation": citation,
            "passages": passages,
            "threshold": self.settings.rule.word_change,
            "is_cuttable": has_text and ranges is not None,
            "has_attention": has_text and isinstance(reader, PromptReader),
        }

    def _measure_evidence(self, reader: Reader, job: Job) -> dict[str, Any]:
        """Measure the attention on each passage, and the effect of control passages."""
        stored = self._find(job)
        reading = _require_reading(stored)
        job.report(0, 0, "attending")
        attention = reader.measure_attention(reading)
        controls = self._measure_controls(reader, reading, job)
        return {
            "number": stored.number,
            "attention": attention,
            "controls": [passage.to_json() for passage in controls],
        }

    def _measure_controls(self, reader: Reader, reading: Reading, job: Job) -> list[CutPassage]:
        job.report(0, 0, "controls")
        count = max(self.settings.passages, NEAR_HITS)
        search_result = self.index.search(reading.question, count, self.settings.method)
        excluded = {hit.number for hit in search_result.hits}
        return measure_controls(self.index, reader, reading, excluded, self.settings.controls)

    def _cut_passages(self, reader: Reader, job: Job) -> dict[str, Any]:
        """Let the reader write again without some passages, and measure how the first answer changes without them."""
        stored = self._find(job)
        reading = _require_reading(stored)
        cut = fields.read_indices(job.ask, "cut", len(reading.passages))
        job.report(0, 0, "cutting")
        if len(cut) == 1:
            change = stored.answer.passages[cut[0]].change
        else:
            clean = sum(reading.log_probabilities)
            change = score_without(reader, reading, cut, lambda done, total: job.report(done, total, "cutting")) - clean
        job.report(0, 0, "answering")
        text, note, reached_limit = None, None, False
        try:
            rewritten = read_without(reader, reading, cut, self.settings.limit)
            text, reached_limit = rewritten.text, rewritten.reached_limit
        except ArgumentError as error:  # such as a model with a window, which counts the keys in between
            note = str(error)
        return {
            "number": stored.number,
            "cut": list(cut),
            "change": change,
            "text": text,
            "reached_limit": reached_limit,
            "note": note,
        }

    def _find(self, job: Job) -> StoredAnswer:
        """Return the answer that an ask names; a client can name its newest one only."""
        number = fields.read_integer(job.ask, "answer", 1, fields.MAX_ID)
        with self._lock:
            stored = self._answers.get(job.send)
        if stored is None or stored.number != number:
            raise ArgumentError(f"there is no answer {number} any more; ask the question again")
        return stored


def _require_reading(stored: StoredAnswer) -> Reading:
    """Return the text of an answer with its tokens.

    Raises:
        ArgumentError: If there is none.
    """
    if stored.answer.reading is None or not stored.answer.reading.token_ids:
        raise ArgumentError("the model wrote no answer to this question, so there is nothing to measure")
    return stored.answer.reading


def _get_reader(opened: OpenedModel) -> Reader:
    """Return the reader of a model; it is created once."""
    if READER not in opened.kept_results:
        if not isinstance(opened.loaded, Loaded):
            raise ArgumentError(f"{opened.name} cannot answer questions; choose a language model such as smollm2")
        opened.kept_results[READER] = create_reader(opened.loaded)
    reader: Reader = opened.kept_results[READER]
    return reader
