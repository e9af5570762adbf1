"""The command ``jumok effect``: measure how much heads and edges matter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults

from .arguments import load_and_prepare
from .command import Command, align_column, collect_given_options, json_option, show_progress
from .input_summary import input_to_json, limit_option, summarize_input

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded
    from jumok.lens import Effect, Effects
    from jumok.lens.effects.metrics import Metric
    from jumok.tasks.labelled_input import LabelledInput

METRICS = ("log-probability", "logit-difference", "loss", "kl", "class", "value", "similarity")
# The options that a metric needs.
METRIC_OPTIONS = {"log-probability": "--token", "logit-difference": "--right and --wrong", "class": "--label"}
# Options that apply to only one choice of --over.
OVER_OPTIONS = {"heads": ("by",), "edges": ("verify", "controls")}


@dataclass(frozen=True)
class MetricRequest:
    """The options that choose the metric.

    Args:
        metric: The name of the metric; None selects it from the model.
        token: The token whose log-probability is measured.
        right: The token that should be likely, for the logit difference.
        wrong: The token that should be unlikely.
        label: The class whose logit is measured.
        position: The position at which the metric reads the logits; None means the last.
    """

    metric: str | None
    token: str | None
    right: str | None
    wrong: str | None
    label: int | None
    position: int | None


@click.command(
    cls=Command,
    short_help="Measure how much heads and edges matter.",
    epilog="""Examples:
  jumok effect "the cat sat; the cat"
  jumok effect tiny "qzv kxw pmf qzv kx" --token w --over edges
  jumok effect smollm2 "When Mary and John went to the store, John gave a drink to" --right " Mary" --wrong " John"
  jumok effect smollm2 story.txt --metric loss --by mean --json
  jumok effect runs/translate-1 "Save file" --position 1
  jumok effect my-vit cat.png --metric class --label 3
