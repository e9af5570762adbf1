"""Print where one token looks, for ``jumok look --query``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from jumok.lab.bilingual_text import Text

if TYPE_CHECKING:
    from jumok.lens.describe.query_sources import QueryPosition, QuerySources

KEYS_SHOWN = 8  # preferred keys in the summary
HEADS_SHOWN = 40  # heads whose sources are printed


def describe_query_as_json(query: QueryPosition, sources: QuerySources, skip_first: bool) -> dict[str, Any]:
    """Return the fields of the report.

    Args:
        skip_first: Whether the first key was left out.
    """
    token = {"token": query.position, "side": query.side, "label": query.label, "occurrences": query.occurrences}
    return {
        "query": {**token, "word": query.part_of or None, "skip_first": skip_first},
        "preferred": sources.preferred,
        "heads": sources.heads,
    }


def print_query_report(query: QueryPosition, sources: QuerySources, skip_first: bool, language: str) -> None:
    """Print how many heads prefer which key, and the keys of every head.

    Args:
        language: "en" or "ko".
    """
    name, count = f"{query.label}[{query.position}]", len(sources.heads)
    without_first = Text(", without the first token", ", 첫 토큰 제외").select(language) if skip_first else ""
    click.echo(Text(f"{name} in {count} heads", f"{name}, 헤드 {count}개").select(language) + without_first)
    if query.part_of:
        part = Text(
            f"{query.part_of} has several tokens; this is the last of them",
            f"{query.part_of}: 토큰이 여러 개이며, 이것은 마지막 토큰입니다",
        )
        click.echo(part.select(language))
    if len(query.occurrences) > 1:
        positions = ", ".join(str(position) for position in query.occurrences)
        occurrence = Text(
            f"it occurs at {positions}; this is the last one (--query POSITION selects another)",
            f"위치 {positions}에 나오며, 이것은 마지막입니다(--query 위치로 다른 것을 고릅니다)",
        )
        click.echo(occurrence.select(language))

    click.echo("\n" + Text("keys that heads prefer:", "헤드가 가장 많이 보는 키:").select(language))
    for row in sources.preferred[:KEYS_SHOWN]:
        click.echo(f"  {_format_heads(row['heads'], language):>9}  {row['label']}[{row['key']}]")
    remaining = sources.preferred[KEYS_SHOWN:]
    if remaining:
        other_keys = Text(f"{len(remaining)} other keys", f"다른 키 {len(remaining)}개").select(language)
        click.echo(f"  {_format_heads(sum(row['heads'] for row in remaining), language):>9}  {other_keys}")
    without_sources = sum(not row["sources"] for row in sources.heads)
    if without_sources:
        nothing = Text("no key with any weight", "가중치가 있는 키가 없음").select(language)
        click.echo(f"  {_format_heads(without_sources, language):>9}  {nothing}")

    hidden = len(sources.heads) - HEADS_SHOWN
    title = Text("each head, by its largest weight (layer.head)", "각 헤드, 가장 큰 가중치 순(층.헤드)")
    if hidden > 0:
        title = Text(
            f"the {HEADS_SHOWN} heads with the largest weights (layer.head); --json prints the other {hidden:,} too",
            f"가중치가 가장 큰 헤드 {HEADS_SHOWN}개(층.헤드). 나머지 {hidden:,}개는 --json이 출력합니다",
        )
    click.echo(f"\n{title.select(language)}:")
    for row in sources.heads[:HEADS_SHOWN]:
        keys = "   ".join(f"{source['label']}[{source['key']}] {source['weight']:.2f}" for source in row["sources"])
        click.echo(f"  {row['layer']}.{row['head']}  {keys or '-'}")


def _format_heads(count: int, language: str) -> str:
    return Text(f"{count} head{'s' if count != 1 else ''}", f"헤드 {count}개").select(language)
