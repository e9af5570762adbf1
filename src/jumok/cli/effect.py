"""The command ``jumok effect``: measure how much heads and edges matter."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults
from jumok.translation import translate

from .arguments import input_to_json, limit_option, load_and_prepare, split_model_and_input, summarize_input
from .command import add_picture_options, check_picture_paths, json_option, list_given_options, show_progress
from .command_output import CommandOutput
from .effect_report import TEXTS, effects_to_json, print_edges, print_heads
from .help import Command
from .page_hint import EFFECT, print_page_hint

if TYPE_CHECKING:
    from jumok.lens.effects.metrics import Metric
    from jumok.tasks.labelled_input import LabelledInput

# Metric.kinds; written here because the help must not import torch.
METRICS = ("log-probability", "logit-difference", "loss", "kl", "class", "value", "similarity")
# Options that apply to only one choice of --over.
OVER_OPTIONS = {"heads": ("by", "png", "svg"), "edges": ("verify", "controls")}


@click.command(cls=Command)
@click.argument("arguments", metavar="[MODEL] INPUT", nargs=-1, required=True)
@click.option("--metric", type=click.Choice(METRICS))
@click.option("--token")
@click.option("--right")
@click.option("--wrong")
@click.option("--label", type=click.IntRange(0))
@click.option("--position", type=int)
@click.option("--over", type=click.Choice(["heads", "edges"]), default="heads", show_default=True)
@click.option("--by", type=click.Choice(["zero", "mean", "resample"]), default="zero", show_default=True)
@click.option("--verify", type=click.IntRange(0), default=defaults.VERIFIED_EDGES, show_default=True)
@click.option("--controls", type=click.IntRange(1), default=defaults.CONTROL_EDGES, show_default=True)
@limit_option
@click.option("--rows", default=20, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@add_picture_options
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
    limit: int | None,
    rows: int,
    seed: int,
    png: Path | None,
    svg: Path | None,
    as_json: bool,
    **metric_options: Any,
) -> None:
    """The command ``jumok effect``."""
    from jumok.lens import effect as measure
    from jumok.lens.effects.effect_table import EffectFigure
    from jumok.lens.lens_inputs import explain_failures

    kind = _choose_metric(**metric_options)
    _refuse_unused_options(context, over)
    paths = check_picture_paths(png, svg)

    loaded, labelled = load_and_prepare(arguments, limit, as_json)
    metric = _build_metric(labelled, kind, metric_options)
    output = CommandOutput(as_json)
    with show_progress("cutting", as_json) as report, explain_failures(loaded.model):
        effects = measure(
            loaded,
            *labelled.positional,
            metric=metric,
            over=over,
            by=by,
            verify=verify or None,
            controls=controls,
            seed=seed,
            progress=report,
            # above the bar, and like the bar only in a terminal
            report=None if report is None else lambda message: click.echo(translate(message), err=True),
            **labelled.named,
        )

    title = f"{translate(effects.metric.describe(loaded.tokenizer))}: {effects.clean:.4f}"
    figure = EffectFigure(effects, title, TEXTS.select("picture", output.language))
    figures = [str(figure.save(path)) for path in paths]
    if as_json:
        report_fields = {**effects_to_json(effects, loaded, labelled), **input_to_json(labelled), "pictures": figures}
        report_fields["model"] = split_model_and_input(arguments)[0]
        output.print_json(report_fields)
        return
    output.print(f"{loaded.family}, {output.select(summarize_input(labelled))}")
    output.print(f"{title}\n")
    print_effects = print_heads if over == "heads" else print_edges
    print_effects(effects, rows, labelled, output)
    output.print_written(figures)
    print_page_hint(arguments, EFFECT)


def _refuse_unused_options(context: click.Context, over: str) -> None:
    """Raise an error for options that would have no effect, instead of ignoring them."""
    other = "edges" if over == "heads" else "heads"
    for name, option in list_given_options(context).items():
        if name in OVER_OPTIONS[other]:
            raise click.UsageError(f"{option} applies only to --over {other}, not to --over {over}")


def _choose_metric(metric: str | None, position: int | None, **targets: str | int | None) -> type[Metric] | None:
    """Return the class of the metric that the options describe; None = the default. Runs before a model is loaded."""
    from jumok.errors import ArgumentError
    from jumok.lens.effects.metrics import Metric

    if (targets["right"] is None) != (targets["wrong"] is None):
        raise ArgumentError("a logit difference needs two tokens: give --right and --wrong")
    options = {
        name: " and ".join(f"--{field}" for field in kind.list_needed_fields()) for name, kind in Metric.kinds.items()
    }
    described = [
        name
        for name, kind in Metric.kinds.items()
        if any(targets[field] is not None for field in kind.list_needed_fields())
    ]
    clashes = [options[name] for name in described]
    if metric is not None and metric not in described:
        clashes.append(f"--metric {metric}")
    if described and len(clashes) > 1:
        raise ArgumentError(f"{' and '.join(clashes)} select different metrics; give one metric")

    name = metric or (described[0] if described else None)
    if name is None:
        return None
    if options[name] and name not in described:
        raise ArgumentError(f"the metric {name} needs {options[name]}")
    if position is not None and not hasattr(Metric.kinds[name], "position"):
        raise ArgumentError(f"the metric {name} has no position; remove --position")
    return Metric.kinds[name]


def _build_metric(labelled: LabelledInput, kind: type[Metric] | None, options: dict[str, Any]) -> Metric | None:
    """Return the metric; None = the default of ``jumok.effect``."""
    from jumok.errors import ArgumentError
    from jumok.lens.effects.metrics import Value

    if kind is None and labelled.target and labelled.inputs[1].is_floating_point():
        kind = Value
    if kind is not None:
        names = {field.name for field in fields(kind)}
        arguments = {name: option for name, option in options.items() if name in names and option is not None}
        if "tokens" in names:
            arguments["tokens"] = tuple(labelled.inputs[-1][0].tolist())
        return kind(**arguments)
    position = options["position"]
    if labelled.answer_length:
        return _measure_answer_token(labelled, position or 0)
    if position is not None:
        raise ArgumentError("--position needs a metric: give --token, --right and --wrong, or --metric kl")
    return None


def _measure_answer_token(labelled: LabelledInput, index: int) -> Metric:
    """Return the log-probability of a token of the model's own answer, at the decoder position that predicts it."""
    from jumok.errors import ArgumentError
    from jumok.lens.effects import metrics

    answer = labelled.inputs[1][0, labelled.prompt :].tolist()
    if not 0 <= index < len(answer):
        raise ArgumentError(f"--position must be between 0 and {len(answer) - 1}, the last token of the answer")
    return metrics.LogProbability(answer[index], labelled.prompt - 1 + index)
