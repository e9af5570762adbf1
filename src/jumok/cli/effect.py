"""jumok effect: does it matter where a head looks?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .arguments import load_and_prepare
from .command import Command, align_column, show_progress
from .look import LIMIT, headline, sides

if TYPE_CHECKING:
    from jumok.lens import Effect, Effects
    from jumok.lens.effects.metrics import Metric
    from jumok.tasks.labelled_input import LabelledInput

METRICS = ("log-probability", "logit-difference", "loss", "kl", "class", "value", "similarity")


@click.command(
    cls=Command,
    short_help="Measure whether heads and edges matter.",
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
@click.option("--metric", type=click.Choice(METRICS), help="What is measured.  [default: how likely the answer is]")
@click.option("--token", help="The token whose log-probability is measured.")
@click.option("--right", help="The token whose logit is compared ...")
@click.option("--wrong", help="... with that of this one.")
@click.option("--label", type=click.IntRange(0), help="The class whose log-probability is measured.")
@click.option("--position", type=int, help="Where it is read; in an answer, which of its tokens, from 0.")
@click.option("--over", type=click.Choice(["heads", "edges"]), default="heads", show_default=True, help="What is cut.")
@click.option(
    "--by",
    type=click.Choice(["zero", "mean", "resample"]),
    default="zero",
    show_default=True,
    help="How a head is silenced.",
)
@click.option(
    "--verify",
    type=click.IntRange(0),
    default=32,
    show_default=True,
    help="Cut the so many largest edges by gradient, and by weight, for good; 0 = every edge.",
)
@click.option("--controls", type=click.IntRange(1), default=20, show_default=True, help="Random edges of equal weight.")
@LIMIT
@click.option("--rows", default=20, show_default=True, type=click.IntRange(1), help="Print so many.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Where every draw begins.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
def effect(
    arguments: tuple[str, ...], over: str, by: str, verify: int, controls: int, limit: int, rows: int, seed: int,
    as_json: bool, **asked: Any,
) -> None:  # fmt: skip
    """What changes when MODEL (tiny, where none is named) reads INPUT without a head, or with an edge cut: ranked, with
    controls. Edges are screened by a gradient; the largest are cut for good, and so are random ones of equal weight."""
    from jumok.lens import effect as measure

    asked["metric"] = _checked(**asked)
    _refuse_idle(over)
    loaded, seen = load_and_prepare(arguments, limit, as_json)
    metric = _metric(seen, **asked)
    with show_progress("cutting", as_json) as tell:
        found = measure(
            loaded, *seen.inputs, metric=metric, over=over, by=by, verify=verify or None, controls=controls, seed=seed,
            progress=tell,
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps({**found.to_json(), **sides(seen)}, ensure_ascii=False))
        return
    click.echo(f"{loaded.family}, {headline(sides(seen))}\n{_metric_told(found, loaded)}: {found.clean:.4f}\n")
    if over == "heads":
        _print_heads(found.top(rows), seen)
    else:
        _print_edges(found, found.top(rows), seen)


def _refuse_idle(over: str) -> None:
    """An option that would do nothing must not look as if it had."""
    idle = {"heads": ("verify", "controls"), "edges": ("by",)}[over]
    context = click.get_current_context()
    for name in idle:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            other = "edges" if over == "heads" else "heads"
            raise click.UsageError(f"--{name} is for --over {other}; over {over} it does nothing")


def _checked(
    metric: str | None, token: str | None, right: str | None, wrong: str | None, label: int | None,
    position: int | None,
) -> str | None:  # fmt: skip
    """The metric that the options name, or None; a mistake is told before a model is loaded."""
    from jumok.errors import ArgumentError

    if (right is None) != (wrong is None):
        raise ArgumentError("a logit difference has two sides: give --right and --wrong")
    named = {"log-probability": token, "logit-difference": right, "class": label}
    options = {"log-probability": "--token", "logit-difference": "--right and --wrong", "class": "--label"}
    given = [name for name, value in named.items() if value is not None]
    asked = [] if metric is None or metric in given else [f"--metric {metric}"]
    if len(given) > 1 or (given and asked):
        clash = " and ".join([options[name] for name in given] + asked)
        raise ArgumentError(f"these do not go together: {clash}; an effect has one metric")
    metric = metric or (given[0] if given else None)
    if metric in named and metric not in given:
        raise ArgumentError(f"the metric {metric} needs {options[metric]}")
    if position is not None and metric in ("loss", "class", "similarity"):
        raise ArgumentError(f"the metric {metric} has no position; leave --position out")
    return metric


def _metric(
    seen: LabelledInput, metric: str | None, token: str | None, right: str | None, wrong: str | None, label: int | None,
    position: int | None,
) -> Metric | None:  # fmt: skip
    from jumok.errors import ArgumentError
    from jumok.lens.effects import metrics

    at = -1 if position is None else position
    if token is not None:
        return metrics.LogProbability(token, at)
    if right is not None and wrong is not None:
        return metrics.LogitDifference(right, wrong, at)
    if label is not None:
        return metrics.ClassScore(label)
    if metric == "loss":
        return metrics.Loss(tuple(seen.inputs[-1][0].tolist()))
    if metric in ("kl", "value", "similarity"):
        return {"kl": metrics.Divergence(at), "value": metrics.Value(at), "similarity": metrics.Similarity()}[metric]
    if seen.target and seen.inputs[1].is_floating_point():
        return metrics.Value(at)
    if len(seen.target) > 1:
        # how likely is a token of the model's own answer? The decoder says it one place before
        place = 0 if position is None else position
        answer = seen.inputs[1][0, 1:].tolist()
        if not 0 <= place < len(answer):
            raise ArgumentError(f"the answer has {len(answer)} tokens, counted from 0; {place} is none of them")
        return metrics.LogProbability(answer[place], place)
    if position is not None:
        raise ArgumentError("say what is measured at --position: --token, --right and --wrong, or --metric kl")
    return None


def _metric_told(found: Effects, loaded: Any) -> str:
    """The metric, its tokens written out."""
    from jumok.data.tokenizers.token_labels import label_tokens

    words = found.metric.split()
    if loaded.tokenizer is None:
        return found.metric
    for place, word in enumerate(words[:-1]):
        if word == "token" and words[place + 1].isdigit():
            words[place + 1] = repr(label_tokens(loaded.tokenizer, [int(words[place + 1])])[0])
    return " ".join(words)


def _print_heads(shown: Sequence[Effect], seen: LabelledInput) -> None:
    width = max([5, *(len(str(one.layer)) for one in shown)])
    looks = "  looks at, from there" if any(one.looks_at is not None for one in shown) else ""
    click.echo(f"rank  {'layer':>{width}}  head     effect    share{looks}")
    for one in shown:
        place = f"{one.layer!s:>{width}}  {one.head:>4}"
        click.echo(f"{one.rank:>4}  {place}  {one.effect:+9.4f}  {one.p:7.3f}  {_looks(one, seen)}")
    click.echo("\neffect: the metric without the head, less the metric with it; share: of heads that do as much")


def _print_edges(found: Effects, shown: Sequence[Effect], seen: LabelledInput) -> None:
    places, edges = (
        align_column([_place(one) for one in shown], "layer.head"),
        align_column([_edge(one, seen) for one in shown], "edge"),
    )
    click.echo(f"   effect   weight  {places[0]}  {edges[0]}  rank           p  gradient's guess")
    for one, place, edge in zip(shown, places[1:], edges[1:], strict=True):
        rank = f"{one.rank} of {one.of}"
        click.echo(
            f"{one.effect:+9.4f}   {one.weight:6.3f}  {place}  {edge}  {rank:<9} {one.p:6.3f}  {one.estimate:+16.4f}"
        )
    told = found.weight_and_effect
    some = f"all {told.edges:,} edges" if told.every else f"{told.edges:,} random edges"
    chosen = "" if told.every else f", {found.agreement_of_chosen or 0:.2f} over the {len(found.rows)} chosen ones"
    if told.edges < 3:
        click.echo("\nthere are too few edges to say how weight and effect go together")
        return
    click.echo(
        "\nrank and p: among random edges of equal weight"
        f"\nguess and effect agree (Spearman): {found.agreement or 0:.2f} over {some}{chosen}"
        f"\nweight and size of effect over {some}: Pearson {told.pearson:.2f}, Spearman {told.spearman:.2f}\n"
    )
    for title, named in (
        ("most looked at, but useless", told.looked_at_but_useless),
        ("most useful, but little looked at", told.useful_but_little_looked_at),
    ):
        click.echo(f"{title}:" if named else f"{title}: none")
        for one, edge in zip(named, align_column([_edge(one, seen) for one in named], "")[1:], strict=True):
            click.echo(f"  {edge}  weight {one.weight:.3f}  effect {one.effect:+.4f}  ({_place(one)})")


def _place(one: Effect) -> str:
    return f"{one.layer}.{one.head}"


def _looks(one: Effect, seen: LabelledInput) -> str:
    if one.looks_at is None:
        return ""
    names = seen.axes(str(one.layer))[1]
    label = names[one.looks_at] if one.looks_at < len(names) else str(one.looks_at)
    return f"{label}[{one.looks_at}] {one.weight:.2f}"


def _edge(one: Effect, seen: LabelledInput) -> str:
    """query <- key, with their labels and numbers."""
    assert one.query is not None and one.key is not None
    queries, keys = seen.axes(str(one.layer))
    sides = []
    for names, place in ((queries, one.query), (keys, one.key)):
        sides.append(f"{names[place]}[{place}]" if place < len(names) else str(place))
    return " <- ".join(sides)
