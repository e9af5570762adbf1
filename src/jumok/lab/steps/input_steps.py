"""Attention step by step on a person's own input: a sentence, two sentences, one or several heads, scores, matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import mask as masks
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError

from .formula_steps import TEXTS, Example, Matrix, Step, compute_steps, compute_weight_steps
from .sentence_attention import embed_words, split_words

SENTENCE_WIDTH = 4  # narrow enough to calculate on paper
HEAD_WIDTH = 16
MAX_NUMBER = 10_000  # the softmax of larger products is all or nothing
MAX_SIZE = 64  # rows and columns of a matrix; more cannot be read on a screen

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

    >>> [step.formula for step in build_sentence_steps("the cat sat").steps][:4]
    ['X', 'W_Q', 'W_K', 'W_V']
    """
    words, source_words = _split_sentences(text, source, causal)
    if width < 1:
        raise ArgumentError(f"the width must be at least 1, not {width}")
    steps = _embed_sentences(words, source_words, width, seed)
    hidden, memory = steps[0].numbers[0], steps[-1].numbers[0]
    steps = [replace(step, numbers=step.numbers[0]) for step in steps]
    projections = draw_projections(3, width, width, seed)
    for name, projection in zip(("to_query", "to_key", "to_value"), projections, strict=True):
        steps.append(Step(TEXTS(f"headings.{name}"), projection, TEXTS("projections")))
    steps += _compute_head(hidden, memory, projections, scaled, causal, words, source_words)
    title = TEXTS("titles.cross" if source_words else "titles.sentence")
    return Example(title, steps, words, source_words, TEXTS("random_remark"))