""",
)
@click.argument("arguments", metavar="[MODEL] INPUT", nargs=-1, required=True)
@click.option(
    "--metric", type=click.Choice(METRICS), help="The metric.  [default: log-probability of the model's own answer]"
)
@click.option("--token", help="Measure the log-probability of this token.")
@click.option("--right", help="Measure the logit of this token ...")
@click.option("--wrong", help="... minus the logit of this one.")
@click.option("--label", type=click.IntRange(0), help="Measure the log-probability of this class.")
@click.option("--position", type=int, help="The position to measure; in an answer, the token's index.")
@click.option(
    "--over",
    type=click.Choice(["heads", "edges"]),
    default="heads",
    show_default=True,
    help="Ablate heads, or remove edges.",
)
@click.option(
    "--by",
    type=click.Choice(["zero", "mean", "resample"]),
    default="zero",
    show_default=True,
    help="How a head is ablated.",
)
@click.option(
    "--verify",
    type=click.IntRange(0),
    default=defaults.VERIFIED_EDGES,
    show_default=True,
    help="Verify the top N edges exactly (by gradient and by weight); 0 = every edge.",
)
@click.option(
    "--controls",
    type=click.IntRange(1),
    default=defaults.CONTROL_EDGES,
    show_default=True,
    help="Random edges of equal weight to compare each verified edge with.",
)
@limit_option
@click.option("--rows", default=20, show_default=True, type=click.IntRange(1), help="The number of rows to print.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the random edges.")
@json_option
@click.pass_context
def effect(
    context: click.Context,
    /,
    arguments: tuple[str, ...],
    over: str,
    by: str,
    verify: int,
    controls: int,
    limit: int,
    rows: int,
    seed: int,
    as_json: bool,
    **metric_options: Any,
) -> None:
    """Measure how a metric changes when a head of MODEL (default: tiny) is ablated, or an edge is removed, while it
    reads INPUT; ranked, with controls. Edges are screened by their gradient; the largest ones are verified exactly, and
    compared with random edges of equal weight."""
    from jumok.lens import effect as measure

    request = MetricRequest(**metric_options)
    metric_name = _check_metric(request)
    _refuse_unused_options(context, over)

    loaded, labelled = load_and_prepare(arguments, limit, as_json)
    metric = _build_metric(labelled, request, metric_name)
    with show_progress("cutting", as_json) as report:
        effects = measure(
            loaded,
            *labelled.inputs,
            metric=metric,
            over=over,
            by=by,
            verify=verify or None,
            controls=controls,
            seed=seed,
            progress=report,
        )

    if as_json:
        click.echo(json.dumps({**effects.to_json(), **input_to_json(labelled)}, ensure_ascii=False))
        return
    click.echo(f"{loaded.family}, {summarize_input(labelled)}")
    click.echo(f"{_describe_metric(effects, loaded)}: {effects.clean:.4f}\n")
    if over == "heads":
        _print_heads(effects.top(rows), labelled)
    else:
        _print_edges(effects, effects.top(rows), labelled)


def _refuse_unused_options(context: click.Context, over: str) -> None:
    """Raise an error for options that would have no effect, instead of ignoring them."""
    other = "edges" if over == "heads" else "heads"
    for name in collect_given_options(context, *OVER_OPTIONS[other]):
        raise click.UsageError(f"--{name} applies only to --over {other}, not to --over {over}")


def _check_metric(request: MetricRequest) -> str | None:
    """Return the name of the metric that the options describe; None = the default. Runs before a model is loaded."""
    from jumok.errors import ArgumentError

    if (request.right is None) != (request.wrong is None):
        raise ArgumentError("a logit difference needs two tokens: give --right and --wrong")

    targets = {"log-probability": request.token, "logit-difference": request.right, "class": request.label}
    described = [name for name, target in targets.items() if target is not None]
    clashes = [METRIC_OPTIONS[name] for name in described]
    if request.metric is not None and request.metric not in described:
        clashes.append(f"--metric {request.metric}")
    if described and len(clashes) > 1:
        raise ArgumentError(f"{' and '.join(clashes)} select different metrics; give one metric")

    metric = request.metric or (described[0] if described else None)
    if metric in targets and metric not in described:
        raise ArgumentError(f"the metric {metric} needs {METRIC_OPTIONS[metric]}")
    if request.position is not None and metric in ("loss", "class", "similarity"):
        raise ArgumentError(f"the metric {metric} has no position; remove --position")
    return metric


def _build_metric(labelled: LabelledInput, request: MetricRequest, name: str | None) -> Metric | None:
    """Return the metric; None = the default of ``jumok.effect``."""
    from jumok.errors import ArgumentError
    from jumok.lens.effects import metrics

    position = -1 if request.position is None else request.position
    if request.token is not None:
        return metrics.LogProbability(request.token, position)
    if request.right is not None and request.wrong is not None:
        return metrics.LogitDifference(request.right, request.wrong, position)
    if request.label is not None:
        return metrics.ClassScore(request.label)
    if name == "loss":
        return metrics.Loss(tuple(labelled.inputs[-1][0].tolist()))
    if name == "kl":
        return metrics.Divergence(position)
    if name == "similarity":
        return metrics.Similarity()
    if name == "value" or (labelled.target and labelled.inputs[1].is_floating_point()):
        return metrics.Value(position)
    if len(labelled.target) > 1:
        return _measure_answer_token(labelled, request.position or 0)
    if request.position is not None:
        raise ArgumentError("--position needs a metric: give --token, --right and --wrong, or --metric kl")
    return None


def _measure_answer_token(labelled: LabelledInput, index: int) -> Metric:
    """Return the log-probability of a token of the model's own answer, at the decoder position that predicts it."""
    from jumok.errors import ArgumentError
    from jumok.lens.effects import metrics

    answer = labelled.inputs[1][0, 1:].tolist()
    if not 0 <= index < len(answer):
        raise ArgumentError(f"--position must be between 0 and {len(answer) - 1}, the last token of the answer")
    return metrics.LogProbability(answer[index], index)


