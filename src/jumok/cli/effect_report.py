"""Print the effects that ``jumok effect`` measures: a table of heads, or a table of edges with their controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .command_output import CommandOutput

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded
    from jumok.checkpoint.transformers_folder import LoadedTransformers
    from jumok.lens import Effect, Effects
    from jumok.tasks.labelled_input import LabelledInput


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
    looks = "attends most to" if any(head.looks_at is not None for head in heads) else ""
    output.print_table("rrrrl", rows, ("rank", "layer", "head", "effect", looks))
    output.print("\neffect: the metric with the head's output replaced, minus the metric of the unchanged model")
    if len(effects) > len(heads):
        output.print(f"these are the {len(heads)} largest of {len(effects)} heads; --rows prints more")


def print_edges(effects: Effects, count: int, labelled: LabelledInput, output: CommandOutput) -> None:
    """Print the edges with the largest effects, and how weights and effects are related."""
    rows = [
        [
            f"{edge.effect:+9.4f}",
            f"{edge.weight:7.3f}",
            f"{edge.layer}.{edge.head}",
            _describe_edge(effects, edge, labelled),
            f"{edge.rank} of {edge.of}",
            f"{edge.estimate:+.4f}",
        ]
        for edge in effects.top(count)
    ]
    output.print_table("rrlllr", rows, ("effect", "weight", "layer.head", "edge", "rank", "gradient estimate"))
    _print_agreement(effects, labelled, output)


def _print_agreement(effects: Effects, labelled: LabelledInput, output: CommandOutput) -> None:
    """Print how well the gradient estimate and the weight predict the effect."""
    comparison = effects.weight_and_effect
    if comparison.edges < 3:
        output.print("\ntoo few edges to correlate weight and effect")
        return

    sample = f"all {comparison.edges:,} edges"
    verified = ""
    if not comparison.every:
        sample = f"{comparison.edges:,} random edges"
        verified = f", {effects.agreement_of_chosen or 0:.2f} over the {len(effects.rows)} verified ones"
    output.print("\neffect: the metric without the edge minus the metric of the unchanged model")
    beyond, expected = effects.beyond_controls
    output.print("rank: among the edge and random edges of similar weight, by size of effect")
    output.print(
        f"{beyond} of {len(effects)} edges have a larger effect than all their random edges; of edges chosen at "
        f"random, about {expected:.1f} would"
    )
    if not effects.every:
        output.print("these edges were chosen for large estimates or weights: a rank of 1 is no test of significance")
    output.print(
        f"correlation of gradient estimate and effect (Spearman): {effects.agreement or 0:.2f} over {sample}{verified}"
    )
    output.print(
        f"correlation of weight and size of effect over {sample}: "
        f"Pearson {comparison.pearson:.2f}, Spearman {comparison.spearman:.2f}\n"
    )

    for title, edges in (
        ("largest weights without an effect (at most 1% of the largest)", comparison.looked_at_but_useless),
        ("largest effects with a small weight (below 0.05)", comparison.useful_but_little_looked_at),
    ):
        output.print(f"{title}:" if edges else f"{title}: none")
        rows = [
            [
                _describe_edge(effects, edge, labelled),
                f"weight {edge.weight:.3f}",
                f"effect {edge.effect:+.4f}",
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
