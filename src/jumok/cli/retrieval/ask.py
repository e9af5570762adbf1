"""The command ``jumok ask``: answer questions from the files of a folder, with citations that were measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.cli.command import Command, json_option, show_status

from .answer_page import add_answer_page_options, open_answer_page
from .answer_report import print_answer
from .index import show_stages

if TYPE_CHECKING:
    from jumok.cli.look.page_options import PageOptions
    from jumok.retrieval import FolderIndex
    from jumok.tasks.ask import Reader

EMBEDDER = "minilm"


@click.command(
    cls=Command,
    short_help="Answer questions from your own files.",
    epilog="""Examples:
  jumok ask notes "When does the boat leave?"
  jumok ask notes "When does the boat leave?" --why
  jumok ask notes "When does the boat leave?" --open
  jumok ask notes "When does the boat leave?" --search-only
  jumok ask notes < questions.txt
  jumok ask "$(jumok data where gutenberg)" "What did the Caterpillar smoke?" --json
  jumok ask notes "Who owns the boat?" --reader runs/reader-1
""",
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("questions", nargs=-1, metavar="[QUESTION]...")
@click.option("--why", is_flag=True, help="Show the passages, the attention on each, and what changes when it is cut.")
@click.option(
    "--passages",
    type=click.IntRange(1, 20),
    default=1,
    show_default="1; 3 with --open",
    help="Passages to read at once.",
)
@click.option("--limit", type=click.IntRange(1, 512), default=32, show_default=True, help="Most tokens of the answer.")
@click.option(
    "--method",
    type=click.Choice(["auto", "bm25", "dense", "fused"]),
    default="auto",
    show_default=True,
    help="How to search: by words (bm25), by meaning (dense), or both (fused). "
    "auto: both, or words for Korean and without minilm.",
)
@click.option("--reader", default="smollm2", show_default=True, help="The model that reads: a name or a folder.")
@click.option("--search-only", is_flag=True, help="Only show the passages that fit best; no model reads them.")
@add_answer_page_options
@json_option
def ask(
    folder: Path,
    questions: tuple[str, ...],
    why: bool,
    passages: int,
    limit: int,
    method: str,
    reader: str,
    search_only: bool,
    as_json: bool,
    page: PageOptions | None,
) -> None:
    """Answer questions from the text files in FOLDER, and name the passage that each answer depends on.

    The files are indexed first; later calls read only files that have changed. A small language model (smollm2) reads
    the passages that fit the question best. Then every passage is cut in turn: an answer that does not become less
    probable without any of them is marked "not supported". Without QUESTION, questions are read from standard input,
    one per line.
    """
    if why and search_only:
        raise click.UsageError("--why measures an answer, and --search-only gives none; choose one of them")
    if any(not question.strip() for question in questions):
        raise click.UsageError('the question is empty; ask for example: "Who owns the boat?"')
    if not folder.exists():  # before torch is imported, which takes seconds
        raise click.UsageError(f"there is no folder {folder}")
    from jumok.checkpoint.resolve import resolve_model_path
    from jumok.tasks.ask import AskSettings, ask

    if not search_only:
        resolve_model_path(reader)  # a missing model is named before the files are indexed
    settings = AskSettings(passages=passages, limit=limit, method=method, why=why)
    with _open_index(folder, method, quiet=as_json) as index:
        if page is not None:
            open_answer_page(page, index, folder, questions, settings, reader)
            return
        # several answers are told apart by their questions; a terminal shows what was typed
        is_list = len(questions) > 1 or not (questions or sys.stdin.isatty())
        loaded_reader: Reader | None = None
        for question in _list_questions(questions):
            with show_status("searching", quiet=as_json) as report:
                if loaded_reader is None and not search_only:
                    report("loading the reader")
                    loaded_reader = _load_reader(reader)
                answer = ask(index, question, loaded_reader, settings, report)
            if as_json:
                click.echo(json.dumps(answer.to_json(), ensure_ascii=False))
            else:
                if is_list:
                    click.echo(f"> {question}")
                print_answer(answer, folder)
                if is_list:
                    click.echo("")


def _open_index(folder: Path, method: str, quiet: bool) -> FolderIndex:
    """Open the index of a folder with a progress bar; it is built or updated if needed."""
    from jumok.retrieval import open_index

    def print_notice(sentence: str) -> None:
        click.echo(f"note: {sentence}", err=True)

    embedder = {"auto": "auto", "bm25": None}.get(method, EMBEDDER)
    with show_stages(quiet) as progress:
        return open_index(folder, embedder=embedder, progress=progress, report=print_notice)


def _list_questions(questions: tuple[str, ...]) -> Iterator[str]:
    """Yield the questions of the command line; without any, those of standard input, one per line."""
    if questions:
        yield from questions
        return
    is_terminal = sys.stdin.isatty()
    while True:
        if is_terminal:
            click.echo("question> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _load_reader(name: str) -> Reader:
    from jumok import load
    from jumok.tasks.ask import create_reader

    return create_reader(load(name))
