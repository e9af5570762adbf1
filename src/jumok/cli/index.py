"""The command ``jumok index``: index the text files of a folder, look at the index, and remove it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.defaults import INDEXED_FILES
from jumok.reporting import Progress, StageProgress

from .command import Command, exit_with_message, json_option, show_progress
from .command_output import CommandOutput

if TYPE_CHECKING:
    from jumok.retrieval.store.folder_index import IndexStatus

STAGE_TITLES = {
    "reading": "reading files",
    "embedding": "computing vectors of passages",
    "indexing": "building the search index",
}


@click.command(
    cls=Command,
    short_help="Index the text files of a folder.",
    epilog="""Examples:
  jumok index ~/notes
  jumok index ~/notes --no-vectors
  jumok index ~/notes --status
  jumok index ~/notes --remove
  jumok index --list

Files that are read: .txt .text .md .markdown .rst .adoc .asciidoc .org .tex .po .jsonl .ndjson
.csv .tsv .log .srt .vtt .pdf, and files without an ending. Names that begin with a dot, names
that a .gitignore file ignores, links, binary files and files larger than 64 MB are skipped.
""",
)
@click.argument("folder", required=False)
@click.option("--status", is_flag=True, help="Print what is indexed and what has changed since; write nothing.")
@click.option("--verify", is_flag=True, help="With --status: hash every file of the index.")
@click.option("--remove", is_flag=True, help="Remove the index of FOLDER from the cache.")
@click.option("--rebuild", is_flag=True, help="Read all files and compute all vectors again.")
@click.option("--no-vectors", is_flag=True, help="Search by words only (BM25); needs no embedding model.")
@click.option(
    "--max-files", type=click.IntRange(1), default=INDEXED_FILES, show_default=True, help="Most files to read."
)
@click.option("--list", "list_all", is_flag=True, help="List all indexes in the cache.")
@json_option
def index(
    folder: str | None,
    status: bool,
    verify: bool,
    remove: bool,
    rebuild: bool,
    no_vectors: bool,
    max_files: int,
    list_all: bool,
    as_json: bool,
) -> None:
    """Index the text files of FOLDER, so that jumok ask can answer questions from them.

    The index is stored in the cache (JUMOK_CACHE, or ~/.cache/jumok), never in FOLDER. The next time only files that
    have changed are read again. Vectors are computed with the embedding model minilm (jumok data get minilm).
    """
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
    return _build(folder, rebuild, None if no_vectors else "minilm", max_files, output)


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
    output.print(f'ask it:   jumok ask {shlex.quote(folder)} "..."')


def _describe_action(status: IndexStatus) -> str:
    if status.action == "opened":
        return f"up to date: no file of {status.folder} has changed since {status.built_at}"
    rate = f"{status.seconds:,.1f} s, {status.passages_per_second:,.0f} passages per second"
    if status.action == "built":
        return f"indexed {status.folder} ({rate})"
    changes = f"{status.changes} files" if status.changes else "no file has changed"
    return f"updated {status.folder}: {changes} ({rate})"


def _print_contents(status: IndexStatus, embedder: str | None, output: CommandOutput) -> None:
    from jumok.data.catalogue import format_megabytes
    from jumok.retrieval.store.folder_index import measure_folder

    output.print(f"files:    {status.files:,} with {status.passages:,} passages, {format_megabytes(status.bytes)}")
    if status.embedder is None:
        output.print("vectors:  none; the search is by words (BM25)")
    else:
        unused = "; not used with --no-vectors" if embedder is None else ""
        output.print(f"vectors:  of {status.vectors:,} passages by {status.embedder}{unused}")
    if status.unreadable:
        output.print(
            f"          {status.unreadable:,} passages are Korean, Chinese or Japanese, for which there is no "
            "embedding model; they are searched by words"
        )
    for reason, count in status.skipped_counts.items():
        names = [skipped.path for skipped in status.skipped if skipped.reason == reason]
        more = ", ..." if count > len(names) else ""
        output.print(f"skipped:  {count:,} {reason}: {', '.join(names)}{more}")
    location = Path(status.location)
    output.print(f"index:    {location} ({format_megabytes(measure_folder(location))})")


def _print_status(folder: str, verify: bool, max_files: int, output: CommandOutput) -> None:
    from jumok.errors import ArgumentError
    from jumok.retrieval.store.folder_index import inspect_index

    status = inspect_index(folder, verify=verify, max_files=max_files)
    if output.as_json:
        output.print_json({"indexed": False} if status is None else {"indexed": True, **status.to_json()})
    elif status is None:
        raise ArgumentError(f"{folder} is not indexed yet; index it with: jumok index {shlex.quote(folder)}")
    else:
        output.print(f"{status.folder} was indexed on {status.built_at}")
        output.print(f"since:    {f'{status.changes} files' if status.changes else 'no changes'}")
        _print_contents(status, status.embedder, output)
        if verify:
            output.print("verified: the SHA-256 of every file of the index is as it was written")


def _remove(folder: str, output: CommandOutput) -> None:
    from jumok.retrieval.store.folder_index import remove_index

    removed = remove_index(folder, output.warn)
    if output.as_json:
        output.print_json({"removed": removed})
    else:
        output.print(f"removed the index of {folder}" if removed else f"{folder} is not indexed")


def _print_list(output: CommandOutput) -> None:
    from jumok.data.catalogue import format_megabytes
    from jumok.retrieval.store.folder_index import list_indexes

    indexes = list_indexes()
    if output.as_json:
        output.print_json([stored.to_json() for stored in indexes])
        return
    if not indexes:
        output.print("no folder is indexed")
    for stored in indexes:
        size = format_megabytes(stored.bytes)
        if stored.folder is None:
            output.print(f"{size:>8}  a damaged index in {stored.location}; remove this folder")
            continue
        remark = "" if stored.exists else "  (the folder is gone)"
        output.print(f"{size:>8}  {stored.passages:>9,} passages  {stored.built_at}  {stored.folder}{remark}")


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
