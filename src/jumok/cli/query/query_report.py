"""Print where one token looks, for ``jumok look --query``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from jumok.lens.describe.query_sources import QueryPosition, QuerySources

KEYS_SHOWN = 8  # preferred keys in the summary
HEADS_SHOWN = 40  # heads whose sources are printed


def describe_query_as_json(query: QueryPosition, sources: QuerySources, skip_first: bool) -> dict[str, Any]:
    """Return the fields of the report.

    Args:
        query: The token.
        sources: Its sources.
        skip_first: Whether the first key was left out.
    """
    token = {"token": query.position, "side": query.side, "label": query.label, "occurrences": query.occurrences}
    return {
        "query": {**token, "word": query.part_of or None, "skip_first": skip_first},
        "preferred": sources.preferred,
        "heads": sources.heads,
    }


def print_query_report(query: QueryPosition, sources: QuerySources, skip_first: bool) -> None:
    """Print how many heads prefer which key, and the keys of every head.

    Args:
        query: The token.
        sources: Its sources.
        skip_first: Whether the first key was left out.
    """
    without_first = ", without the first token" if skip_first else ""
    click.echo(f"{query.label}[{query.position}] in {len(sources.heads)} heads{without_first}")
    if query.part_of:
        click.echo(f"{query.part_of} has several tokens; this is the last of them")
    if len(query.occurrences) > 1:
        positions = ", ".join(str(position) for position in query.occurrences)
        click.echo(f"it occurs at {positions}; this is the last one (--query POSITION selects another)")

    click.echo("\nkeys that heads prefer:")
    for row in sources.preferred[:KEYS_SHOWN]:
        click.echo(f"  {_format_heads(row['heads']):>9}  {row['label']}[{row['key']}]")
    remaining = sources.preferred[KEYS_SHOWN:]
    if remaining:
        click.echo(f"  {_format_heads(sum(row['heads'] for row in remaining)):>9}  {len(remaining)} other keys")
    without_sources = sum(not row["sources"] for row in sources.heads)
    if without_sources:
        click.echo(f"  {_format_heads(without_sources):>9}  no key with any weight")

    hidden = len(sources.heads) - HEADS_SHOWN
    title = "each head, by its largest weight (layer.head)"
    if hidden > 0:
        title = f"the {HEADS_SHOWN} heads with the largest weights (layer.head); --json prints the other {hidden:,} too"
    click.echo(f"\n{title}:")
    for row in sources.heads[:HEADS_SHOWN]:
        keys = "   ".join(f"{source['label']}[{source['key']}] {source['weight']:.2f}" for source in row["sources"])
        click.echo(f"  {row['layer']}.{row['head']}  {keys or '-'}")


def _format_heads(count: int) -> str:
    return f"{count} head{'s' if count != 1 else ''}"
