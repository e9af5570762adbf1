"""jumok train."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .command import Command


@click.command(
    cls=Command,
    short_help="Train a model by a recipe, or go on training.",
    epilog="""Examples:
  jumok train --list
  jumok train numbers
  jumok train text --data book.txt --steps 500 --out runs/book
  jumok train text --data letters/ --set width=256 --set layers=6
  jumok train --resume runs/book
  jumok train text --from smollm2 --data letters/ --steps 200
  jumok train text --processes 2 --parallel fsdp
""",
)
@click.argument("recipe", required=False)
@click.option("--list", "listed", is_flag=True, help="List the recipes.")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with the run in this folder.")
@click.option("--steps", type=click.IntRange(1), help="How many updates.")
@click.option("--save-every", type=click.IntRange(1), help="Updates between checkpoints.")
@click.option("--seed", type=click.IntRange(0), help="Where every draw begins.")
@click.option("--out", type=click.Path(path_type=Path), help="A new folder for the run.  [default: runs/RECIPE-1, ...]")
@click.option("--data", help="A file or folder of your own, instead of the recipe's data.")
@click.option("--from", "start", help="Start from this model: a folder, a run, a name.")
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Change a field; as often as you like.")
@click.option("--skip-bad", is_flag=True, help="Leave out lines that cannot be read, and count them.")
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1), help="Train in so many processes.")
@click.option("--parallel", type=click.Choice(["ddp", "fsdp"]), help="How they share the work.  [default: ddp]")
@click.option(
    "--restarts", default=0, show_default=True, type=click.IntRange(0), help="Start dead processes again so often."
)
@click.option("--device", help="cpu, cuda, mps ...  [default: the best there is]")
@click.option("--tensorboard", is_flag=True, help="Write events for TensorBoard into the run's folder.")
@click.option("--wandb", is_flag=True, help="Send metrics to Weights & Biases.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON; no progress.")
def train(recipe: str | None, listed: bool, resume: Path | None, as_json: bool, **given: Any) -> None:
    """Train a model by RECIPE into a new folder, which then holds all that is needed to use it (jumok run FOLDER ...)
    or to go on (--resume FOLDER)."""
    if listed:
        _list(as_json)
        return
    if recipe is not None and resume is not None:
        raise click.UsageError(f"give either a recipe or --resume, not both; {resume} knows its recipe")
    if recipe is None and resume is None:
        raise click.UsageError("give the name of a recipe (jumok train --list shows them), or --resume FOLDER")
    if given["processes"] > 1 and "RANK" not in os.environ:
        _launch(recipe, given)
    if resume is not None:
        words = {"out": "--out", "data": "--data", "start": "--from", "changes": "--set", "skip_bad": "--skip-bad"}
        words |= {"seed": "--seed", "save_every": "--save-every"}
        refused = [word for name, word in words.items() if given[name]]
        if refused:
            raise click.UsageError(f"a run goes on as it began; {', '.join(refused)} cannot be given with --resume")
    _train(recipe, resume, as_json, given)


def _launch(recipe: str | None, given: dict[str, Any]) -> None:
    """The same command in several processes, which all must know one folder."""
    from jumok.recipes.launch import launch_processes

    arguments = sys.argv[1:]
    if recipe is not None and given["out"] is None:
        arguments += ["--out", str(_free(recipe))]
    code = launch_processes(given["processes"], arguments, given["restarts"])
    if code:
        click.echo(
            f"jumok: a process of {given['processes']} ended with an error; what was saved is whole. Go on with: "
            f"jumok train --resume FOLDER --processes {given['processes']}",
            err=True,
        )
    sys.exit(code)


def _list(as_json: bool) -> None:
    from jumok.recipes import describe_recipes

    rows = describe_recipes()
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        click.echo(f"{row['recipe']:<12} {row['what']}")


def _train(recipe: str | None, resume: Path | None, as_json: bool, given: dict[str, Any]) -> None:
    from jumok.recipes import TrainingRequest, parse_changes
    from jumok.recipes import resume_run as go_on
    from jumok.recipes import start_run as begin
    from jumok.training import connect_world
    from jumok.training.progress import BarDisplay, LineDisplay, SilentDisplay
    from jumok.training.trackers import add_trackers

    show = SilentDisplay() if as_json else BarDisplay() if sys.stderr.isatty() else LineDisplay()
    with connect_world(given["parallel"] or "none", _device(given["device"])) as ours:
        if not ours.is_main:
            show = SilentDisplay()
        if resume is not None:
            folder = resume
            watched = add_trackers(folder, given["tensorboard"], given["wandb"], show)
            outcome = go_on(folder, given["steps"], ours, watched)
        else:
            assert recipe is not None
            changes = parse_changes(given["changes"])
            for name in ("steps", "save_every", "seed"):
                if given[name] is not None:
                    changes[name] = given[name]
            folder = Path(ours.broadcast(str(given["out"] or _free(recipe))))
            asked = TrainingRequest(
                recipe, folder, given["data"], given["start"], changes, given["skip_bad"], show.show_message
            )
            watched = add_trackers(folder, given["tensorboard"], given["wandb"], show)
            if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) and ours.broadcast(
                (folder / "run.json").is_file()
            ):
                outcome = go_on(folder, None, ours, watched)  # a process died, and all were started again
            else:
                outcome = _begun(begin, asked, ours, watched)
        if not ours.is_main:
            sys.exit(0 if outcome.signal is None else 128 + outcome.signal)
    if outcome.signal is not None:
        click.echo(f"stopped at step {outcome.progress.step:,}; go on with: jumok train --resume {folder}", err=True)
        sys.exit(128 + outcome.signal)
    if not outcome.metrics and not as_json:
        fewer = given["steps"] is not None and given["steps"] < outcome.progress.step
        asked_for = f" ({given['steps']:,} are fewer: nothing to do)" if fewer else ""
        click.echo(
            f"this run is finished: {outcome.progress.step:,} steps{asked_for}. Its report is in {folder / 'report.md'}"
        )
        return
    told = (folder / ("report.json" if as_json else "report.md")).read_text(encoding="utf-8")
    click.echo(told.rstrip())
    if not as_json:
        click.echo(f"\nuse it: jumok run {folder} {_to_try(folder)}", err=True)


def _begun(begin: Callable[..., Any], asked: Any, ours: Any, watched: Any) -> Any:
    """A run that is stopped before its first step has a folder all the same, and can go on."""
    try:
        return begin(asked, ours, watched)
    except KeyboardInterrupt:
        if not (asked.folder / "run.json").is_file():
            raise
        click.echo(f"stopped before the first step; go on with: jumok train --resume {asked.folder}", err=True)
        sys.exit(130)


def _to_try(folder: Path) -> str:
    """Something that the model of this run can be asked, as a shell takes it."""
    given = json.loads((folder / "report.json").read_text(encoding="utf-8")).get("try")
    if given is None:
        return "..."
    return shlex.quote(str(folder / given) if (folder / given).is_file() else given)


def _device(name: str | None) -> Any:
    import torch

    from jumok.errors import ArgumentError

    if name is not None:
        try:
            return torch.empty(0, device=torch.device(name)).device
        except (RuntimeError, AssertionError, NotImplementedError):
            raise ArgumentError(
                f"there is no device {name!r} here; give cpu, or cuda, cuda:1, mps where there is one"
            ) from None
    return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")


def _free(recipe: str) -> Path:
    """The first of runs/RECIPE-1, runs/RECIPE-2, ... that is not there."""
    number = 1
    while Path(f"runs/{recipe}-{number}").exists():
        number += 1
    return Path(f"runs/{recipe}-{number}")
