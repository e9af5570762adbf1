"""A session: what the page asks, answered without HTTP. Two threads answer: one runs models, one computes maps."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from jumok import __version__
from jumok.errors import ArgumentError, JumokError
from jumok.reporting import use_language
from jumok.translation import translate

from . import asks, messages
from .asks import read_ask, read_id
from .messages import Message, Reply, build_answer, build_failure
from .model_list import ListedModel, find_checkpoint, list_models
from .work_queue import Job, Send, Stopped, WorkQueue

if TYPE_CHECKING:
    from .answers.answerer import Answerer
    from .folder_questions import FolderQuestions
    from .inspection import Inspection
    from .opened_model import OpenedModel

MAX_MAP_ASKS, MAX_RUN_ASKS = 64, 4  # that wait
MAX_OPENED_MODELS = 2
MAX_INSPECTIONS = 4  # runs of all clients together that can be asked about

REASON_SENTENCES = {"cancelled": "cancelled", "outdated": "a newer run has replaced this one"}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """What the page shows first: a text, or questions about a folder, whose reader is the only model then."""

    model: Any = "tiny"  # a name or folder, what ``jumok.load`` returned, or a model, also one of transformers
    text: str | None = None  # or the path of an image or a recording; never from the page
    tokenizer: object = None  # of a model that is not a name; None takes the model's own
    edits: tuple[Any, ...] = ()
    selection: messages.Selection | None = None
    language: messages.Language | None = None  # None: the browser decides, and of messages the locale
    begin: float = 0.0  # of a recording, the second at which the part that the model reads begins
    questions: FolderQuestions | None = None


class Session:
    """Answers the asks of one or more clients about models and their attention.

    ``handle`` returns at once; answers are sent from the threads of the session. No thread starts and no model is
    loaded before the first ask that needs it. Messages travel by a carrier: "server" or "widget".

    >>> answers = []
    >>> session = Session(Start("tiny", "the cat sat"))
    >>> session.handle({"ask": "hello", "id": 1}, answers.append)
    >>> answers[0].head["body"]["model"], answers[0].head["body"]["text"]
    ('tiny', 'the cat sat')
    >>> session.close()
    """

    def __init__(self, start: Start, carrier: Literal["server", "widget"] = "server") -> None:
        self.start = start
        self.carrier = carrier
        self._lock = threading.Lock()
        self._listed = self._list_models()
        self._start_name = next(iter(self._listed))
        self._opened: OrderedDict[str, OpenedModel] = OrderedDict()
        self._numbers = itertools.count(1)
        self._newest = 0
        self._inspections: OrderedDict[int, tuple[Send, Inspection]] = OrderedDict()
        self._clients: list[Send] = []
        self._watchers: list[Callable[[dict[str, Any]], None]] = []
        self._map_queue = WorkQueue("jumok-page-maps", MAX_MAP_ASKS, self._run_job)
        self._run_queue = WorkQueue("jumok-page-runs", MAX_RUN_ASKS, self._run_job)
        self._answerer: Answerer | None = None  # created by the first ask about a run, as it imports torch

    def handle(self, fields: Any, send: Send) -> None:
        """Answer an ask, a JSON object that is not trusted, at once or later; called from any thread. ``send`` receives
        the messages to the client, and the same function identifies the same client."""
        try:
            ask = read_ask(fields)
        except ArgumentError as error:
            language = fields.get("language") if isinstance(fields, dict) else None
            self._fail(send, read_id(fields), str(error), "invalid", language)
            return
        if ask.queue:
            self._enqueue(Job(ask, send))
            return
        body: Any = messages.Nothing()
        if isinstance(ask, asks.HelloAsk):
            body = self._answer_hello(send)
        elif isinstance(ask, asks.SelectAsk):
            self._notify({"selection": ask.selection})
        else:
            self._cancel(ask.cancel, send)
        self._send(send, build_answer(ask.id, body))

    def forget(self, send: Send) -> None:
        """Cancel and drop the asks of a client that is gone."""
        with self._lock:
            self._clients = [client for client in self._clients if client != send]
            for number in [number for number, (client, _) in self._inspections.items() if client == send]:
                del self._inspections[number]
        if self.start.questions is not None:
            self.start.questions.forget(send)
        for queue in (self._map_queue, self._run_queue):
            queue.remove(lambda job: job.send == send)
            queue.stop_running(lambda job: job.send == send, "cancelled")

    def close(self) -> None:
        """Stop the threads, and release the models."""
        self._map_queue.close()
        self._run_queue.close()
        with self._lock:
            self._clients.clear()
            self._inspections.clear()
            self._opened.clear()
            self._watchers.clear()

    def push(self, **state: Any) -> None:
        """Change what all clients show: ``text``, ``edits`` (values of ``jumok.lens``) or ``selection``; clients that
        connect later begin with it."""
        with self._lock:
            self.start = replace(self.start, **state)
            clients = list(self._clients)
        if "edits" in state:
            state["edits"] = _edits_to_json(state["edits"])
        for client in clients:
            self._send(client, Message({"state": msgspec.to_builtins(messages.State(**state))}))

    def get_inspection(self, send: Send) -> Inspection | None:
        """Return the current run of a client; None before its first run."""
        with self._lock:
            runs = [inspection for client, inspection in self._inspections.values() if client == send]
        return runs[-1] if runs else None

    def watch(self, watcher: Callable[[dict[str, Any]], None]) -> None:
        """Call a function with every change that a client makes: ``{"edits": [...], "text": ...}`` after a run,
        ``{"selection": Selection}`` after a selection. It is called from threads of the session.
        """
        self._watchers.append(watcher)

    def _answer_hello(self, send: Send) -> messages.Hello:
        with self._lock:
            if send not in self._clients:
                self._clients.append(send)
            start = self.start
            # runs that ended meanwhile; a name in the list keeps its meaning
            self._listed = {**self._list_models(), **self._listed}
        first = self._listed[self._start_name]
        can = asks.ASKS if start.questions is not None else [ask for ask in asks.ASKS if ask not in asks.QUESTION_ASKS]
        return messages.Hello(
            version=__version__,
            carrier=self.carrier,
            can=[asks.name_ask(ask) for ask in can],
            models=[
                messages.ModelEntry(model.name, model.title, model.reads, [*model.checkpoints])
                for model in self._listed.values()
            ],
            model=first.name,
            text=(start.text or "") if first.reads not in ("image", "audio") else "",
            edits=_edits_to_json(start.edits),
            selection=start.selection,
            language=start.language,
            max_text=asks.MAX_TEXT,
            questions=None if start.questions is None else start.questions.describe(),
        )

    def _cancel(self, ask_id: Any, send: Send) -> None:
        def selects(job: Job) -> bool:
            return job.send == send and job.ask.id == ask_id

        for queue in (self._map_queue, self._run_queue):
            for job in queue.remove(selects):
                self._fail_stopped(job, "cancelled")
            queue.stop_running(selects, "cancelled")

    def _enqueue(self, job: Job) -> None:
        """Put a job into its queue; a run replaces the client's earlier runs and the asks about them, and a question or
        a cut replaces what the client let the model compute before."""
        if isinstance(job.ask, asks.RunAsk):
            self._drop_outdated(job.send, (self._map_queue, self._run_queue))
        elif isinstance(job.ask, asks.QuestionAsk | asks.CutAsk):
            self._drop_outdated(job.send, (self._run_queue,))
        queue = self._run_queue if job.ask.queue == "runs" else self._map_queue
        if not queue.put(job):
            message = "this session is busy with other computations; try again in a moment"
            self._fail(job.send, job.ask.id, message, "busy", job.ask.language)

    def _drop_outdated(self, send: Send, queues: tuple[WorkQueue, ...]) -> None:
        def selects(job: Job) -> bool:
            return job.send == send and not isinstance(job.ask, asks.SaveAsk)

        for queue in queues:
            for job in queue.remove(selects):
                self._fail_stopped(job, "outdated")
        self._run_queue.stop_running(selects, "outdated")

    def _run_job(self, job: Job) -> None:
        """Answer a job in the thread of its queue, in the language of its page."""
        with use_language(job.ask.language or self.start.language):
            self._answer_job(job)

    def _answer_job(self, job: Job) -> None:
        """Answer a job; every failure becomes a message."""
        try:
            if isinstance(job.ask, asks.RunAsk):
                answer = self._answer_run(job, job.ask)
            elif isinstance(job.ask, asks.QUESTION_ASKS):
                questions = self._require_questions()
                answer = questions.answer(self._open(self._listed[self._start_name], job), job), ()
            else:
                answer = self._answer_about_run(job)
            if not isinstance(job.ask, asks.RunAsk):  # the client must learn of a run that is published
                job.check()  # an answer after a cancellation would come too late
            self._translate(answer[0], job.ask.language or self.start.language)
            message = build_answer(job.ask.id, *answer)
        except Stopped:
            self._fail_stopped(job, job.stop_reason or "cancelled")
        except _OutdatedError:
            self._fail_stopped(job, "outdated")
        except JumokError as error:
            self._fail(job.send, job.ask.id, str(error), "invalid", job.ask.language)
        except Exception:
            logger.exception("the ask %s failed", job.ask.kind)
            sentence = "this failed because of an error in the program; the terminal or notebook shows its log"
            self._fail(job.send, job.ask.id, sentence, "internal", job.ask.language)
        else:
            self._send(job.send, message)

    def _answer_run(self, job: Job, ask: asks.RunAsk) -> Reply:
        listed = self._find_listed(ask.model)
        job.report(0, 0, "importing")
        from .inspection import inspect_model, read_page_edits

        opened = self._open(listed, job)
        text = None if opened.reads not in ("text", "numbers") and ask.text == "" else ask.text
        answered = None
        if ask.answer is not None:  # the prompt of an answer is the input
            answered = self._require_questions().build_prompt(opened, job.send, ask.answer)
        is_start = listed.name == self._start_name
        edits = read_page_edits(ask.edits or (), self.start.edits)
        inspection = inspect_model(
            opened,
            next(self._numbers),
            text,
            self.start.text if is_start else None,
            edits,
            ask.generate,
            job.report,
            begin=self.start.begin if is_start else 0.0,
            answered=answered,
            show_layer=job.show_layer,
        )
        answer = inspection.describe(), () if inspection.picture is None else (inspection.picture.png,)
        job.check()  # not after the run is published: the client must learn of it
        self._publish(job.send, inspection)
        self._notify({"edits": [edit.to_json() for edit in inspection.edits], "text": inspection.text})
        return answer

    def _require_questions(self) -> FolderQuestions:
        if self.start.questions is None:
            raise ArgumentError("this page has no files to answer from; start it with: jumok ask FOLDER --open")
        return self.start.questions

    def _answer_about_run(self, job: Job) -> Reply:
        inspection = self._find_inspection(job)
        from .answers.answerer import Answerer

        with self._lock:
            if self._answerer is None:
                self._answerer = Answerer()
        other = None
        if isinstance(job.ask, asks.TwoInputsAsk) and job.ask.model is not None:
            other = self._open(find_checkpoint(self._listed, job.ask.model) or self._find_listed(job.ask.model), job)
        return self._answerer.answer(inspection, job, other)

    def _find_listed(self, name: str) -> ListedModel:
        if name not in self._listed:
            raise ArgumentError(f"there is no model {name[:80]!r} in the list of models")
        return self._listed[name]

    def _list_models(self) -> dict[str, ListedModel]:
        """Return the models that the page can choose; where it answers questions, the reader only."""
        models = list_models(self.start.model)
        return models if self.start.questions is None else dict(list(models.items())[:1])

    def _open(self, listed: ListedModel, job: Job) -> OpenedModel:
        """Return an opened model; the last ones stay open, so that switching back is quick."""
        if listed.name in self._opened:
            self._opened.move_to_end(listed.name)
            return self._opened[listed.name]
        job.report(0, 0, "loading")
        from .opened_model import open_listed_model

        while len(self._opened) >= MAX_OPENED_MODELS:  # before loading: three large models may not fit into memory
            self._opened.popitem(last=False)
        tokenizer = self.start.tokenizer if listed.name == self._start_name else None
        self._opened[listed.name] = open_listed_model(listed, tokenizer)
        return self._opened[listed.name]

    def _publish(self, send: Send, inspection: Inspection) -> None:
        """Make a run the client's current one."""
        with self._lock:
            for number in [number for number, (client, _) in self._inspections.items() if client == send]:
                del self._inspections[number]
            self._inspections[inspection.number] = (send, inspection)
            self._newest = max(self._newest, inspection.number)
            while len(self._inspections) > MAX_INSPECTIONS:
                self._inspections.popitem(last=False)

    def _find_inspection(self, job: Job) -> Inspection:
        with self._lock:
            newest = self._newest
            assert isinstance(job.ask, asks.RunPartAsk)
            number = job.ask.run
            client, inspection = self._inspections.get(number, (None, None))
        if inspection is None:
            if number > newest:
                raise ArgumentError(f"there is no run {number} yet; ask for one first")
            raise _OutdatedError
        if client != job.send:
            raise ArgumentError(f"run {number} belongs to another client")
        return inspection

    def _notify(self, change: dict[str, Any]) -> None:
        for watcher in self._watchers:
            try:
                watcher(change)
            except Exception:
                logger.exception("a watcher of the session failed")

    def _fail_stopped(self, job: Job, reason: Any) -> None:
        self._fail(job.send, job.ask.id, REASON_SENTENCES[reason], reason, job.ask.language)

    def _fail(self, send: Send, ask_id: Any, sentence: str, reason: messages.Reason, language: Any) -> None:
        """Send why an ask failed, in the language of the page; without a valid one, in that of the session."""
        chosen = language if language in get_args(messages.Language) else self.start.language
        self._send(send, build_failure(ask_id, translate(sentence, chosen), reason))

    def _translate(self, body: Any, language: messages.Language | None) -> None:
        """Translate the sentences of an answer that the user reads; the page has the words of all others."""
        for part in (body, getattr(body, "model", None)):
            for name in ("note", "reason"):
                if isinstance(text := getattr(part, name, None), str):
                    setattr(part, name, translate(text, language))
        if isinstance(body, messages.Run):
            body.notes = [translate(note, language) for note in body.notes]

    def _send(self, send: Send, message: Message) -> None:
        """Send a message; a client whose connection fails is forgotten."""
        try:
            send(message)
        except Exception:
            logger.warning("a client cannot be reached, and is forgotten", exc_info=True)
            self.forget(send)


class _OutdatedError(Exception):
    """A newer run has replaced the one that an ask names."""


def _edits_to_json(edits: Any) -> list[messages.Edit]:
    return [messages.Edit(edit if isinstance(edit, dict) else edit.to_json()) for edit in edits]
