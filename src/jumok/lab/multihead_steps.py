"""Multi-head attention step by step: split into heads, attend in each, concatenate, project."""

from __future__ import annotations

import torch

from jumok.attention import mask as masks
from jumok.errors import ArgumentError

from . import step_texts as texts
from .bilingual_text import Text
from .formula_steps import Example, Matrix, Step, compute_steps
from .input_steps import draw_projections
from .sentence_attention import embed_words, split_words

HEAD_WIDTH = 16


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

    Each head has its own projections ``[width, width / heads]`` without biases. Shapes have a batch axis.

    Args:
        width: The width of the word vectors; default: 16 for each head.
        source: The sentence whose words are attended to (cross-attention); default: ``text`` itself.
        causal: Whether a word may attend only to itself and to earlier words.
        scaled: Whether to divide the scores by the square root of a head's width.

    Raises:
        ArgumentError: If the heads do not divide the width, or a text is empty or too long.

    >>> [step.shape for step in build_multihead_steps("I read books").steps if step.formula.endswith("output")]
    [[1, 3, 16], [1, 3, 16], [1, 3, 16], [1, 3, 16]]
    """
    words = split_words(text)
    source_words = [] if source is None else split_words(source)
    if causal and source is not None:
        raise ArgumentError("a causal mask compares positions in one sentence; use it without a source")
    width = HEAD_WIDTH * heads if width is None else width
    if heads < 1 or width < 1 or width % heads:
        raise ArgumentError(f"{heads} heads do not divide the width {width}; give a width that is a multiple of heads")

    hidden = embed_words(words, width, seed)
    steps = [Step("X", hidden, texts.WORD_VECTORS, rows=words)]
    memory = hidden
    if source_words:
        memory = embed_words(source_words, width, seed)
        steps.append(Step("Y", memory, texts.WORD_VECTORS, rows=source_words))

    projections = draw_head_projections(heads, width, seed)
    outputs = []
    for head in range(heads):
        to_query, to_key, to_values = projections[3 * head : 3 * head + 3]
        head_steps = compute_steps(
            hidden[0] @ to_query,
            memory[0] @ to_key,
            memory[0] @ to_values,
            scaled=scaled,
            mask=masks.causal if causal else None,
            query_labels=words,
            key_labels=source_words or words,
        )
        steps += [_move_to_head(step, head) for step in head_steps]
        outputs.append(steps[-1].numbers)

    concatenated = torch.cat(outputs, -1)
    projected = concatenated @ projections[-1]
    steps.append(Step("concatenation of the heads", concatenated, texts.CONCATENATED, rows=words))
    steps.append(Step("concatenation W_O", projected, texts.PROJECTED, rows=words))
    title = Text(
        f"{heads} heads of width {width // heads}, with random, untrained parameters",
        f"너비 {width // heads}인 헤드 {heads}개, 무작위로 정한 학습 전 파라미터 사용",
    )
    return Example(title, steps, words, source_words, texts.RANDOM_REMARK)


def draw_head_projections(heads: int, width: int, seed: int) -> list[Matrix]:
    """Draw the query, key and value projection of each head in turn, and last the output projection."""
    per_head = draw_projections(3 * heads, width, width // heads, seed)
    return [*per_head, *draw_projections(1, width, width, seed + 1)]


def _move_to_head(step: Step, head: int) -> Step:
    """Return a step of one head with a batch axis and the head's number."""
    is_output = step.formula == "weights V"
    return Step(
        f"head {head}: {'output' if is_output else step.formula}",
        step.numbers[None],
        texts.HEAD_OUTPUT if is_output else step.explanation,
        rows=step.rows,
        columns=step.columns,
        is_weights=step.is_weights,
    )