def _describe_metric(effects: Effects, loaded: Loaded) -> str:
    """Return the metric's description, with token numbers replaced by their text."""
    from jumok.data.tokenizers.token_labels import label_tokens

    if loaded.tokenizer is None:
        return effects.metric
    words = effects.metric.split()
    for index, word in enumerate(words[:-1]):
        if word == "token" and words[index + 1].isdigit():
            words[index + 1] = repr(label_tokens(loaded.tokenizer, [int(words[index + 1])])[0])
    return " ".join(words)


def _print_heads(heads: Sequence[Effect], labelled: LabelledInput) -> None:
    width = max([5, *(len(str(head.layer)) for head in heads)])
    looks = "  looks most at" if any(head.looks_at is not None for head in heads) else ""
    click.echo(f"rank  {'layer':>{width}}  head     effect    share{looks}")
    for head in heads:
        name = f"{head.layer!s:>{width}}  {head.head:>4}"
        click.echo(f"{head.rank:>4}  {name}  {head.effect:+9.4f}  {head.p:7.3f}  {_describe_source(head, labelled)}")
    click.echo(
        "\neffect: the metric without the head minus the metric with it; share: of heads with at least this effect"
    )


def _print_edges(effects: Effects, edges: Sequence[Effect], labelled: LabelledInput) -> None:
    heads = align_column([f"{edge.layer}.{edge.head}" for edge in edges], "layer.head")
    arrows = align_column([_describe_edge(edge, labelled) for edge in edges], "edge")
    click.echo(f"   effect   weight  {heads[0]}  {arrows[0]}  rank           p  gradient estimate")
    for edge, head, arrow in zip(edges, heads[1:], arrows[1:], strict=True):
        rank = f"{edge.rank} of {edge.of}"
        numbers = f"{edge.p:6.3f}  {edge.estimate:+17.4f}"
        click.echo(f"{edge.effect:+9.4f}   {edge.weight:6.3f}  {head}  {arrow}  {rank:<9} {numbers}")
    _print_agreement(effects, labelled)


def _print_agreement(effects: Effects, labelled: LabelledInput) -> None:
    """Print how well the gradient estimate and the weight predict the effect."""
    comparison = effects.weight_and_effect
    if comparison.edges < 3:
        click.echo("\ntoo few edges to correlate weight and effect")
        return

    sample = f"all {comparison.edges:,} edges"
    verified = ""
    if not comparison.every:
        sample = f"{comparison.edges:,} random edges"
        verified = f", {effects.agreement_of_chosen or 0:.2f} over the {len(effects.rows)} verified ones"
    click.echo("\nrank and p: among random edges of equal weight")
    click.echo(f"estimate and effect correlate (Spearman): {effects.agreement or 0:.2f} over {sample}{verified}")
    click.echo(
        f"weight and size of effect over {sample}: "
        f"Pearson {comparison.pearson:.2f}, Spearman {comparison.spearman:.2f}\n"
    )

    for title, edges in (
        ("large weight, but no effect", comparison.looked_at_but_useless),
        ("large effect, but little weight", comparison.useful_but_little_looked_at),
    ):
        click.echo(f"{title}:" if edges else f"{title}: none")
        arrows = align_column([_describe_edge(edge, labelled) for edge in edges], "")[1:]
        for edge, arrow in zip(edges, arrows, strict=True):
            click.echo(f"  {arrow}  weight {edge.weight:.3f}  effect {edge.effect:+.4f}  ({edge.layer}.{edge.head})")


def _describe_source(head: Effect, labelled: LabelledInput) -> str:
    """Return the key that a head attends to most, with its weight."""
    if head.looks_at is None:
        return ""
    keys = labelled.get_axis_labels(str(head.layer))[1]
    return f"{_label_position(keys, head.looks_at)} {head.weight:.2f}"


def _describe_edge(edge: Effect, labelled: LabelledInput) -> str:
    """Return "query <- key", with labels and positions."""
    assert edge.query is not None and edge.key is not None
    queries, keys = labelled.get_axis_labels(str(edge.layer))
    return f"{_label_position(queries, edge.query)} <- {_label_position(keys, edge.key)}"


def _label_position(labels: list[str], position: int) -> str:
    return f"{labels[position]}[{position}]" if position < len(labels) else str(position)
