"""The messages that a session sends to the page: a JSON head and binary buffers, with little-endian numbers.

``tools/page_protocol.py`` writes page/src/protocol.ts from this module and ``asks``, with their comments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType

import msgspec
from msgspec import Meta, Struct

HEAD_LENGTH_BYTES = 4  # of the length that begins a frame
MAX_ID = 2**53  # the integers that JavaScript can represent

Edit = NewType("Edit", dict[str, Any])  # as ``Edit.to_json`` of jumok.lens writes it
Pass = Literal["clean", "edited"]  # which forward pass: without edits, or with them
Shown = Literal["clean", "edited", "difference"]  # or edited minus clean
Sequence = Literal["source", "target"]
Language = Literal["en", "ko"]
Reads = Literal["text", "image", "audio", "numbers"]
Over = Literal["heads", "edges", "cell"]  # "cell": one cell of the map, in the heads that give it most weight
AblationMethod = Literal["zero", "mean", "resample"]
MetricName = Literal["log-probability", "logit-difference", "kl", "loss", "class"]
Predicts = Literal["next token", "masked token", "class", "number", "vector"]
StepName = Literal["query", "key", "product", "scale", "bias", "mask", "softmax", "value", "sum"]
# why there is no residual stream (the first three), or no logit lens
StreamGap = Literal["long input", "maps only", "no stream", "no tokens", "encoder", "unknown norm"]
PartName = Literal["attention", "cross-attention", "mlp"]
PatchPart = Literal["attention", "mlp", "residual"]
Reason = Literal["busy", "cancelled", "outdated", "invalid", "internal"]  # why an ask failed

Index = Annotated[int, Meta(ge=0, le=MAX_ID)]
Number = Annotated[int, Meta(ge=1, le=MAX_ID)]  # of a run or an answer
AskId = Index | Annotated[str, Meta(max_length=64)]
TokenName = Index | Annotated[str, Meta(min_length=1, max_length=100)]


class Selection(Struct):
    """Where the user is. Shared with ``widget.selection`` and with links."""

    site: Index  # index into run.sites
    head: Index
    query: Index | None = None
    key: Index | None = None


class PatchedPart(Struct):
    """A head at all positions, or an MLP or the residual stream at one position of the second input or at all."""

    part: PatchPart
    site: Index
    head: Index | None = None
    position: Index | None = None


class ModelEntry(Struct):
    """A model that the page can choose."""

    name: str  # what a `run` ask sends back; only names of this list are accepted
    title: str
    reads: Reads
    checkpoints: list[str] = []  # names of a training run's checkpoints, with which the run can be compared


class Questions(Struct):
    """Where questions are answered from, and the first question."""

    folder: str
    question: str
    max_question: int


class Hello(Struct):
    """What the page shows first. Sent at once, before torch is imported."""

    version: str
    carrier: Literal["server", "widget", "file", "live"]  # "live": the page computes by itself
    can: list[str]  # the asks that this session can answer; a saved file cannot `run`
    models: list[ModelEntry]
    model: str
    text: str
    edits: list[Edit]
    selection: Selection | None
    language: Language | None  # null: the browser decides
    max_text: int  # longest text in characters
    questions: Questions | None = None  # null: the page shows a text


class CutPassage(Struct):
    """A passage, and what cutting it changes."""

    location: str  # "file:line"
    text: str
    bm25: float | None
    cosine: float | None
    change: float | None  # of the answer's log-probability when the passage is cut, in nats
    word: str  # the word of the answer that changes most
    word_change: float | None  # of the log-probability of its token
    attention: float | None  # share that it receives; null before `evidence`
    missing: list[str]  # if the answer depends on the passage: words of the answer that it does not support


class Passage(CutPassage):
    """A passage that the model read."""

    range: tuple[int, int] | None  # its positions in the prompt


class Quotation(Struct):
    """The sentence of the files that answers a question best."""

    text: str
    location: str  # "file:line"
    verdict: Literal["supported", "partly supported"]
    missing: list[str]  # words of the question that are not in it


class Answer(Struct):
    """An answer from the files of a folder."""

    number: int  # later asks name it as `answer`
    question: str
    quotation: Quotation | None  # null: no sentence of the files is about the question
    # null: the model cannot read the question
    verdict: Literal["supported", "partly supported", "not supported", "nothing fits"] | None
    text: str | None  # null: nothing was read
    reached_limit: bool  # the text was cut off
    log_probability: float | None
    citation: int | None  # index of the passage that supports the text
    threshold: float  # a word_change of at most this, in nats, supports the text
    note: str | None  # a sentence that the user must read
    passages: list[Passage]
    is_cuttable: bool  # whether there is a text to measure
    has_attention: bool  # whether {ask: "run", answer} can show the prompt and the answer


class Evidence(Struct):
    """What takes longer than the answer."""

    number: int
    attention: list[float]  # on each passage
    controls: list[CutPassage]  # random passages, cut in the same way


class CutAnswer(Struct):
    """The answer without some passages."""

    number: int
    cut: list[int]
    change: float | None  # of the first answer's log-probability, in nats
    text: str | None  # what the model writes now
    reached_limit: bool
    note: str | None  # why there is no text


class ShownModel(Struct):
    """The model of a run."""

    name: str
    family: str
    parameters: int
    layers: int
    heads: int  # in all sites together
    is_editable: bool
    reason: str  # why it is not editable
    predicts: Predicts
    has_tokenizer: bool  # whether another text can be typed
    can_live: bool  # whether a page can compute it by itself


class Grid(Struct):
    """Positions that are patches of an image."""

    rows: int
    columns: int
    prefix: int  # positions before the first patch, such as the class token


class Picture(Grid):
    """The image that the model read."""

    width: int
    height: int
    png: int = 0  # index of the buffer with the PNG bytes


class SpokenWord(Struct):
    """A word of a transcript. Times are seconds from the start of the audio."""

    text: str
    start: float
    end: float
    rows: tuple[int, int]  # the decoder's rows that write its tokens: first, and the one after the last


class Sound(Struct):
    """The audio that the model read, at most one window."""

    seconds: float
    begin: float  # where it begins in the recording
    positions: int  # of the source that it fills; silence follows up to the end of the window
    positions_per_second: int
    bands: int  # of the spectrogram
    frames: int
    words: list[SpokenWord]
    heads: list[tuple[int, int]]  # site and head of the cross-attention heads that follow the audio in time


class Site(Struct):
    """An attention of the model."""

    name: str  # "decoder.blocks.0.cross"
    layer: int | str  # as an edit names it
    stack: int  # sites with equal numbers form one grid
    stack_title: str  # "encoder", "decoder", "decoder, cross-attention"; empty if there is only one stack
    heads: int
    queries: int
    keys: int
    query_sequence: Sequence
    key_sequence: Sequence
    is_causal: bool
    has_mask: bool
    scale: float | None  # factor of the dot products, 1/sqrt(head width); null for other scores
    grid: Grid | None = None  # of its keys, if they are patches of the image


class Candidate(Struct):
    """A token or class with its probability."""

    label: str
    id: int
    probability: float


class Prediction(Struct):
    """What the model predicts at one position (one entry for a classifier)."""

    position: int  # -1 for a whole input
    candidates: list[Candidate]  # at most 5; the last prediction of a run with edits lists those of both passes
    actual: Candidate | None = None  # the token that really follows (or stands there, for a masked model)


class PromptPassage(Struct):
    """A passage in a prompt."""

    location: str
    range: tuple[int, int]


class Answered(Struct):
    """Of the prompt of an answer: the positions of its passages."""

    number: int
    passages: list[PromptPassage]


class Run(Struct):
    """A model that has read an input, without and with edits. Buffer 0: the PNG of an image."""

    run: int  # later asks name it; an ask for an older run fails with reason "outdated"
    model: ShownModel
    text: str | None  # of a prompt, its question; null: the input is not text
    source: list[str]  # labels of the positions
    target: list[str]  # labels of the decoder's positions; empty without decoder
    image: Picture | None
    audio: Sound | None
    answer: str | None  # of a model that answers: translation, caption, transcript, class, numbers
    edited_answer: str | None  # the transcript or translation that the model writes under the edits
    answered: Answered | None
    generated: int  # the first generated position (of the target, if there is one); equal to the length if none
    unknown: list[str]  # words outside the vocabulary
    notes: list[str]  # sentences that the user must read (cut, warnings)
    sites: list[Site]
    edits: list[Edit]
    clean: list[Prediction]
    edited: list[Prediction] | None  # null without edits
    first_selection: Selection | None  # a head with a pattern, to show first; null: no suggestion
    change: float | None  # Kullback-Leibler divergence of the last prediction in nats, clean || edited
    seconds: float


class Audio(Struct):
    """Buffer 0: a WAV file (16 bits, 16 kHz); buffer 1: u8 [bands, frames], the lowest band first."""

    bands: int
    frames: int


class Listening(Struct):
    """Where each word is heard: the mean weights of the rows that write it. Buffer 0: float32 [words, positions]."""

    words: int
    positions: int


class Thumbnails(Struct):
    """The maps of one site's heads, pooled (largest weight of a cell). Buffer 0: u8 [heads, rows, columns],
    255 * sqrt(weight)."""

    heads: int
    rows: int
    columns: int
    is_preview: bool  # only some rows of each cell were read


class Tile(Struct):
    """At most 256 x 256 cells of a map. Buffer 0: u8 [rows, columns]: 255 * sqrt(weight); of a difference
    128 + 127 * sign(d) * sqrt(|d|)."""

    rows: int
    columns: int
    is_preview: bool


class Values(Struct):
    """Weights of at most 4,096 cells. Buffer 0: float32 [rows, columns]."""

    rows: int
    columns: int
    is_exact: bool = True  # false in a saved file that stores rounded weights


class Line(Struct):
    """A complete row or column of a map. Buffer 0: float32 [keys] or [queries]."""

    length: int
    is_exact: bool = True


class QueryRow(Struct):
    """The keys of a token in one head."""

    site: int
    head: int
    entropy: float
    top: list[tuple[int, float]]  # key and weight, 5 at most


class KeyColumn(Struct):
    """The queries that attend to a token in one head."""

    site: int
    head: int
    top: list[tuple[int, float]]  # query and weight
    received: float  # sum over rows


class Token(Struct):
    """A token in every head, as a query and as a key."""

    as_query: list[QueryRow]
    as_key: list[KeyColumn]


class StepKey(Struct):
    """A key in the computation for one query."""

    key: int
    k: list[float | None]
    product: float | None
    scaled: float | None
    bias: float | None  # null: the attention has no bias
    is_allowed: bool
    weight: float
    v: list[float | None]


class Steps(Struct):
    """The computation for one query, with numbers."""

    formula_scale: str  # "/ sqrt(64)", "x 1", ...
    width: int
    query: list[float | None]
    keys: list[StepKey]  # the keys with the largest weights, at most 64, in the order of their positions
    hidden: int  # keys that are not listed
    hidden_weight: float  # their weight in all
    log_sum_exp: float | None
    output: list[float | None]  # sum of weight x value over all keys
    difference: float | None  # largest |difference| to the head output that the model computed; null: not kept
    sentences: dict[StepName, str]


class StreamStep(Struct):
    """A part of a block, and the residual stream of a token behind it. Lengths are Euclidean norms."""

    part: PartName
    site: Index | None  # of an attention
    added: float  # length of the vector that the part adds
    norm: float | None  # length of the residual stream behind the part; null: not known between the parts of a block


class Layer(Struct):
    """A block: the residual stream of a token through it, and the logit lens."""

    name: str
    before: float  # length of the vector that enters the block
    steps: list[StreamStep]  # in execution order
    after: float | None
    candidates: list[Candidate]  # the tokens that the model would predict if it ended here; empty without logit lens


class Layers(Struct):
    """A token from the embedding to the logits, and the sizes of the parts of the model; null: not known."""

    width: int | None  # of the residual stream
    heads: int  # of the first attention
    groups: int | None  # its key/value heads
    head_width: int | None
    hidden: int | None  # inner width of the MLP
    outputs: int | None  # tokens of the vocabulary, or classes
    candidates: list[Candidate]  # the logit lens of the embedding: what enters the first block
    layers: list[Layer]  # empty: only the sizes are known
    gap: StreamGap | None  # why there is no residual stream, or no logit lens


class ContrastMetric(Struct):
    """The logit of one token (or class) minus that of another; or, without tokens, a number that the model predicts."""

    right: Candidate | None  # with their probabilities for the first input
    wrong: Candidate | None
    clean: float  # of the first input
    corrupted: float  # of the second input


class SharedCandidate(Struct):
    """A token or class with its probability for both inputs."""

    label: str
    id: int
    clean: float
    corrupted: float


class Contrast(Struct):
    """A second input beside that of a run, without edits. Buffer 0: float32, one number for each head in the order of
    `run.sites`: how far its rows are from those of the second input, from 0 (equal) to 1 (the mean of half the sum of
    absolute differences); empty for long inputs."""

    contrast: int  # `tiles`, `values` and `line` name it; their clean pass is the first input, the edited the second
    model: str  # that reads the second input
    source: list[str]  # labels of the second input
    target: list[str]
    pairs: dict[Sequence, list[tuple[int | None, int | None]]]  # aligned positions: rows and columns of the maps
    position: int | None  # of the second input, where its prediction is measured; null: of the whole input
    candidates: list[SharedCandidate]  # the most probable ones of each input
    metric: ContrastMetric | None  # null: `note` says why
    change: float | None  # Kullback-Leibler divergence of these predictions in nats, first || second
    can_patch: bool
    note: str | None  # a sentence that the user must read
    seconds: float


class SweepLayer(Struct):
    """A layer whose parts were patched."""

    name: str
    site: int  # an attention of it


class Sweep(Struct):
    """What patches of the first input, one at a time, change in the second one. Buffer 0: float32 [layers, columns],
    the metric with a patch minus that without it, for each head or position of the second input; NaN: none."""

    part: PatchPart
    layers: list[SweepLayer]
    columns: int
    metric: ContrastMetric
    seconds: float
    code: str  # Python that measures it


class Patched(Struct):
    """The second input with parts of the first one."""

    value: float  # of the metric
    probabilities: list[float]  # of the candidates of the contrast
    code: str


class HeadFacts(Struct):
    """What a head does."""

    site: int
    head: int
    kind: str  # "previous", "first", "induction", ... see words
    kind_without_first: str
    kind_on_repeats: str  # "" if not measured
    entropy: float  # nats, mean over rows
    distance: float | None  # tokens, mean


class Kinds(Struct):
    """The kinds of all heads, of the clean pass."""

    heads: list[HeadFacts]
    sampled: int | None = None  # how many queries of each head were read; null: all


class EffectRow(Struct):
    """The effect of a head or an edge."""

    site: int
    head: int
    query: int | None  # of an edge
    key: int | None
    weight: float | None  # of an edge
    effect: float
    control_mean: float | None  # effects of random edges of similar weight
    control_low: float | None
    control_high: float | None
    rank: int | None
    of: int | None


class MetricChoice(Struct, omit_defaults=True):
    """What effects are measured in. A token is an id or a text; null is what the model predicts there."""

    name: MetricName
    token: TokenName | None = None  # or the class
    other: TokenName | None = None  # of a logit difference
    position: Index | None = None  # of the prediction; null: the last one, of an answer the one of its first token


class CellWeight(Struct):
    """The weight of a cell in one head."""

    site: int
    head: int
    weight: float


class Cell(Struct):
    """The weight of a cell in every head that reads the same sequences, the largest first."""

    heads: list[CellWeight]


class Effects(Struct):
    """How much heads or edges matter, of the clean pass."""

    over: Over
    by: AblationMethod  # how heads were ablated
    metric: str  # a sentence: "log-probability of ' sat'"
    clean: float
    seconds: float
    rows: list[EffectRow]


class Code(Struct):
    """Python that reproduces what is shown."""

    code: str


class SavedFile(Struct):
    """Buffer 0: the HTML file, with the kinds and effects that were asked for."""

    name: str


class Nothing(Struct):
    """The answer to an ask that only tells the session something."""


class Failure(Struct):
    """The head of the message that an ask failed."""

    failed: AskId | None  # null: the ask had no valid id
    message: str  # a sentence for the user
    reason: Reason


class LayerPreview(Struct):
    """An attention that a slow run has computed. Buffer: as that of `thumbnails`, from a part of the rows."""

    name: str
    heads: int
    rows: int
    columns: int


class Progress(Struct, omit_defaults=True):
    """The head of the message how far an ask is."""

    progress: AskId
    done: int
    total: int  # 0: not known
    stage: str  # such as "loading" or "running"; the page translates it
    layer: LayerPreview | None = None


class State(Struct, omit_defaults=True):
    """Pushed by the session, for example when `widget.edits` is set in Python."""

    edits: list[Edit] | None = None
    text: str | None = None
    selection: Selection | None = None


Reply = tuple[Any, tuple[bytes, ...]]  # the body of an answer, one of these structures, and its buffers


@dataclass(frozen=True)
class Message:
    """A JSON head and the bytes that follow it."""

    head: dict[str, Any]
    buffers: tuple[bytes, ...] = ()

    def to_frame(self) -> bytes:
        """Return the message as one WebSocket frame: the length of the head (4 bytes, little-endian), head, buffers.

        >>> Message({"answer": 1}, (b"ab",)).to_frame()
        b'\\x0c\\x00\\x00\\x00{"answer":1}ab'
        """
        head = encode_json(self.head)
        return b"".join([len(head).to_bytes(HEAD_LENGTH_BYTES, "little"), head, *self.buffers])


def encode_json(content: Any) -> bytes:
    """Return structures, dictionaries and lists as JSON, with null for numbers that are not finite.

    >>> encode_json({"a": [1.5, float("nan")], "b": "half \\ud83d"})
    b'{"a":[1.5,null],"b":"half ?"}'
    """
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:  # a label may hold a lone surrogate, which UTF-8 cannot encode
        return msgspec.json.encode(_replace_surrogates(msgspec.to_builtins(content)))


def _replace_surrogates(content: Any) -> Any:
    if isinstance(content, str):
        return content.encode("utf-8", "replace").decode()
    if isinstance(content, dict):
        return {name: _replace_surrogates(part) for name, part in content.items()}
    if isinstance(content, list | tuple):
        return [_replace_surrogates(part) for part in content]
    return content


def build_answer(ask_id: Any, body: Any, buffers: tuple[bytes, ...] = ()) -> Message:
    """Return the answer to an ask; its body becomes plain JSON, which a notebook can send too."""
    plain = msgspec.json.decode(encode_json(body))
    return Message({"answer": ask_id, "body": plain, "buffers": [len(buffer) for buffer in buffers]}, buffers)


def build_failure(ask_id: Any, message: str, reason: Reason) -> Message:
    """Return the message that an ask failed, with a sentence for the user."""
    return Message(msgspec.to_builtins(Failure(ask_id, message, reason)))


def build_progress(ask_id: Any, done: int, total: int, stage: str) -> Message:
    """Return the message that an ask makes progress."""
    return Message(msgspec.to_builtins(Progress(ask_id, done, total, stage)))


def build_preview(ask_id: Any, layer: LayerPreview, thumbnails: bytes) -> Message:
    """Return the message that a run has computed an attention."""
    head = msgspec.to_builtins(Progress(ask_id, 0, 0, "running", layer))
    return Message({**head, "buffers": [len(thumbnails)]}, (thumbnails,))
