"""Describe the input and the answer of a model for ``jumok look`` and ``jumok effect``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults

if TYPE_CHECKING:
    from torch import nn

    from jumok.tasks.labelled_input import LabelledInput

limit_option = click.option(
    "--limit",
    type=click.IntRange(1),
    help="The largest number of answer tokens, for a model that answers (translation, caption, transcript).  "
    f"[default: {defaults.ANSWER_TOKENS}; for audio the whole transcript]",
)


@contextmanager
def explain_failures(model: nn.Module) -> Iterator[None]:
    """Turn errors inside a model of transformers into one sentence: it may read more than a text or an image."""
    from jumok.errors import ArgumentError, JumokError
    from jumok.models import Model

    try:
        yield
    except (JumokError, OSError):
        raise
    except Exception as error:
        if isinstance(model, Model):
            raise
        raise ArgumentError(
            f"{type(model).__name__} cannot run on this input: {str(error)[:300]}; jumok.Lens(model).run(**inputs) "
            "takes any tensors"
        ) from error


def input_to_json(labelled: LabelledInput) -> dict[str, Any]:
    """Return the labels of the source and, for a model that answers, the answer."""
    fields: dict[str, Any] = {"source": labelled.source, "unknown": labelled.unknown}
    fields |= {"unknown_words": list(labelled.unknown_words), "warning": labelled.warning or None}
    if labelled.target:
        fields |= {"target": labelled.target, "answer": labelled.answer, "unfinished": labelled.unfinished}
    return fields


def summarize_input(labelled: LabelledInput) -> str:
    """Return one line: the number of positions, and the answer."""
    count = len(labelled.source)
    summary = f"{count:,} position{'s' if count != 1 else ''}"
    if labelled.audio is not None:
        summary = f"{labelled.audio.seconds:.2f} seconds of audio in {count:,} positions of 20 ms"
    if labelled.unknown:
        from jumok.data.tokenizers.token_labels import format_unknown_words

        named = format_unknown_words(labelled.unknown_words)
        summary += f" ({labelled.unknown:,} of them unknown to its tokenizer{': ' if named else ''}{named})"
    if labelled.target:
        summary += f"; answer: {labelled.answer}"
    if labelled.unfinished:
        summary += f" (the first {labelled.answer_length} tokens: --limit)"
    return summary
