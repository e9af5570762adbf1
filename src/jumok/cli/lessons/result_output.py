"""Print the result of an experiment or of ``jumok cost``: tables, sentences, and where the lesson did not come out."""

from __future__ import annotations

import click

from jumok.lab.result import Result

from .table_text import format_table


def print_outcome(outcome: Result, language: str, heading: str) -> None:
    """Print the tables and sentences of a result.

    Args:
        language: "en" or "ko".
        heading: The line above the exceptions, if there are any.
    """
    for table in outcome.tables:
        if table.title is not None:
            click.echo(table.title.select(language))
        click.echo(format_table(table.select_language(language)) + "\n")
    for text in outcome.sentences:
        click.echo(text.select(language))
    if outcome.exceptions:
        click.echo(f"\n{heading}")
        for text in outcome.exceptions:
            click.echo(f"- {text.select(language)}")
