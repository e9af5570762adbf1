"""Attention step by step on a person's own input: a sentence, two sentences, scores, or matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import mask as masks
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError

from . import step_texts as texts
from .bilingual_text import Text
from .formula_steps import Example, Matrix, Step, compute_steps, compute_weight_steps
from .sentence_attention import embed_words, split_words

SENTENCE_WIDTH = 4  # narrow enough to calculate on paper

Projection = Float[Tensor, "width head_width"]


def build_sentence_steps(
    text: str,
    *,
    source: str | None = None,
    causal: bool = False,
    scaled: bool = True,
    width: int = SENTENCE_WIDTH,
    seed: int = 0,
) -> Example:
    """Compute the steps for the words of a sentence, with random projections to queries, keys and values.

    Args:
        source: The sentence whose words are attended to (cross-attention); default: ``text`` itself.
        causal: Whether a word may attend only to itself and to earlier words.
        scaled: Whether to divide the scores by the square root of the width.

    Raises:
        ArgumentError: If a text is empty or too long, or a causal mask is combined with a source.

    >>> [step.formula for step in build_sentence_steps("the cat sat").steps][:4]
    ['X', 'W_Q', 'W_K', 'W_V']
    """
    words = split_words(text)
    if causal and source is not None:
        raise ArgumentError("a causal mask compares positions in one sentence; use it without a source")
    if width < 1:
        raise ArgumentError(f"the width must be at least 1, not {width}")
    source_words = [] if source is None else split_words(source)
    hidden = embed_words(words, width, seed)[0]
    steps = [Step("X", hidden, texts.WORD_VECTORS, rows=words)]
    memory = hidden
    if source_words:
        memory = embed_words(source_words, width, seed)[0]
        steps.append(Step("Y", memory, texts.WORD_VECTORS, rows=source_words))

    projections = draw_projections(3, width, width, seed)
    for name, projection in zip(("W_Q", "W_K", "W_V"), projections, strict=True):
        steps.append(Step(name, projection, texts.PROJECTIONS))
    to_query, to_key, to_values = projections
    steps += compute_steps(
        hidden @ to_query,
        memory @ to_key,
        memory @ to_values,
        scaled=scaled,
        mask=masks.causal if causal else None,
        query_labels=words,
        key_labels=source_words or words,
    )
    title = Text("a sentence with random, untrained parameters", "무작위로 정한 학습 전 파라미터를 쓰는 문장")
    if source_words:
        title = Text(
            "cross-attention from one sentence to another, with random, untrained parameters",
            "한 문장에서 다른 문장으로의 교차 어텐션, 무작위로 정한 학습 전 파라미터 사용",
        )
    return Example(title, steps, words, source_words, texts.RANDOM_REMARK)


def build_score_steps(
    scores: Matrix,
    *,
    values: Matrix | None = None,
    causal: bool = False,
    query_words: Sequence[str] = (),
    key_words: Sequence[str] = (),
) -> Example:
    """Compute the steps from scores to weights and, if values are given, to the output.

    Args:
        scores: The scores ``[query, key]``.
        values: Values ``[key, value_width]``; default: none, and the steps end with the weights.
        causal: Whether a query may attend only to keys at its own and at earlier positions.
        query_words: The word of each query; default: none, and the queries are numbered.
        key_words: The word of each key; default: those of the queries.

    Raises:
        ArgumentError: If the shapes or the number of words do not fit.
    """
    query_labels, key_labels = _label_axes(scores.shape[0], scores.shape[1], query_words, key_words)
    mask = _choose_mask(causal, scores.shape[0], scores.shape[1])
    steps = [Step("scores", scores, texts.SCORES, rows=query_labels, columns=key_labels)]
    steps += compute_weight_steps(scores, mask, query_labels=query_labels, key_labels=key_labels)
    if values is not None:
        if len(values) != scores.shape[1]:
            raise ArgumentError(
                f"the scores have {scores.shape[1]} columns and the values {len(values)} rows; give one value per key"
            )
        output = steps[-1].numbers @ values
        steps.append(Step("V", values, texts.VALUE, rows=key_labels))
        steps.append(Step("weights V", output, texts.OUTPUT, rows=query_labels))
    return Example(Text("your scores", "직접 입력한 점수"), steps, list(query_words), list(key_words))


def build_matrix_steps(
    query: Matrix,
    key: Matrix,
    values: Matrix,
    *,
    causal: bool = False,
    scaled: bool = True,
    query_words: Sequence[str] = (),
    key_words: Sequence[str] = (),
) -> Example:
    """Compute the steps for given queries, keys and values.

    Args:
        query: Queries ``[query, head_width]``.
        key: Keys ``[key, head_width]``.
        values: Values ``[key, value_width]``.
        causal: Whether a query may attend only to keys at its own and at earlier positions.
        scaled: Whether to divide the scores by the square root of the width.
        query_words: The word of each query; default: none, and the queries are numbered.
        key_words: The word of each key; default: those of the queries.

    Raises:
        ArgumentError: If the shapes or the number of words do not fit.
    """
    if query.shape[1] != key.shape[1]:
        raise ArgumentError(
            f"the query has {query.shape[1]} columns and the key {key.shape[1]}; queries and keys need the same width"
        )
    if len(key) != len(values):
        raise ArgumentError(f"the key has {len(key)} rows and the value {len(values)}; give one value for each key")
    query_labels, key_labels = _label_axes(len(query), len(key), query_words, key_words)
    steps = compute_steps(
        query,
        key,
        values,
        scaled=scaled,
        mask=_choose_mask(causal, len(query), len(key)),
        query_labels=query_labels,
        key_labels=key_labels,
    )
    title = Text("your queries, keys and values", "직접 입력한 쿼리, 키, 값")
    return Example(title, steps, list(query_words), list(key_words))


def draw_projections(count: int, width: int, head_width: int, seed: int) -> list[Projection]:
    """Draw random projections ``[width, head_width]`` whose outputs deviate about as much as the input."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(width, head_width, generator=generator) / width**0.5 for _ in range(count)]


def _label_axes(
    queries: int, keys: int, query_words: Sequence[str], key_words: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the labels of both axes: the words, or numbers with the letter of the axis."""
    if query_words and not key_words and queries == keys:
        key_words = query_words
    for words, count, axis in ((query_words, queries, "queries"), (key_words, keys, "keys")):
        if words and len(words) != count:
            raise ArgumentError(f"there are {len(words)} words for {count} {axis}; give one word for each of them")
    query_labels = list(query_words) or [f"q{index}" for index in range(queries)]
    key_labels = list(key_words) or [f"k{index}" for index in range(keys)]
    return query_labels, key_labels


def _choose_mask(causal: bool, queries: int, keys: int) -> Mask | None:
    if causal and queries != keys:
        raise ArgumentError(
            f"a causal mask needs as many queries as keys, not {queries} and {keys}; remove --causal or add rows"
        )
    return masks.causal if causal else None
