"""The asks of the page, which are not trusted: what each must contain, what answers it, and where it is computed."""

from __future__ import annotations

import json
import re
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from jumok.errors import ArgumentError

from . import messages
from .messages import (
    AblationMethod,
    AskId,
    Edit,
    Index,
    Language,
    MetricChoice,
    Number,
    Over,
    Pass,
    PatchedPart,
    PatchPart,
    Selection,
    Sequence,
    Shown,
)

MAX_ASK_BYTES = 1_000_000
MAX_TEXT = 200_000  # characters of the text that a model reads
MAX_QUESTION = 2_000  # characters
MAX_NAME = 1_000  # characters of a model's name
MAX_EDITS = 200
MAX_GENERATED = 64  # tokens
MAX_THUMBNAIL = 256  # cells
MAX_PATCHES = 500
MAX_TOKEN = 200  # characters of a typed token
MAX_SENTENCE = 200  # characters of an explanation, which may repeat what was sent


class Ask(Struct, kw_only=True, tag_field="ask", tag=lambda name: name.removesuffix("Ask").lower()):
    """An ask of the page."""

    body: ClassVar[type] = messages.Nothing
    queue: ClassVar[str] = ""  # of the session: "maps" or "runs"; "" is answered at once
    is_late: ClassVar[bool] = False  # other asks of the queue go first: the user waits for a tile
    id: AskId
    language: Language | None = None  # of the sentences in the answer; null: that of the session

    @property
    def kind(self) -> str:
        """The name of the ask, such as "run"."""
        return name_ask(type(self))


class HelloAsk(Ask):
    """The first ask."""

    body = messages.Hello


class SelectAsk(Ask):
    """Tell the session where the user is."""

    selection: Selection


class CancelAsk(Ask):
    """Cancel an ask, which fails with reason "cancelled"."""

    cancel: AskId


class RunAsk(Ask):
    """Run a model on a text with edits, and generate tokens behind it."""

    body = messages.Run
    queue = "runs"
    model: Annotated[str, Meta(max_length=MAX_NAME)]
    text: Annotated[str, Meta(max_length=MAX_TEXT)] | None = None  # null: the input given at the start
    edits: Annotated[list[Edit], Meta(max_length=MAX_EDITS)] | None = None
    generate: Annotated[int, Meta(ge=0, le=MAX_GENERATED)] = 0
    answer: Number | None = None  # the prompt of that answer is read


class QuestionAsk(Ask):
    """Answer a question from the files of the folder."""

    body = messages.Answer
    queue = "runs"
    question: Annotated[str, Meta(max_length=MAX_QUESTION)]


class EvidenceAsk(Ask):
    """Measure the attention on each passage of an answer, and control passages."""

    body = messages.Evidence
    queue = "runs"
    answer: Number


class CutAsk(Ask):
    """Answer again without some passages. A newer ask stops it."""

    body = messages.CutAnswer
    queue = "runs"
    answer: Number
    cut: list[Index]


class RunPartAsk(Ask):
    """An ask about a run."""

    queue = "maps"
    run: Number


class ThumbnailsAsk(RunPartAsk):
    """The pooled maps of one site's heads."""

    body = messages.Thumbnails
    is_late = True
    show: Pass
    site: Index
    size: Annotated[int, Meta(ge=1, le=MAX_THUMBNAIL)]


class HeadAsk(RunPartAsk, kw_only=True):
    """An ask about one head."""

    show: Shown
    site: Index
    head: Index
    contrast: Index | None = None  # of that contrast: "clean" is the first input, "edited" the second one


class TilesAsk(HeadAsk):
    """One tile, which begins at cell (256 * row, 256 * column). A cell of level L pools 2^L x 2^L weights (the largest;
    for a difference the one with the largest absolute value)."""

    body = messages.Tile
    level: Index
    row: Index
    column: Index
    preview: bool = False  # read only some rows of each cell
    skip_first: bool = False  # the weights of the first key count as 0


