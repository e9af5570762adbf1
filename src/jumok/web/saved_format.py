"""What a saved file contains: its JSON (``SavedIndex``), and what the pieces of its blob hold."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .messages import Effects, Hello, Kinds, Language, Pass, Run, Sequence, StepName


class Piece(Struct, frozen=True):
    """A part of the blob of a saved file. It begins at a multiple of 4 bytes, so that the page need not copy it."""

    at: int  # the first byte
    bytes: int


class SavedThumbnails(Piece, frozen=True):
    """Thumbnails: u8 [heads, rows, columns], 255 * sqrt(weight)."""

    heads: int
    rows: int
    columns: int
    is_preview: bool


class ExactWeights(Piece, frozen=True, tag_field="form", tag="float32"):
    """Weights: float32 [queries, keys], exact."""


class RoundedWeights(Piece, frozen=True, tag_field="form", tag="u8"):
    """Rounded weights: u8 [queries, keys], 255 * sqrt(weight)."""


class PooledWeights(Piece, frozen=True, tag_field="form", tag="u8 pooled"):
    """The largest weight of each cell: u8 [ceil(queries / 2^level), ceil(keys / 2^level)], 255 * sqrt(weight)."""

    level: int


class ForbiddenCells(Struct):
    """Cells that an edit removed."""

    queries: list[int] | None  # null: all
    keys: list[int] | None


class SavedMask(Struct):
    """Key j is allowed for query i if i - j <= behind, j - i <= ahead, and no forbidden rectangle contains (i, j)."""

    behind: int | None = None  # null: no limit
    ahead: int | None = None  # 0: causal
    forbidden: list[ForbiddenCells] = []


class ComputedWeights(Struct, tag_field="form", tag="qk"):
    """weight(i, j) = exp(scale * dot(query[i], key[j]) - lse[i]) where the mask allows j, else 0; a row whose lse is
    -Infinity may attend to nothing, and its weights are 0."""

    query: Piece  # float32 [queries, width]
    key: Piece  # float32 [keys, width]
    lse: Piece  # float32 [queries]
    width: int
    scale: float
    mask: SavedMask


SavedMap = ExactWeights | RoundedWeights | PooledWeights | ComputedWeights


class SavedScore(Struct):
    """How a product of query and key becomes a score: it is multiplied by ``scale``, bounded by softcap * tanh(score /
    softcap), and multiplied by ``factor``."""

    text: str  # "/ sqrt(64)"
    scale: float
    softcap: float | None
    factor: float  # 1 / temperature
    sink: float | None  # takes part in the softmax without a value


class SavedVectors(Struct):
    """What the computation of one head reads. Its numbers have the form of `SavedAttention`."""

    width: int
    query: Piece  # [queries, width]
    key: Piece  # [keys, width]
    value: Piece  # [keys, value width]
    bias: Piece | None  # [queries, keys]
    mask: SavedMask | None  # null: `allowed` has the cells
    allowed: Piece | None  # u8 [queries, keys], 1 = the query may attend to the key
    score: SavedScore
    difference: Piece  # float32 [queries]: largest |difference| to the head output that the model computed


class SavedAttention(Struct):
    """The vectors of one attention, from which the page computes each step for any query."""

    form: Literal["float32", "float16"]
    sentences: dict[Language, dict[StepName, str]]
    heads: list[SavedVectors]


class SavedAudio(Struct):
    """The audio of a saved file, and where its words are heard by the heads that follow it in time."""

    wav: Piece
    spectrogram: Piece
    listening: dict[Pass, Piece | None]  # float32 [words, positions]


class SavedIndex(Struct):
    """The JSON of a saved file, whose blob is the base64 of one gzip stream. Equal pieces are stored once: an edited
    map that equals the clean one is the same piece."""

    hello: Hello  # `can` lists what the file can answer, stored or computed from maps
    run: Run
    image: Piece | None  # the PNG of `run.image`
    audio: SavedAudio | None
    kinds: Kinds | None
    effects: list[Effects]  # at most one for heads and one for edges
    code: str  # for `hello.selection`
    thumbnails: dict[Pass, list[SavedThumbnails] | None]  # by site; null: the run has no edits
    maps: dict[Pass, list[list[SavedMap | None]] | None]  # by site and head; a map that is not stored is null
    vectors: dict[Pass, list[SavedAttention | None] | None]  # by site; null: not stored
    layers: dict[Pass, dict[Sequence, Piece] | None]  # JSON: `Layers` of each position; a long sequence is left out
    format: int = 2
