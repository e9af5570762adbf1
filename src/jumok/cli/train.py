"""jumok train."""

from __future__ import annotations

import json
import os
import shlex
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.bilingual_text import Text, Texts
from jumok.translation import translate

from .command import json_option, list_given_options
from .command_output import CommandOutput
from .help import Command

if TYPE_CHECKING:
    from jumok.training import Outcome

# a run keeps these, so that they cannot be combined with --resume
KEPT_BY_RUN = (
    "out", "data", "start", "changes", "skip_bad", "encoding", "dry_run", "epochs", "batch", "seed", "save_every",
)  # fmt: skip
FIELD_OPTIONS = ("steps", "epochs", "batch", "save_every", "seed", "threads")  # options that --set can change too
TEXTS = Texts(__file__)


@click.command(cls=Command)
@click.argument("recipe", required=False)
@click.option("--list", "listed", is_flag=True)
@click.option("--resume", type=click.Path(path_type=Path))
@click.option("--steps", type=click.IntRange(1))
@click.option("--epochs", type=click.IntRange(1))
@click.option("--batch", type=click.IntRange(1))
@click.option("--save-every", type=click.IntRange(1))
@click.option("--seed", type=click.IntRange(0))
@click.option("--threads", type=click.IntRange(0))
@click.option("--out", type=click.Path(path_type=Path))
@click.option("--data")
@click.option("--encoding")
@click.option("--dry-run", is_flag=True)
@click.option("--from", "start")
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE")
@click.option("--skip-bad", is_flag=True)
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1))
@click.option("--parallel", type=click.Choice(["ddp", "fsdp"]))
@click.option("--restarts", default=0, show_default=True, type=click.IntRange(0))
@click.option("--device")
@click.option("--tensorboard", is_flag=True)
@click.option("--wandb", is_flag=True)
@json_option
def train(recipe: str | None, listed: bool, resume: Path | None, as_json: bool, **options: Any) -> None:
    """The command ``jumok train``."""
    output = CommandOutput(as_json)
    if listed:
        _print_list(recipe, output, options)
        return
    _check_usage(recipe, resume)
    if options["dry_run"] and recipe is not None:
        _print_preview(recipe, output, options)
        return
    if options["processes"] > 1 and "RANK" not in os.environ:
        sys.exit(_rerun_in_processes(recipe, resume, options))

    from jumok.recipes import train as run_recipe
    from jumok.recipes.run_record import find_free_folder, format_resume_command
    from jumok.training.displays import SilentDisplay
    from jumok.training.parallel import LAUNCHER_VARIABLE, LOST_PROCESS_CODE, LostProcessError

    out = options["out"]
    if recipe is not None and out is None and "RANK" not in os.environ:
        out = find_free_folder(recipe)
    try:
        outcome = run_recipe(
            recipe,
            resume=resume,
            out=out,
            display=SilentDisplay() if as_json else None,
            **{name: options[name] for name in ("data", "start", "skip_bad", "encoding", "device", "parallel")},
            **{name: options[name] for name in ("tensorboard", "wandb")},
            **_collect_fields(options),
        )
    except KeyboardInterrupt:  # before the first step, or a second Ctrl-C
        folder = resume or out
        if folder is None or not (folder / "run.json").is_file():
            raise
        command = format_resume_command(folder, options["processes"], options["parallel"])
        click.echo(output.select(TEXTS("run.stopped", command=command)), err=True)
        sys.exit(130)
    except LostProcessError as error:
        if LAUNCHER_VARIABLE not in os.environ:
            raise
        if "JUMOK_TIMEOUT" in str(error):  # no process has failed, so only this one knows the reason
            output.warn(str(error))
        sys.exit(LOST_PROCESS_CODE)  # the process that started this one says which process failed
    _print_outcome(outcome, output, options)


def _check_usage(recipe: str | None, resume: Path | None) -> None:
    if recipe is not None and resume is not None:
        raise click.UsageError(f"give either a recipe or --resume, not both; {resume} already has a recipe")
    if recipe is None and resume is None:
        raise click.UsageError("give the name of a recipe (jumok train --list shows them), or --resume FOLDER")
    given_options = list_given_options(click.get_current_context())
    refused = [option for name, option in given_options.items() if name in KEPT_BY_RUN]
    if resume is not None and refused:
        raise click.UsageError(f"a resumed run keeps its options; {', '.join(refused)} cannot be given with --resume")