def build_multihead_steps(
    text: str,
    *,
    heads: int = 4,
    width: int | None = None,
    source: str | None = None,
    causal: bool = False,
    scaled: bool = True,
    seed: int = 0,
) -> Example:
    """Compute the steps of a multi-head attention over the words of a sentence, with random projections.

    Each head has its own projections ``[width, width / heads]`` without biases. Shapes have a batch axis. The other
    arguments are those of ``build_sentence_steps``; the default width is 16 for each head.

    >>> [step.shape for step in build_multihead_steps("I read books").steps if step.formula.endswith("output")]
    [[1, 3, 16], [1, 3, 16], [1, 3, 16], [1, 3, 16]]
    """
    words, source_words = _split_sentences(text, source, causal)
    width = HEAD_WIDTH * heads if width is None else width
    if heads < 1 or width < 1 or width % heads:
        raise ArgumentError(f"{heads} heads do not divide the width {width}; give a width that is a multiple of heads")

    steps = _embed_sentences(words, source_words, width, seed)
    hidden, memory = steps[0].numbers[0], steps[-1].numbers[0]
    projections = draw_head_projections(heads, width, seed)
    outputs = []
    for head in range(heads):
        head_projections = projections[3 * head : 3 * head + 3]
        head_steps = _compute_head(hidden, memory, head_projections, scaled, causal, words, source_words)
        steps += [_move_to_head(step, head) for step in head_steps]
        outputs.append(steps[-1].numbers)

    concatenated = torch.cat(outputs, -1)
    projected = concatenated @ projections[-1]
    steps.append(Step(TEXTS("headings.concatenated"), concatenated, TEXTS("concatenated"), rows=words))
    steps.append(Step(TEXTS("headings.projected"), projected, TEXTS("projected"), rows=words))
    title = TEXTS("titles.multihead", heads=heads, width=width // heads)
    return Example(title, steps, words, source_words, TEXTS("random_remark"))


def _split_sentences(text: str, source: str | None, causal: bool) -> tuple[list[str], list[str]]:
    words = split_words(text)
    if causal and source is not None:
        raise ArgumentError("a causal mask compares positions in one sentence; use it without a source")
    return words, [] if source is None else split_words(source)


def _embed_sentences(words: list[str], source_words: list[str], width: int, seed: int) -> list[Step]:
    """Return the word vectors ``[1, word, width]`` of the sentence and, if there is one, of the source."""
    explanation = TEXTS("word_vectors")
    steps = [Step(TEXTS("headings.words"), embed_words(words, width, seed), explanation, rows=words)]
    if source_words:
        source_vectors = embed_words(source_words, width, seed)
        steps.append(Step(TEXTS("headings.source_words"), source_vectors, explanation, rows=source_words))
    return steps


def _compute_head(
    hidden: Matrix,
    memory: Matrix,
    projections: Sequence[Projection],
    scaled: bool,
    causal: bool,
    words: list[str],
    source_words: list[str],
) -> list[Step]:
    to_query, to_key, to_values = projections
    return compute_steps(
        hidden @ to_query,
        memory @ to_key,
        memory @ to_values,
        scaled=scaled,
        mask=masks.causal if causal else None,
        query_labels=words,
        key_labels=source_words or words,
    )


def _move_to_head(step: Step, head: int) -> Step:
    """Return a step of one head with a batch axis and the head's number."""
    is_output = step.heading == TEXTS("headings.output")
    heading = TEXTS("headings.head_output" if is_output else "headings.of_head", head=head, heading=step.heading)
    explanation = TEXTS("head_output") if is_output else step.explanation
    return replace(step, heading=heading, numbers=step.numbers[None], explanation=explanation)


def draw_head_projections(heads: int, width: int, seed: int) -> list[Matrix]:
    """Draw the query, key and value projection of each head in turn, and last the output projection."""
    per_head = draw_projections(3 * heads, width, width // heads, seed)
    return [*per_head, *draw_projections(1, width, width, seed + 1)]


def draw_projections(count: int, width: int, head_width: int, seed: int) -> list[Projection]:
    """Draw random projections ``[width, head_width]`` whose outputs deviate about as much as the input."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(width, head_width, generator=generator) / width**0.5 for _ in range(count)]


def build_score_steps(
    scores: Matrix,
    *,
    values: Matrix | None = None,
    causal: bool = False,
    query_words: Sequence[str] = (),
    key_words: Sequence[str] = (),
) -> Example:
    """Compute the steps from scores ``[query, key]`` to weights and, if values are given, to the output.

    Args:
        query_words: The word of each query; default: none, and the queries are numbered.
        key_words: The word of each key; default: those of the queries.
    """
    query_labels, key_labels = _label_axes(scores.shape[0], scores.shape[1], query_words, key_words)
    mask = _choose_mask(causal, scores.shape[0], scores.shape[1])
    steps = [Step(TEXTS("headings.scores"), scores, TEXTS("scores"), rows=query_labels, columns=key_labels)]
    steps += compute_weight_steps(scores, mask, query_labels=query_labels, key_labels=key_labels)
    if values is not None:
        if len(values) != scores.shape[1]:
            raise ArgumentError(
                f"the scores have {scores.shape[1]} columns and the values {len(values)} rows; give one value per key"
            )
        output = steps[-1].numbers @ values
        steps.append(Step(TEXTS("headings.value"), values, TEXTS("value"), rows=key_labels))
        steps.append(Step(TEXTS("headings.output"), output, TEXTS("output"), rows=query_labels))
    return Example(TEXTS("titles.scores"), steps, list(query_words), list(key_words))


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
    """Compute the steps for given queries, keys and values; the words are those of ``build_score_steps``."""
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
    return Example(TEXTS("titles.matrices"), steps, list(query_words), list(key_words))


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


def parse_matrix(text: str, name: str) -> Float[Tensor, "row column"]:
    """Parse a matrix such as ``"2.1 1.5; 1.3 2.5"``.

    Numbers are separated by spaces or commas, rows by semicolons or line breaks.

    Args:
        name: What the matrix is, for error messages.

    >>> parse_matrix("2.1 1.5; 1.3 2.5", "scores").tolist()
    [[2.1, 1.5], [1.3, 2.5]]
    """
    lines = [line.replace(",", " ").split() for line in text.replace("\n", ";").split(";")]
    while lines and not lines[-1]:  # a semicolon at the end
        lines.pop()
    if not lines:
        raise ArgumentError(f'{name} is empty; write numbers row by row, for example "2.1 1.5; 1.3 2.5"')
    rows = []
    for number, line in enumerate(lines, 1):
        if not line:
            raise ArgumentError(f"row {number} of {name} is empty; remove one of the semicolons")
        rows.append([_parse_number(word, number, name) for word in line])
        if len(line) != len(lines[0]):
            raise ArgumentError(
                f"row {number} of {name} has {len(line)} numbers and row 1 has {len(lines[0])}; give every row the "
                "same number of numbers"
            )
    if max(len(rows), len(rows[0])) > MAX_SIZE:
        raise ArgumentError(f"{name} is {len(rows)} x {len(rows[0])}; give at most {MAX_SIZE} rows and columns")
    return torch.tensor(rows, dtype=torch.float64)  # products of large numbers stay exact


def _parse_number(word: str, row: int, name: str) -> float:
    try:
        number = float(word)
    except ValueError:
        raise ArgumentError(f"{word!r} in row {row} of {name} is not a number; write numbers such as 1.5") from None
    if not abs(number) <= MAX_NUMBER:  # also for NaN
        raise ArgumentError(
            f"{word} in row {row} of {name} is not usable; write numbers between -{MAX_NUMBER:,} and {MAX_NUMBER:,}"
        )
    return number
