"""Answer the page's questions from an index. The page sends a question and indices of passages, and nothing else."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from jumok.checkpoint import Loaded
from jumok.data.tokenizers.passage_tokens import encode_passages
from jumok.errors import ArgumentError
from jumok.lens import KnockOut, Lens
from jumok.reporting import Progress
from jumok.retrieval import FolderIndex
from jumok.tasks.ask import Answer, AskSettings, FusionReader, PromptReader, Reader, Reading, ask, create_reader
from jumok.tasks.ask.answer_question import NEAR_HITS, measure_controls
from jumok.tasks.ask.readers import get_token_log_probabilities
from jumok.tasks.labelled_input import LabelledInput, label_input
from jumok.tasks.model_inputs import ModelInput

from . import asks, messages
from .asks import MAX_QUESTION, check_index
from .opened_model import OpenedModel, watch_taps
from .work_queue import Job, Send

MAX_ANSWERS = 4  # of all clients together
PAGE_PASSAGES = 3  # the page compares passages, so it reads several by default
# what ``ask`` reports, as a word that the page translates
STAGES = {"searching": "searching", "reading": "answering", "cutting each passage": "cutting"}


@dataclass(frozen=True)
class AnsweredPrompt:
    """A prompt and the answer behind it, as the input of a run: the page shows its attention like that of a text."""

    number: int
    question: str
    labelled: LabelledInput  # the tokens of prompt and answer
    start: int  # the position of the answer's first token
    passages: tuple[range, ...]  # the positions of each passage
    locations: tuple[str, ...]  # where each passage begins in its file

    def describe(self) -> messages.Answered:
        """Return what the page needs besides the labels of the positions."""
        passages = [
            messages.PromptPassage(location, (positions.start, positions.stop))
            for location, positions in zip(self.locations, self.passages, strict=True)
        ]
        return messages.Answered(self.number, passages)


class FolderQuestions:
    """Answers questions from the index of a folder, and again without some of the passages.

    Its methods are called by the thread that runs models, except ``describe`` and ``forget``. The attention and the
    controls are measured after the answer is shown. The first question "" waits for one.
    """

    def __init__(
        self, index: FolderIndex, folder: str, question: str = "", settings: AskSettings | None = None
    ) -> None:
        self.index = index
        self.folder = folder
        self.question = question
        self.settings = dataclasses.replace(settings or AskSettings(passages=PAGE_PASSAGES), why=False)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._answers: OrderedDict[Send, tuple[int, Answer]] = OrderedDict()

    def describe(self) -> messages.Questions:
        """Return what the page receives first."""
        return messages.Questions(self.folder, self.question, MAX_QUESTION)

    def forget(self, send: Send) -> None:
        """Drop the answer of a client that is gone."""
        with self._lock:
            self._answers.pop(send, None)

    def answer(self, opened: OpenedModel, job: Job) -> Any:
        """Return the body of the answer to a question, or to an ask about an answer."""
        reader = _get_reader(opened)
        with watch_taps(job.check):
            if isinstance(job.ask, asks.QuestionAsk):
                return self._answer_question(reader, job, job.ask.question)
            if isinstance(job.ask, asks.CutAsk):
                return self._cut_passages(reader, job, job.ask)
            assert isinstance(job.ask, asks.EvidenceAsk)
            return self._measure_evidence(reader, job, job.ask)

    def build_prompt(self, opened: OpenedModel, send: Send, number: int) -> AnsweredPrompt:
        """Return the prompt of an answer with the answer, as the input of a run."""
        answer = self._find(send, number)
        reader, reading = _get_reader(opened), _require_reading(answer)
        if not isinstance(reader, PromptReader):
            raise ArgumentError("only the attention of a reader that reads the passages in one prompt can be shown")
        prompt = reader.build_prompt(reading.question, reading.passages, len(reading.token_ids))
        tokens = [*prompt.token_ids, *reading.token_ids]
        model_input = ModelInput(torch.tensor([tokens], device=reader.model.device), tokens)
        locations = tuple(passage.hit.passage.location for passage in answer.passages)
        labelled = label_input(reader.loaded, model_input)
        return AnsweredPrompt(number, reading.question, labelled, len(prompt.token_ids), prompt.passages, locations)

    def _answer_question(self, reader: Reader, job: Job, question: str) -> messages.Answer:
        answer = ask(
            self.index,
            question,
            reader,
            self.settings,
            report=lambda stage: job.report(0, 0, STAGES.get(stage, "computing")),
        )
        number = next(self._numbers)
        job.check()  # not after the answer is kept: the client must learn of it
        with self._lock:
            self._answers[job.send] = number, answer
            self._answers.move_to_end(job.send)
            while len(self._answers) > MAX_ANSWERS:
                self._answers.popitem(last=False)
        return self._describe_answer(number, answer, reader)

    def _describe_answer(self, number: int, answer: Answer, reader: Reader) -> messages.Answer:
        ranges = None if answer.reading is None else _locate_passages(reader, answer.reading)
        passages = [passage.to_json() | {"range": None} for passage in answer.passages]
        for passage, positions in zip(passages, ranges or (), strict=ranges is not None):
            passage["range"] = [positions.start, positions.stop]
        citation = None if answer.citation is None else answer.passages.index(answer.citation)
        has_text = answer.reading is not None and bool(answer.reading.token_ids)
        fields = answer.to_json() | {
            "number": number,
            "citation": citation,
            "passages": passages,
            "threshold": self.settings.rule.word_change,
            "is_cuttable": has_text and ranges is not None,
            "has_attention": has_text and isinstance(reader, PromptReader),
        }
        return msgspec.convert(fields, messages.Answer)

    def _measure_evidence(self, reader: Reader, job: Job, request: asks.EvidenceAsk) -> messages.Evidence:
        """Measure the attention on each passage, and the effect of control passages."""
        reading = _require_reading(self._find(job.send, request.answer))
        job.report(0, 0, "attending")
        attention = reader.measure_attention(reading)
        job.report(0, 0, "controls")
        count = max(self.settings.passages, NEAR_HITS)
        search_result = self.index.search(reading.question, count, self.settings.method)
        excluded = {hit.number for hit in search_result.hits}
        controls = measure_controls(self.index, reader, reading, excluded, self.settings.controls)
        passages = msgspec.convert([passage.to_json() for passage in controls], list[messages.CutPassage])
        return messages.Evidence(request.answer, attention, passages)

    def _cut_passages(self, reader: Reader, job: Job, request: asks.CutAsk) -> messages.CutAnswer:
        """Let the reader write again without some passages, and measure how the first answer changes without them."""
        answer = self._find(job.send, request.answer)
        reading = _require_reading(answer)
        cut = sorted({check_index("cut", index, len(reading.passages)) for index in request.cut})
        if not cut or len(cut) < len(request.cut):
            raise ArgumentError("cut must name at least one passage, and each once")
        job.report(0, 0, "cutting")
        if len(cut) == 1:
            change = answer.passages[cut[0]].change
        else:
            clean = sum(reading.log_probabilities)
            change = (
                _score_without(reader, reading, cut, lambda done, total: job.report(done, total, "cutting")) - clean
            )
        job.report(0, 0, "answering")
        text, note, reached_limit = None, None, False
        try:
            rewritten = reader.read(reading.question, reading.passages, self.settings.limit, cut)
            text, reached_limit = rewritten.text, rewritten.reached_limit
        except ArgumentError as error:  # such as a model with a window, which counts the keys in between
            note = str(error)
        return messages.CutAnswer(request.answer, cut, change, text, reached_limit, note)

    def _find(self, send: Send, number: int) -> Answer:
        """Return the answer that an ask names; a client can name its newest one only."""
        with self._lock:
            newest, answer = self._answers.get(send, (0, None))
        if answer is None or newest != number:
            raise ArgumentError(f"there is no answer {number} any more; ask the question again")
        return answer


def _require_reading(answer: Answer) -> Reading:
    """Return the text of an answer with its tokens."""
    if answer.reading is None or not answer.reading.token_ids:
        raise ArgumentError("the model wrote no answer to this question, so there is nothing to measure")
    return answer.reading


def _locate_passages(reader: Reader, reading: Reading) -> tuple[range, ...] | None:
    """Return the positions of each passage in what the model reads; None if the reader is of an unknown kind."""
    if isinstance(reader, PromptReader):
        return reader.build_prompt(reading.question, reading.passages).passages
    if isinstance(reader, FusionReader):
        separator = reader.model.config.separator
        token_lists = encode_passages(reader.tokenizer, separator, reading.question, reading.passages)
        ends = [*itertools.accumulate(map(len, token_lists))]
        return tuple(itertools.starmap(range, itertools.pairwise([0, *ends])))
    return None


def _get_reader(opened: OpenedModel) -> Reader:
    """Return the reader of a model; it is created once."""
    if not isinstance(opened.loaded, Loaded):
        raise ArgumentError(f"{opened.name} cannot answer questions; choose a language model such as smollm2")
    loaded = opened.loaded
    reader: Reader = opened.remember("reader", None, lambda: create_reader(loaded))
    return reader


@torch.inference_mode()
def _score_without(reader: Reader, reading: Reading, cut: Collection[int], progress: Progress) -> float:
    """Return the log-probability of a text without some passages, in nats."""
    if not reading.token_ids:
        return 0.0
    if isinstance(reader, PromptReader):
        return _score_prompt(reader, reading, cut, progress)
    if isinstance(reader, FusionReader):
        return sum(reader.score_without(reading.question, reading.passages, reading.token_ids, [cut])[0])
    raise ArgumentError(f"a {type(reader).__name__} cannot leave passages out")


def _score_prompt(reader: PromptReader, reading: Reading, cut: Collection[int], progress: Progress) -> float:
    """Cut each passage by one edit of the lens in all layers, as the page does where it shows the attention."""
    answer = reading.token_ids
    prompt = reader.build_prompt(reading.question, reading.passages, len(answer))
    tokens = torch.tensor([[*prompt.token_ids, *answer[:-1]]], device=reader.model.device)
    edits = [KnockOut(key=prompt.passages[index]) for index in cut]
    with Lens(reader.loaded) as lens:
        last: dict[str, Any] = lens.facts.build_last_logits_arguments(len(answer))
        logits = lens.run(tokens, edits=edits, logits=True, progress=progress, **last).logits
    return sum(get_token_log_probabilities(logits[0, -len(answer) :], answer))