def _collect_fields(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of --set, and of the options that are fields."""
    from jumok.recipes import parse_changes

    fields = parse_changes(options["changes"])
    parameters = click.get_current_context().command.params
    not_fields = {parameter.name: parameter.opts[0] for parameter in parameters if parameter.name not in FIELD_OPTIONS}
    not_fields |= {"recipe": "RECIPE", "display": "--json"}
    del not_fields["language"]  # --language is of the output, language=ko of what the recipe listen hears
    for name in fields.keys() & not_fields.keys():
        raise click.UsageError(f"--set cannot change {name}; use {not_fields[name]}")
    for name in FIELD_OPTIONS:
        if options[name] is not None:
            fields[name] = options[name]
    return fields


def _print_preview(recipe: str, output: CommandOutput, options: dict[str, Any]) -> None:
    """Read the data and print its counts and examples, without training."""
    from jumok.recipes import format_preview, preview_training
    from jumok.training.displays import SilentDisplay

    preview = preview_training(
        recipe,
        display=SilentDisplay() if output.as_json else None,
        **{name: options[name] for name in ("data", "start", "skip_bad", "encoding")},
        **_collect_fields(options),
    )
    if output.as_json:
        output.print_json(preview)
    else:
        output.print(format_preview(preview).rstrip())


def _rerun_in_processes(recipe: str | None, resume: Path | None, options: dict[str, Any]) -> int:
    """Run the same command in several processes with one folder, and return the exit code."""
    from jumok.checkpoint import run_folder
    from jumok.recipes.launch import launch_processes
    from jumok.recipes.run_record import find_free_folder, format_resume_command

    processes, arguments = options["processes"], sys.argv[1:]
    folder: Path = resume or options["out"] or find_free_folder(str(recipe))
    if recipe is not None and options["out"] is None:
        arguments += ["--out", str(folder)]
    outcome = launch_processes(processes, arguments, options["restarts"])
    if outcome.output:
        click.echo(outcome.output, err=True)
    if outcome.problem is not None:
        output = CommandOutput()
        saved = TEXTS("run.saved" if run_folder.list_checkpoints(folder) else "run.not_saved")
        command = format_resume_command(folder, processes, options["parallel"])
        advice = TEXTS("run.advice", command=command) if run_folder.is_run(folder) else ""
        problem = Text(outcome.problem, translate(outcome.problem))
        output.warn(output.select(TEXTS("run.problem", problem=problem, saved=saved, advice=advice)))
    return outcome.code


def _print_outcome(outcome: Outcome, output: CommandOutput, options: dict[str, Any]) -> None:
    """Print the report, and exit with 128 + the signal's number if a signal stopped the run."""
    from jumok.recipes.run_record import format_resume_command

    as_json, folder, done, steps = output.as_json, outcome.folder, outcome.progress.step, options["steps"]
    is_main = os.environ.get("RANK", "0") == "0"
    if outcome.signal is not None:
        if is_main and as_json:  # otherwise the display has shown it
            command = format_resume_command(folder, options["processes"], options["parallel"])
            click.echo(output.select(TEXTS("run.stopped_at", step=done, command=command)), err=True)
        sys.exit(128 + outcome.signal)
    if not is_main:
        return

    if not outcome.trained and not as_json:
        fewer = TEXTS("run.fewer", steps=steps) if steps is not None and steps < done else ""
        output.print(TEXTS("run.finished", steps=done, fewer=fewer, report=folder / "report.md"))
        return
    report = (folder / ("report.json" if as_json else "report.md")).read_text(encoding="utf-8")
    click.echo(report.rstrip())
    if not as_json:
        hint = TEXTS("run.use", folder=shlex.quote(str(folder)), example=_find_example(outcome))
        click.echo(output.select(hint), err=True)


def _find_example(outcome: Outcome) -> str:
    """Return an input for the model of this run, quoted for a shell."""
    example = outcome.report.get("try")
    if example is None:
        return "..."
    path = outcome.folder / example
    return shlex.quote(str(path) if path.is_file() else example)


def _print_list(recipe: str | None, output: CommandOutput, options: dict[str, Any]) -> None:
    """Print all recipes, or all fields of one; --set model=..., --data and --from select their defaults."""
    from jumok.recipes import TrainingRequest, describe_fields, describe_recipes, parse_changes

    if recipe is None:
        rows = describe_recipes()
    else:
        changes = parse_changes(options["changes"])
        rows = describe_fields(TrainingRequest(recipe, Path(), options["data"], options["start"], changes))
    if output.as_json:
        output.print_json(rows)
    elif recipe is None:
        output.print_table("ll", [(row["recipe"], translate(row["what"])) for row in rows])
    else:
        _print_fields(rows, output)


def _print_fields(rows: list[dict[str, Any]], output: CommandOutput) -> None:
    """Print a table of fields for each group: name, default, and meaning with options and condition."""
    for number, (group, members) in enumerate(groupby(rows, key=lambda row: str(row["group"]))):
        if number:
            output.print()
        fields = [(row["field"], _format_default(row["default"]), _describe_meaning(row)) for row in members]
        headings = TEXTS(f"groups.{group}"), TEXTS("headings.default"), TEXTS("headings.meaning")
        output.print_table("lll", fields, headings)


def _format_default(default: Any) -> str:
    if isinstance(default, str):
        return translate(default)
    return "-" if default is None else json.dumps(default)


def _describe_meaning(row: dict[str, Any]) -> str:
    options = f" ({', '.join(row['options'])})" if "options" in row else ""
    condition = f"; {translate(row['condition'])}" if row["condition"] else ""
    return f"{translate(row['help'])}{options}{condition}"
