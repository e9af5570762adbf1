"""The command ``jumok doctor``: check the installation."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .command import Command, json_option

if TYPE_CHECKING:
    from .diagnosis import CacheFolder, Diagnosis, Extra, Package

BUSY = 0.5  # threads that ran or waited for each CPU, in the mean


@click.command(
    cls=Command,
    short_help="Check the installation: versions, threads, caches, extras.",
    epilog="""Examples:
  jumok doctor
  jumok doctor --json
""",
)
@json_option
def doctor(as_json: bool) -> None:
    """Print the versions, threads, device, cache folders and extras of this installation, what is missing, and how to
    install it. Nothing is downloaded. Exits with code 2 if a required package is missing."""
    from .diagnosis import diagnose

    diagnosis = diagnose()
    if as_json:
        click.echo(json.dumps(_to_json(diagnosis), ensure_ascii=False))
    else:
        _print_diagnosis(diagnosis)
    if diagnosis.problems:
        sys.exit(2)


def _to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    fields = asdict(diagnosis)
    fields["caches"] = [{**asdict(cache), "path": str(cache.path)} for cache in diagnosis.caches]
    fields["extras"] = [
        {**asdict(extra), "installed": extra.is_installed, "install": extra.install_command}
        for extra in diagnosis.extras
    ]
    return fields


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    _print_line("jumok", diagnosis.jumok)
    _print_line("python", diagnosis.python)
    _print_line("system", diagnosis.system)
    for package in diagnosis.packages:
        _print_line(package.name, _describe_package(package))
    _print_line(
        "transformers", diagnosis.transformers.version or "not installed (optional: the lens can open its models)"
    )
    _print_line("threads", _describe_threads(diagnosis))
    _print_line("device", diagnosis.device or "-")
    _print_line("npm", diagnosis.npm or "not installed (optional: some catalogue entries are npm packages)")

    click.echo("\ncaches")
    for cache in diagnosis.caches:
        click.echo(f"  {_describe_cache(cache)}")

    click.echo("\nextras")
    for extra in diagnosis.extras:
        click.echo(f"  {_describe_extra(extra)}")

    click.echo()
    for problem in diagnosis.problems:
        click.echo(f"problem: {problem}")
    if not diagnosis.problems:
        click.echo("no problems found")


def _print_line(name: str, text: str) -> None:
    click.echo(f"{name:<14} {text}")


def _describe_package(package: Package) -> str:
    if package.is_usable:
        return str(package.version)
    minimum = "" if package.minimum is None else f" (needs {package.minimum} or newer)"
    return f"{package.version or 'missing'}{minimum}"


def _describe_threads(diagnosis: Diagnosis) -> str:
    """Describe threads, cores and load, with a hint if other programs keep the cores busy."""
    parts = [
        f"{diagnosis.threads or '-'} for torch",
        f"{diagnosis.cores or '-'} of {diagnosis.cpus or '-'} cores usable",
    ]
    if diagnosis.load is not None:
        parts.append(f"load {diagnosis.load:.1f} in the last minute")
    text = ", ".join(parts)
    is_busy = diagnosis.load is not None and diagnosis.cpus is not None and diagnosis.load > BUSY * diagnosis.cpus
    if is_busy and diagnosis.threads != 1:
        text += "; the machine is busy: jumok train --threads 1 may be faster"
    return text


def _describe_cache(cache: CacheFolder) -> str:
    from jumok.data.catalogue import format_megabytes

    size = format_megabytes(cache.size) if cache.exists else "empty"
    return f"{cache.name:<18} {size:>9}  {cache.path}"


def _describe_extra(extra: Extra) -> str:
    if extra.is_installed:
        versions = ", ".join(f"{package.name} {package.version}" for package in extra.packages)
        return f"{extra.name:<12} installed  {versions}"
    return f"{extra.name:<12} missing    for {extra.purpose}; install: {extra.install_command}"
