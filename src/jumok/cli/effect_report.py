"""Print the effects that ``jumok effect`` measures: a table of heads, or a table of edges with their controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jumok.bilingual_text import Texts

from .command_output import CommandOutput

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded
    from jumok.checkpoint.transformers_folder import LoadedTransformers
    from jumok.lens import Effect, Effects
    from jumok.tasks.labelled_input import LabelledInput


TEXTS = Texts(__file__)


def effects_to_json(effects: Effects, loaded: Loaded | LoadedTransformers, labelled: LabelledInput) -> dict[str, Any]:
    """Return the effects as a dictionary for JSON, with the text of tokens next to their numbers and positions."""
    fields = {**effects.to_json(), "metric_text": effects.metric.describe(loaded.tokenizer)}
    fields["rows"] = [_row_to_json(effects, row, labelled) for row in effects]
    if effects.over == "edges":
        comparison = effects.weight_and_effect
        for name in ("looked_at_but_useless", "useful_but_little_looked_at"):
            edges = [_row_to_json(effects, edge, labelled) for edge in getattr(comparison, name)]
            fields["weight_and_effect"] |= {name: edges}
    return fields


def _row_to_json(effects: Effects, row: Effect, labelled: LabelledInput) -> dict[str, Any]:
    """Return an effect as a dictionary, with the tokens at its positions."""
    sides = effects.get_sides(row)
    fields = row.to_json()
    for name, side in (("query", sides.queries), ("key", sides.keys), ("looks_at", sides.keys)):
        labels = labelled.get_labels(side)
        if name in fields and fields[name] < len(labels):
            fields[f"{name}_token"] = labels[fields[name]]
    return fields


def print_heads(effects: Effects, count: int, labelled: LabelledInput, output: CommandOutput) -> None:
    """Print the heads with the largest effects."""
    heads = effects.top(count)
    rows = [
        [head.rank, head.layer, head.head, f"{head.effect:+9.4f}", _describe_source(effects, head, labelled)]
        for head in heads
    ]
    headings = TEXTS.list("heads.headings")
    has_sources = any(head.looks_at is not None for head in heads)
    output.print_table("rrrrl", rows, headings if has_sources else (*headings[:-1], ""))
    output.print(TEXTS("heads.effect"))
    if len(effects) > len(heads):
        output.print(TEXTS("heads.more", shown=len(heads), total=len(effects)))


def print_edges(effects: Effects, count: int, labelled: LabelledInput, output: CommandOutput) -> None:
    """Print the edges with the largest effects, and how weights and effects are related."""
    rows = [
        [
            f"{edge.effect:+9.4f}",
            f"{edge.weight:7.3f}",
            f"{edge.layer}.{edge.head}",
            _describe_edge(effects, edge, labelled),
            TEXTS("edges.rank_of", rank=edge.rank, of=edge.of),
            f"{edge.estimate:+.4f}",
        ]
        for edge in effects.top(count)
    ]
    output.print_table("rrlllr", rows, TEXTS.list("edges.headings"))
    _print_agreement(effects, labelled, output)


def _print_agreement(effects: Effects, labelled: LabelledInput, output: CommandOutput) -> None:
    """Print how well the gradient estimate and the weight predict the effect."""
    comparison = effects.weight_and_effect
    if comparison.edges < 3:
        output.print(TEXTS("edges.too_few"))
        return

    sample = TEXTS("edges.all" if comparison.every else "edges.random", count=comparison.edges)
    verified = TEXTS("edges.no_verified")
    if not comparison.every:
        agreement = effects.agreement_of_chosen or 0
        verified = TEXTS("edges.verified", agreement=agreement, count=len(effects.rows))
    output.print(TEXTS("edges.effect"))
    beyond, expected = effects.beyond_controls
    output.print(TEXTS("edges.rank"))
    output.print(TEXTS("edges.beyond", beyond=beyond, total=len(effects), expected=expected))
    if not effects.every:
        output.print(TEXTS("edges.chosen"))
    output.print(TEXTS("edges.agreement", agreement=effects.agreement or 0, sample=sample, verified=verified))
    numbers = {"pearson": comparison.pearson, "spearman": comparison.spearman}
    output.print(TEXTS("edges.correlation", sample=sample, **numbers))

    for name, edges in (
        ("useless", comparison.looked_at_but_useless),
        ("useful", comparison.useful_but_little_looked_at),
    ):
        output.print(TEXTS("edges.title" if edges else "edges.none", title=TEXTS(f"edges.{name}")))
        rows = [
            [
                _describe_edge(effects, edge, labelled),
                TEXTS("edges.weight", weight=edge.weight),
                TEXTS("edges.one_effect", effect=edge.effect),
                f"({edge.layer}.{edge.head})",
            ]
            for edge in edges
        ]
        output.print_table("llll", rows, indent=2)


def _describe_source(effects: Effects, head: Effect, labelled: LabelledInput) -> str:
    """Return the key that a head attends to most, with its weight."""
    if head.looks_at is None:
        return ""
    keys = labelled.get_labels(effects.get_sides(head).keys)
    return f"{_label_position(keys, head.looks_at)} {head.weight:.2f}"


def _describe_edge(effects: Effects, edge: Effect, labelled: LabelledInput) -> str:
    """Return "query <- key", with labels and positions."""
    assert edge.query is not None and edge.key is not None
    sides = effects.get_sides(edge)
    query = _label_position(labelled.get_labels(sides.queries), edge.query)
    return f"{query} <- {_label_position(labelled.get_labels(sides.keys), edge.key)}"


def _label_position(labels: Sequence[str], position: int) -> str:
    return f"{labels[position]}[{position}]" if position < len(labels) else str(position)