class ValuesAsk(HeadAsk):
    """Exact weights of a rectangle."""

    body = messages.Values
    rows: tuple[Index, Index]  # begin and end
    columns: tuple[Index, Index]


class LineAsk(HeadAsk):
    """The row of a query, or the column of a key."""

    body = messages.Line
    query: Index | None = None
    key: Index | None = None


class TokenAsk(RunPartAsk):
    """A token in every head."""

    body = messages.Token
    is_late = True
    show: Pass
    sequence: Sequence
    position: Index


class StepsAsk(RunPartAsk):
    """The computation for one query."""

    body = messages.Steps
    show: Pass
    site: Index
    head: Index
    query: Index


class LayersAsk(RunPartAsk):
    """The residual stream of a token through all blocks, with the logit lens."""

    body = messages.Layers
    is_late = True
    show: Pass
    sequence: Sequence
    position: Index


class AudioAsk(RunPartAsk):
    """The audio that the model read."""

    body = messages.Audio


class ListeningAsk(RunPartAsk):
    """Where each word is heard in a head, or (without a site) in the heads that follow the audio in time."""

    body = messages.Listening
    show: Pass
    site: Index | None = None
    head: Index | None = None


class CodeAsk(RunPartAsk):
    """Python code."""

    body = messages.Code
    selection: Selection | None = None


class KindsAsk(RunPartAsk):
    """Classify all heads."""

    body = messages.Kinds
    queue = "runs"


class CellAsk(RunPartAsk):
    """The weight of one cell in all heads that read the same sequences as this attention."""

    body = messages.Cell
    show: Pass
    site: Index
    query: Index
    key: Index


class EffectAsk(RunPartAsk):
    """Measure the effect of all heads, of the strongest edges, or of one cell."""

    body = messages.Effects
    queue = "runs"
    over: Over
    by: AblationMethod = "zero"  # how heads are ablated
    metric: MetricChoice | None = None  # null: the log-probability of the model's own answer
    site: Index | None = None  # of a cell, with its query and its key
    query: Index | None = None
    key: Index | None = None


class TwoInputsAsk(RunPartAsk, kw_only=True):
    """An ask about the input of a run and a second one, or about two models."""

    queue = "runs"
    text: Annotated[str, Meta(max_length=MAX_TEXT)] | None = None  # null: the same input
    model: Annotated[str, Meta(max_length=MAX_NAME)] | None = None  # null: the same model
    right: Index | Annotated[str, Meta(max_length=MAX_TOKEN)] | None = None  # token of the metric; null: chosen
    wrong: Index | Annotated[str, Meta(max_length=MAX_TOKEN)] | None = None


class ContrastAsk(TwoInputsAsk):
    """Compare the input of a run with a second one, or its model with a second one."""

    body = messages.Contrast


class SweepAsk(TwoInputsAsk):
    """Patch every part of the first input into the second one, one at a time."""

    body = messages.Sweep
    part: PatchPart


class PatchAsk(TwoInputsAsk):
    """Patch several parts of the first input into the second one together."""

    body = messages.Patched
    patches: Annotated[list[PatchedPart], Meta(max_length=MAX_PATCHES)]


class SaveAsk(RunPartAsk):
    """Write what is shown as one HTML file."""

    body = messages.SavedFile
    queue = "runs"
    selection: Selection | None = None
    live: bool = False  # with the model, so that the file computes by itself


QUESTION_ASKS = (QuestionAsk, EvidenceAsk, CutAsk)  # about the files of a folder
ASKS = (
    *(HelloAsk, SelectAsk, CancelAsk, RunAsk),
    *(
        ThumbnailsAsk,
        TilesAsk,
        ValuesAsk,
        LineAsk,
        TokenAsk,
        CellAsk,
        StepsAsk,
        LayersAsk,
        CodeAsk,
        AudioAsk,
        ListeningAsk,
    ),
    *(EffectAsk, KindsAsk, SaveAsk),
    *(ContrastAsk, SweepAsk, PatchAsk),
    *QUESTION_ASKS,
)
AnyAsk: Any = reduce(or_, ASKS)

