"""Apply one untrained multi-head attention to a sentence, and report shapes, weights and the weight on later tokens."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from jumok import defaults
from jumok.attention import EluPlusOne, FavorPlus, MultiHead, attend
from jumok.attention import bias as biases
from jumok.attention import score as scores
from jumok.attention.bias import Bias
from jumok.attention.mask import Mask
from jumok.attention.score import Score
from jumok.errors import ArgumentError
from jumok.layers import SinusoidalPositions

SCORES = ("scaled_dot", "dot", "general", "additive", "concat", "kernel", "favor")
BIASES = ("none", "alibi", "t5")
MAX_WORDS = 64  # a larger heat map is unreadable in a terminal


@dataclass(frozen=True)
class SentenceAttention:
    """The result of one attention over one sentence.

    Attributes:
        tokens: The words that attend (queries).
        source: The words that are attended to (keys): the same words, or those of another sentence.
        mask: The mask expression, or "none".
        weights: The attention weights ``[head, query, key]``.
        future: For each query, the sum of its weights on later tokens; the maximum over the heads.
        row_error: The largest difference from 1 of the sum of a row, over rows with any weight.
        difference: The largest difference between the output of that backend and of the explicit backend.
    """

    tokens: list[str]
    source: list[str]
    mask: str
    score: str
    head_width: int
    query_shape: list[int]
    key_shape: list[int]
    value_shape: list[int]
    output_shape: list[int]
    parameters: int
    weights: Tensor
    future: list[float]
    row_error: float
    backend: str
    difference: float


def split_words(text: str) -> list[str]:
    """Split a sentence of 1 to 64 words at whitespace."""
    # command-line arguments may contain bytes that are not UTF-8
    words = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").split()
    if not words:
        raise ArgumentError("the text is empty; give a sentence of a few words")
    if len(words) > MAX_WORDS:
        raise ArgumentError(f"the text has {len(words)} words; give at most {MAX_WORDS}")
    return words


def attend_sentence(
    text: str,
    *,
    source: str | None = None,
    heads: int = defaults.ATTEND_HEADS,
    groups: int | None = None,
    width: int = defaults.ATTEND_WIDTH,
    head_width: int | None = None,
    value_width: int | None = None,
    projection_bias: bool = True,
    output_map: bool = True,
    mask: Mask | None = None,
    score: str = defaults.ATTEND_SCORE,
    bias: str = defaults.ATTEND_BIAS,
    projection: str = defaults.ATTEND_PROJECTION,
    backend: str = defaults.ATTEND_BACKEND,
    seed: int = 0,
) -> SentenceAttention:
    """Apply an untrained multi-head attention to the words of a sentence.

    Args:
        source: The sentence whose words are attended to (cross-attention); default: ``text`` itself.
        groups: The number of key/value heads; default: as many as heads.
        head_width: The width of queries and keys in each head; default: width / heads.
        value_width: The width of values in each head; default: ``head_width``.
        projection_bias: Whether the maps of queries, keys and values and the output map have biases.
        output_map: Whether the joined heads go through an output map.
        mask: Which words each word may attend to; default: all of them.
        score: One of scaled_dot, dot, general, additive, concat, kernel, favor.
        bias: One of none, alibi, t5.
        projection: One of fused, batched, single. All of them get the same parameters.
        backend: A backend whose output is compared with that of the explicit one.
        seed: The seed of the random parameters and word vectors.

    >>> from jumok.attention.mask import causal
    >>> result = attend_sentence("the cat sat", mask=causal)
    >>> result.weights.shape, result.future
    (torch.Size([2, 3, 3]), [0.0, 0.0, 0.0])
    """
    query_words = split_words(text)
    key_words = query_words if source is None else split_words(source)
    torch.manual_seed(seed)
    attention = MultiHead(
        width, heads, groups=groups, head_width=head_width, value_width=value_width, bias=projection_bias
    )
    score_function = _build_score(score, attention.sizes.head_width)
    attention.score = score_function
    bias_function = _build_bias(bias, heads)
    _redraw_projections(attention, width)
    attention = attention.convert_projection(projection)  # drawn in one layout, so that all layouts are equal

    with torch.no_grad():
        inputs = embed_words(query_words, width, seed)
        memory = None if source is None else embed_words(key_words, width, seed)
        _, weights = attention(inputs, memory, mask=mask, bias=bias_function, weights=True)
        query = attention.projection.project_queries(inputs)
        key, value = attention.projection.project_keys_values(inputs if memory is None else memory)
        exact, compared = (
            attend(query, key, value, mask=mask, bias=bias_function, score=score_function, backend=name)
            for name in ("explicit", backend)
        )
        joined = exact.transpose(1, 2).flatten(2)
        output = attention.output(joined) if output_map else joined

    pattern = weights[0]
    left_out = [] if output_map else list(attention.output.parameters())
    return SentenceAttention(
        tokens=query_words,
        source=key_words,
        mask="none" if mask is None else repr(mask),
        score=score,
        head_width=attention.sizes.head_width,
        query_shape=list(query.shape),
        key_shape=list(key.shape),
        value_shape=list(value.shape),
        output_shape=list(output.shape),
        parameters=sum(p.numel() for p in attention.parameters()) - sum(p.numel() for p in left_out),
        weights=pattern,
        future=pattern.triu(1).sum(-1).amax(0).tolist(),
        row_error=_measure_row_error(pattern),
        backend=backend,
        difference=float((compared - exact).abs().max()),
    )


def _redraw_projections(attention: MultiHead, width: int) -> None:
    """Draw projections that give scores a deviation of about 1, so that patterns are visible."""
    for name, parameter in attention.named_parameters():
        if "projection" in name and parameter.dim() == 2:
            nn.init.normal_(parameter, std=width**-0.5)


def _measure_row_error(pattern: Tensor) -> float:
    """Return the largest difference from 1 of the sum of a row, over rows with any weight."""
    sums = pattern.sum(-1)
    attending = sums > 0
    return float((sums - 1).abs()[attending].max()) if bool(attending.any()) else 0.0


def embed_words(words: list[str], width: int, seed: int) -> Tensor:
    """Return ``[1, word, width]``: a random vector for each distinct word, plus its sinusoidal position."""
    vectors = []
    for word in words:
        generator = torch.Generator().manual_seed(zlib.crc32(word.encode()) + seed)
        vectors.append(torch.randn(width, generator=generator))
    return (torch.stack(vectors) + SinusoidalPositions(width)(range(len(words))))[None]


def _build_score(name: str, head_width: int) -> Score:
    match name:
        case "scaled_dot":
            return scores.ScaledDot()
        case "dot":
            return scores.Dot()
        case "general":
            return scores.General(head_width, head_width)
        case "additive":
            return scores.Additive(head_width, head_width, hidden=head_width)
        case "concat":
            return scores.Concat(head_width, head_width, hidden=head_width)
        case "kernel":
            return scores.Kernel(EluPlusOne())
        case "favor":
            return scores.Kernel(FavorPlus())
    raise ArgumentError(f"unknown score {name!r}; choose one of {', '.join(SCORES)}")


def _build_bias(name: str, heads: int) -> Bias | None:
    match name:
        case "none":
            return None
        case "alibi":
            return biases.alibi(heads)
        case "t5":
            return biases.t5(torch.randn(32, heads))
    raise ArgumentError(f"unknown bias {name!r}; choose one of {', '.join(BIASES)}")
