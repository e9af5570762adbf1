"""One attention on one sentence, nothing trained: the shapes, the weights, and whether anybody sees the future."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from jumok.attention import EluPlusOne, FavorPlus, MultiHead, attend, mask
from jumok.attention import bias as biases
from jumok.attention import score as scores
from jumok.attention.bias import Bias
from jumok.attention.mask import Mask
from jumok.attention.score import Score
from jumok.errors import ArgumentError
from jumok.layers import SinusoidalPositions

SCORES = ("scaled_dot", "dot", "general", "additive", "concat", "kernel", "favor")
BIASES = ("none", "alibi", "t5")
LONGEST = 64  # tokens: a map of more is a blur on a terminal


@dataclass(frozen=True)
class Sentence:
    """What one attention did with one sentence."""

    tokens: list[str]
    source: list[str]  # what was attended to: the same tokens, or those of another sentence
    mask: str
    score: str
    head_width: int
    query_shape: list[int]
    key_shape: list[int]
    output_shape: list[int]
    parameters: int
    weights: Tensor  # [head, query, key]
    future: list[float]  # for each query the sum of its weights on later tokens, the largest over the heads
    row_error: float  # how far the sum of any row that attends to something is from 1
    backend: str
    difference: float  # largest difference between this backend's output and the explicit formula's


def tokens_of(text: str) -> list[str]:
    """Words: enough for a lesson, in any language that writes spaces."""
    words = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").split()  # bytes that are no text
    if not words:
        raise ArgumentError("the text is empty; give a sentence of a few words")
    if len(words) > LONGEST:
        raise ArgumentError(f"the text has {len(words)} words; this lesson draws at most {LONGEST}")
    return words


def attend_sentence(
    text: str,
    *,
    source: str | None = None,
    heads: int = 2,
    groups: int | None = None,
    width: int = 32,
    who: Mask | None = None,
    score: str = "scaled_dot",
    bias: str = "none",
    projection: str = "fused",
    backend: str = "explicit",
    seed: int = 0,
) -> Sentence:
    """Attention over the words of ``text``, or from them to the words of ``source``.

    >>> found = attend_sentence("the cat sat", who=mask.causal)
    >>> found.weights.shape, found.future
    (torch.Size([2, 3, 3]), [0.0, 0.0, 0.0])
    """
    own = tokens_of(text)
    other = own if source is None else tokens_of(source)
    torch.manual_seed(seed)
    attention = MultiHead(width, heads, groups=groups, projection=projection)
    head_width = attention.sizes.head_width
    formula = _score(score, head_width)
    attention.score = formula
    numbers = _bias(bias, heads)
    for name, parameter in attention.named_parameters():
        if "projection" in name and parameter.dim() == 2:
            nn.init.normal_(parameter, std=width**-0.5)  # scores then spread by about 1, and patterns can be seen
    with torch.no_grad():
        inputs, memory = _embedded(own, width, seed), None if source is None else _embedded(other, width, seed)
        output, weights = attention(inputs, memory, mask=who, bias=numbers, weights=True)
        query = attention.projection.project_queries(inputs)
        key, value = attention.projection.project_keys_values(inputs if memory is None else memory)
        settings = {"mask": who, "bias": numbers, "score": formula}
        exact = attend(query, key, value, backend="explicit", **settings)  # type: ignore[call-overload]
        asked = attend(query, key, value, backend=backend, **settings)  # type: ignore[call-overload]
    pattern = weights[0]
    future = pattern.triu(1).sum(-1).amax(0)
    sums = pattern.sum(-1)
    return Sentence(
        tokens=own,
        source=other,
        mask="none" if who is None else repr(who),
        score=score,
        head_width=head_width,
        query_shape=list(query.shape),
        key_shape=list(key.shape),
        output_shape=list(output.shape),
        parameters=sum(parameter.numel() for parameter in attention.parameters()),
        weights=pattern,
        future=future.tolist(),
        row_error=float((sums - 1).abs()[sums > 0].max()) if bool((sums > 0).any()) else 0.0,
        backend=backend,
        difference=float((asked - exact).abs().max()),
    )


def _embedded(tokens: list[str], width: int, seed: int) -> Tensor:
    """A random vector for each word, the same for the same word, plus where it stands."""
    vectors = []
    for token in tokens:
        generator = torch.Generator().manual_seed(zlib.crc32(token.encode()) + seed)
        vectors.append(torch.randn(width, generator=generator))
    return (torch.stack(vectors) + SinusoidalPositions(width)(range(len(tokens))))[None]


def _score(name: str, head_width: int) -> Score:
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
    raise ArgumentError(f"unknown score {name!r}; known are {', '.join(SCORES)}")


def _bias(name: str, heads: int) -> Bias | None:
    match name:
        case "none":
            return None
        case "alibi":
            return biases.alibi(heads)
        case "t5":
            return biases.t5(torch.randn(32, heads))
    raise ArgumentError(f"unknown bias {name!r}; known are {', '.join(BIASES)}")


DEMONSTRATIONS = {
    "english": "the animal didn't cross the street because it was too tired",
    "korean": "그 동물은 너무 지쳐서 길을 건너지 않았다",
}


def demonstration(text: str) -> Sentence:
    """What ``jumok demo`` shows: four heads that see the past alone."""
    return attend_sentence(text, heads=4, width=64, who=mask.causal)
