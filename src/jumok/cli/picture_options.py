"""The options that commands with pictures share: --png, --svg, --scale and --skip-first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

SCALES = ("linear", "sqrt", "row")  # those of jumok.draw, which only commands that draw import

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def add_picture_options(subject: str) -> Decorator:
    """Return a decorator that adds the options --png and --svg to a command.

    Args:
        subject: What the command draws, for the help.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        path = click.Path(path_type=Path, dir_okay=False)
        function = click.option("--svg", type=path, help="The same as SVG.")(function)
        return click.option("--png", type=path, help=f"Draw {subject} as PNG.")(function)

    return decorate


def add_shading_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --scale and --skip-first to a command."""
    skip_first = click.option(
        "--skip-first", is_flag=True, help="Leave the first key, often an attention sink, out of pictures."
    )
    scale = click.option(
        "--scale",
        type=click.Choice(SCALES),
        default="linear",
        show_default=True,
        help="The colours of pictures: by weight, by its square root (small weights become visible), or relative to "
        "the largest weight of each row.",
    )
    return scale(skip_first(function))


def check_picture_paths(png: Path | None, svg: Path | None) -> list[Path]:
    """Return the pictures to write. A path that cannot be written is an error before a model is loaded.

    Args:
        png: The path of the PNG picture, or None.
        svg: The path of the SVG picture, or None.

    Raises:
        click.UsageError: If a path has another suffix, or its folder does not exist.
    """
    paths = []
    for path, suffix in ((png, ".png"), (svg, ".svg")):
        if path is None:
            continue
        if path.suffix.lower() != suffix:
            raise click.UsageError(f"--{suffix[1:]} writes {suffix[1:].upper()}; {path} must end in {suffix}")
        if not path.parent.is_dir():
            raise click.UsageError(f"cannot write {path.name}: there is no folder {path.parent}")
        paths.append(path)
    return paths
