"""Print the answers of ``jumok ask``: the text, what it depends on, and the passages."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.cli.command import align_column

if TYPE_CHECKING:
    from jumok.tasks.ask import Answer, CutPassage

EXCERPT_WIDTH = 100
LARGEST_RATIO = 1e6  # a larger ratio of probabilities is printed as "more than a million times"


def print_answer(answer: Answer, folder: Path) -> None:
    """Print an answer, its verdict, and the passages.

    Args:
        folder: The indexed folder, as the user wrote it.
    """
    if answer.note is not None:
        click.echo(f"note: {answer.note}", err=True)
    if answer.verdict is None:
        _print_passages(answer.passages, folder)
        return

    if answer.verdict == "nothing fits":
        click.echo(f"Nothing in {folder} fits this question.")
    else:
        click.echo(f"{answer.text}{' ...' if answer.reached_limit else ''}")
    click.echo(_describe_verdict(answer, folder))
    if any(passage.attention is not None for passage in answer.passages):
        click.echo("")
        _print_table(answer.passages, folder)
    elif answer.verdict != "supported":
        click.echo("The nearest passages:")
        _print_passages(answer.passages, folder)


def _describe_verdict(answer: Answer, folder: Path) -> str:
    """Return the sentence about what an answer depends on."""
    citation = answer.citation
    if citation is not None:
        assert citation.word_change is not None
        return (
            f'  supported by {folder / citation.hit.passage.location}: without this passage, "{citation.word}" is '
            f"{_describe_ratio(citation.word_change)} ({citation.word_change:+.1f} nats)"
        )
    if (cited := answer.lacking_passage) is not None:
        words = ", ".join(f'"{word}"' for word in cited.missing)
        location = folder / cited.hit.passage.location
        return f"  not supported: the answer depends on {location}, which does not contain {words}"
    changes = [
        passage.word_change for passage in answer.passages if passage.word_change is not None and not passage.is_control
    ]
    if not changes:
        return "  The search found no passage that is similar to the question."
    cut = "the passage" if len(changes) == 1 else f"any of the {len(changes)} passages"
    written = "" if answer.verdict == "not supported" else f' The model would have written: "{answer.text}"'
    return f"  not supported: without {cut}, no word becomes much less probable ({min(changes):+.1f} nats).{written}"


def _describe_ratio(change: float) -> str:
    ratio = math.exp(min(-change, 50.0))
    return f"{ratio:,.0f} times less probable" if ratio < LARGEST_RATIO else "more than a million times less probable"


def _print_passages(passages: tuple[CutPassage, ...], folder: Path) -> None:
    """Print where each passage is, with the beginning of its text."""
    if not passages:
        click.echo("no passage was found")
    for passage in passages:
        click.echo(f"  {folder / passage.hit.passage.location}  ({_describe_scores(passage)})")
        click.echo(f"    {_shorten(passage.hit.passage.text)}")


def _describe_scores(passage: CutPassage) -> str:
    """Return the scores of the search; "fused" ranks by both of them."""
    scores = {"cosine": passage.hit.cosine, "BM25": passage.hit.bm25}
    return ", ".join(f"{name} {score:.2f}" for name, score in scores.items() if score is not None)


def _print_table(passages: tuple[CutPassage, ...], folder: Path) -> None:
    """Print a table of the passages: the attention on each, and the change when it is cut."""
    columns = {
        "passage": [str(folder / passage.hit.passage.location) for passage in passages],
        "": ["control" if passage.is_control else "found" for passage in passages],
        "cosine": ["-" if passage.hit.cosine is None else f"{passage.hit.cosine:.2f}" for passage in passages],
        "attention": ["-" if passage.attention is None else f"{passage.attention:.1%}" for passage in passages],
        "change if cut": ["-" if passage.change is None else f"{passage.change:+.2f} nats" for passage in passages],
        "most changed word": [_describe_word(passage) for passage in passages],
    }
    aligned = [align_column(texts, title) for title, texts in columns.items()]
    for row in zip(*aligned, strict=True):
        click.echo("  " + "  ".join(row).rstrip())
    click.echo("")
    for passage in passages:
        if not passage.is_control:
            click.echo(f"  {folder / passage.hit.passage.location}")
            wrapped = textwrap.fill(
                passage.hit.passage.text, EXCERPT_WIDTH, initial_indent="    ", subsequent_indent="    "
            )
            click.echo(wrapped)


def _describe_word(passage: CutPassage) -> str:
    return "-" if passage.word_change is None else f"{passage.word} {passage.word_change:+.2f}"


def _shorten(text: str) -> str:
    return textwrap.shorten(text, EXCERPT_WIDTH, placeholder=" ...")
