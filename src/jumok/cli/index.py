"""The command ``jumok index``: index the text files of a folder, look at the index, and remove it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.bilingual_text import Text, Texts
from jumok.defaults import INDEXED_FILES
from jumok.reporting import Progress, StageProgress
from jumok.translation import translate

from .command import exit_with_message, json_option, show_progress
from .command_output import CommandOutput
from .help import Command

if TYPE_CHECKING:
    from jumok.retrieval.store.folder_index import IndexStatus

TEXTS = Texts(__file__)
STAGE_TITLES = {
    "reading": "reading files",
    "embedding": "computing vectors of passages",
    "indexing": "building the search index",
}


@click.command(cls=Command)
@click.argument("folder", required=False)
@click.option("--status", is_flag=True)
@click.option("--verify", is_flag=True)
@click.option("--remove", is_flag=True)
@click.option("--rebuild", is_flag=True)
@click.option("--no-vectors", is_flag=True)
@click.option("--embedder", metavar="MODEL")
@click.option("--max-files", type=click.IntRange(1), default=INDEXED_FILES, show_default=True)
@click.option("--list", "list_all", is_flag=True)
@json_option
def index(
    folder: str | None,
    status: bool,
    verify: bool,
    remove: bool,
    rebuild: bool,
    no_vectors: bool,
    embedder: str | None,
    max_files: int,
    list_all: bool,
    as_json: bool,
) -> None:
    """The command ``jumok index``."""
    output = CommandOutput(as_json)
    if sum((status, remove, rebuild, list_all)) > 1:
        raise click.UsageError("choose one of --status, --remove, --rebuild and --list")
    if verify and not status:
        raise click.UsageError("--verify needs --status")
    if list_all:
        if folder is not None:
            raise click.UsageError("--list takes no FOLDER; it lists all indexes")
        return _print_list(output)
    if folder is None:
        raise click.UsageError("give the FOLDER to index, or --list")
    if status:
        return _print_status(folder, verify, max_files, output)
    if remove:
        return _remove(folder, output)
    if no_vectors and embedder is not None:
        raise click.UsageError("--embedder computes vectors, and --no-vectors none; choose one of them")
    if embedder is None and not no_vectors:
        from jumok.retrieval.files.safe_folder import SafeFolder
        from jumok.retrieval.store.folder_index import choose_embedder

        with SafeFolder(folder) as safe_folder:
            embedder = choose_embedder(safe_folder, max_files)
    return _build(folder, rebuild, embedder, max_files, output)


def _build(folder: str, rebuild: bool, embedder: str | None, max_files: int, output: CommandOutput) -> None:
    from jumok.errors import CheckpointError
    from jumok.retrieval.store.folder_index import open_index

    try:
        with (
            show_stages(output.as_json) as progress,
            open_index(
                folder, embedder=embedder, progress=progress, report=output.warn, max_files=max_files, rebuild=rebuild
            ) as opened,
        ):
            status = opened.status
    except CheckpointError as error:
        raise CheckpointError(f"{error}; or search by words only: add --no-vectors") from None
    except KeyboardInterrupt:
        exit_with_message("interrupted; what was computed is kept, and the same command continues", 130)
    if output.as_json:
        output.print_json(status.to_json())
        return
    output.print(_describe_action(status))
    _print_contents(status, embedder, output)
    output.print(TEXTS("ask", folder=shlex.quote(folder)))


def _describe_action(status: IndexStatus) -> Text:
    if status.action == "opened":
        return TEXTS("opened", folder=status.folder, time=status.built_at)
    rate = TEXTS("rate", seconds=status.seconds, rate=status.passages_per_second)
    if status.action == "built":
        return TEXTS("built", folder=status.folder, rate=rate)
    changes = TEXTS("changed", count=status.changes) if status.changes else TEXTS("no_changed")
    return TEXTS("updated", folder=status.folder, changes=changes, rate=rate)


def _print_contents(status: IndexStatus, embedder: str | None, output: CommandOutput) -> None:
    from jumok.data.catalogue import format_megabytes
    from jumok.retrieval.store.folder_index import measure_folder

    size = format_megabytes(status.bytes)
    output.print(TEXTS("files", files=status.files, passages=status.passages, size=size))
    if status.embedder is None:
        output.print(TEXTS("no_vectors"))
    else:
        unused = TEXTS("unused" if embedder is None else "used")
        output.print(TEXTS("vectors", count=status.vectors, embedder=status.embedder, unused=unused))
    if status.unreadable:
        output.print(TEXTS("unreadable", count=status.unreadable))
    for reason, count in status.skipped_counts.items():
        names = [skipped.path for skipped in status.skipped if skipped.reason == reason]
        more = ", ..." if count > len(names) else ""
        output.print(TEXTS("skipped", count=count, reason=translate(reason), names=", ".join(names) + more))
    location = Path(status.location)
    output.print(TEXTS("index", location=location, size=format_megabytes(measure_folder(location))))


def _print_status(folder: str, verify: bool, max_files: int, output: CommandOutput) -> None:
    from jumok.errors import ArgumentError
    from jumok.retrieval.store.folder_index import inspect_index

    status = inspect_index(folder, verify=verify, max_files=max_files)
    if output.as_json:
        output.print_json({"indexed": False} if status is None else {"indexed": True, **status.to_json()})
    elif status is None:
        raise ArgumentError(f"{folder} is not indexed yet; index it with: jumok index {shlex.quote(folder)}")
    else:
        output.print(TEXTS("indexed", folder=status.folder, time=status.built_at))
        changes = TEXTS("changed", count=status.changes) if status.changes else TEXTS("no_changes")
        output.print(TEXTS("since", changes=changes))
        _print_contents(status, status.embedder, output)
        if verify:
            output.print(TEXTS("verified"))


def _remove(folder: str, output: CommandOutput) -> None:
    from jumok.retrieval.store.folder_index import remove_index

    removed = remove_index(folder, output.warn)
    if output.as_json:
        output.print_json({"removed": removed})
    else:
        output.print(TEXTS("removed" if removed else "not_indexed", folder=folder))


def _print_list(output: CommandOutput) -> None:
    from jumok.data.catalogue import format_megabytes
    from jumok.retrieval.store.folder_index import list_indexes

    indexes = list_indexes()
    if output.as_json:
        output.print_json([stored.to_json() for stored in indexes])
        return
    if not indexes:
        output.print(TEXTS("no_index"))
    for stored in indexes:
        size = format_megabytes(stored.bytes)
        if stored.folder is None:
            output.print(TEXTS("damaged", size=size, location=stored.location))
            continue
        line = TEXTS("stored", size=size, passages=stored.passages, time=stored.built_at, folder=stored.folder)
        output.print(line if stored.exists else TEXTS("gone", line=line))


@contextlib.contextmanager
def show_stages(quiet: bool) -> Iterator[StageProgress]:
    """Show a progress bar for each stage of a build. Yields the function that receives the progress."""
    stack = contextlib.ExitStack()
    current: str | None = None
    update: Progress | None = None

    def progress(done: int, total: int, stage: str) -> None:
        nonlocal current, update
        if stage != current:
            stack.close()
            current, update = stage, stack.enter_context(show_progress(STAGE_TITLES[stage], quiet))
        if update is not None:
            update(done, total)

    with stack:
        yield progress