# the words of msgspec for types of JSON
TYPE_NAMES = {
    "int": "an integer",
    "str": "a text",
    "bool": "true or false",
    "float": "a decimal number",
    "array": "a list",
    "object": "an object",
}


def name_ask(ask: type[Ask]) -> str:
    """Return the name of an ask, such as "run"."""
    return str(ask.__struct_config__.tag)


def parse_ask(text: str | bytes) -> dict[str, Any]:
    """Parse the text of an ask, which is not trusted.

    Raises:
        ArgumentError: If it is too long, or not a JSON object.

    >>> parse_ask('{"ask": "hello", "id": 1}')
    {'ask': 'hello', 'id': 1}
    """
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
    if size > MAX_ASK_BYTES:
        raise ArgumentError(f"the message has {size:,} bytes; the limit is {MAX_ASK_BYTES:,}")
    try:
        # not msgspec: a lone surrogate in a text is a mistake of one ask, not of the connection
        fields = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ArgumentError("the message is nested too deeply") from None
    except ValueError:  # also bytes that are not UTF-8, and numbers of thousands of digits
        raise ArgumentError("the message is not JSON") from None
    if not isinstance(fields, dict):
        raise ArgumentError("a message must be a JSON object with the fields ask and id")
    return fields


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def read_id(fields: Any) -> Any:
    """Return the id of an ask, so that also a refusal can name it; None if there is none."""
    try:
        return msgspec.convert(fields.get("id"), AskId)
    except (AttributeError, msgspec.ValidationError):
        return None


def read_ask(fields: Any) -> Any:
    """Return an ask from its JSON object.

    Raises:
        ArgumentError: A sentence that names the field which is missing, or has another type or range.

    >>> read_ask({"ask": "line", "id": 1, "run": 1, "show": "clean", "site": 0, "head": "2"})
    Traceback (most recent call last):
    jumok.errors.ArgumentError: head must be an integer, not a text
    """
    if not isinstance(fields, dict):
        raise ArgumentError("a message must be a JSON object with the fields ask and id")
    try:
        ask = msgspec.convert(fields, AnyAsk)
    except msgspec.ValidationError as error:
        raise ArgumentError(_explain(str(error))) from None
    except UnicodeEncodeError:
        raise ArgumentError("the message contains half of a character, a lone surrogate; remove it") from None
    for name in ask.__struct_fields__:
        text = getattr(ask, name)
        if isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ArgumentError(f"{name} contains half of a character, a lone surrogate; remove it")
    return ask


def _explain(message: str) -> str:
    """Return what msgspec says as a sentence: "Expected `int`, got `str` - at `$.site`"."""
    problem, is_inside, path = message.partition(" - at ")
    name = path.strip("`").removeprefix("$.") if is_inside else "the message"
    if problem.startswith("Object missing"):  # "Object missing required field `site`"
        return f"{name} has no field {problem.rpartition(' ')[2].strip('`')}"
    if not problem.startswith("Expected"):  # "Invalid enum value 'both'"
        return f"{name} cannot be {problem.partition(' value ')[2]}"[:MAX_SENTENCE]
    problem = re.sub(r"`([^`]+)`", lambda match: _name_types(match[1]), problem)
    problem = problem.replace("Expected ", "").replace(", got ", ", not ").replace("of length <=", "of length at most")
    return f"{name} must be {problem}"[:MAX_SENTENCE]


def _name_types(names: str) -> str:
    return " or ".join(TYPE_NAMES.get(name, name) for name in names.split(" | "))


def check_index(name: str, index: int, count: int) -> int:
    """Return an index of something that a run has ``count`` of, counted from 0."""
    if index >= count:
        raise ArgumentError(f"{name} must be less than {count:,}, not {index:,}")
    return index
