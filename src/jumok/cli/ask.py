"""The command ``jumok ask``: answer questions from the files of a folder, with citations that were measured."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .command import Command, json_option, list_given_options, show_status
from .command_output import CommandOutput
from .index import show_stages
from .page_options import (
    PageOptions,
    add_server_options,
    refuse_page_options,
    refuse_server_options,
    require_packages,
    serve_session,
)

if TYPE_CHECKING:
    from jumok.retrieval import FolderIndex
    from jumok.tasks.ask import Answer, AskSettings, CutPassage, Reader

EMBEDDER = "minilm"
OPEN_OPTIONS = ("passages", "limit", "method", "reader")  # the page shows everything else by itself
EXCERPT_WIDTH = 100
LARGEST_RATIO = 1e6  # a larger ratio of probabilities is printed as "more than a million times"


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
@click.option("--open", "is_open", is_flag=True, help="Show it in the browser, and cut passages there.")
@add_server_options
@json_option
@click.pass_context
def ask(
    context: click.Context,
    /,
    folder: Path,
    questions: tuple[str, ...],
    why: bool,
    passages: int,
    limit: int,
    method: str,
    reader: str,
    search_only: bool,
    as_json: bool,
    is_open: bool,
    **server_options: Any,
) -> None:
    """Answer questions from the text files in FOLDER, and name the passage that each answer depends on.

    The files are indexed first; later calls read only files that have changed. A small language model (smollm2) reads
    the passages that fit the question best. Then every passage is cut in turn: an answer that does not become less
    probable without any of them is marked "not supported". Without QUESTION, questions are read from standard input,
    one per line.
    """
    given_options = list_given_options(context)
    if not is_open:
        refuse_server_options(given_options)
    else:
        refuse_page_options(given_options, "--open", OPEN_OPTIONS)
        if len(questions) > 1:
            raise click.UsageError("--open begins with one question; ask the others in the page")
        require_packages()
    if why and search_only:
        raise click.UsageError("--why measures an answer, and --search-only gives none; choose one of them")
    if any(not question.strip() for question in questions):
        raise click.UsageError('the question is empty; ask for example: "Who owns the boat?"')
    if not folder.exists():  # before torch is imported, which takes seconds
        raise click.UsageError(f"there is no folder {folder}")
    from jumok.checkpoint.resolve import resolve_model_path
    from jumok.tasks.ask import AskSettings

    if not search_only:
        resolve_model_path(reader)  # a missing model is named before the files are indexed
    output = CommandOutput(as_json)
    settings = AskSettings(passages=passages, limit=limit, method=method, why=why)
    with _open_index(folder, method, quiet=as_json) as index:
        if not is_open:
            _print_answers(index, folder, questions, None if search_only else reader, settings, output)
            return
        from jumok.web.folder_questions import PAGE_PASSAGES, FolderQuestions
        from jumok.web.session import Session, Start

        if "passages" not in given_options:
            settings = replace(settings, passages=PAGE_PASSAGES)
        answers = FolderQuestions(index, str(folder), questions[0] if questions else "", settings)
        page = PageOptions(is_open, html=None, **server_options)
        serve_session(page, Session(Start(reader, questions=answers)), CommandOutput(language=None))


def _print_answers(
    index: FolderIndex,
    folder: Path,
    questions: tuple[str, ...],
    reader: str | None,
    settings: AskSettings,
    output: CommandOutput,
) -> None:
    """Answer the questions one after the other; without a reader, only search."""
    from jumok import load
    from jumok.tasks.ask import ask, create_reader

    # several answers are told apart by their questions; a terminal shows what was typed
    is_list = len(questions) > 1 or not (questions or sys.stdin.isatty())
    loaded_reader: Reader | None = None
    for question in _list_questions(questions):
        with show_status("searching", quiet=output.as_json) as report:
            if loaded_reader is None and reader is not None:
                report("loading the reader")
                loaded_reader = create_reader(load(reader))
            answer = ask(index, question, loaded_reader, settings, report)
        if output.as_json:
            output.print_json(answer.to_json())
            continue
        if is_list:
            output.print(f"> {question}")
        _print_answer(answer, folder, output)
        if is_list:
            output.print()


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


def _print_answer(answer: Answer, folder: Path, output: CommandOutput) -> None:
    """Print an answer, its verdict, and the passages."""
    if answer.note is not None:
        click.echo(f"note: {answer.note}", err=True)
    if answer.verdict is None:
        _print_passages(answer.passages, folder, output)
        return

    if answer.verdict == "nothing fits":
        output.print(f"Nothing in {folder} fits this question.")
    else:
        output.print(f"{answer.text}{' ...' if answer.reached_limit else ''}")
    output.print(_describe_verdict(answer, folder))
    if any(passage.attention is not None for passage in answer.passages):
        output.print()
        _print_table(answer.passages, folder, output)
    elif answer.verdict != "supported":
        output.print("The nearest passages:")
        _print_passages(answer.passages, folder, output)


def _describe_verdict(answer: Answer, folder: Path) -> str:
    """Return the sentence about what an answer depends on."""
    citation = answer.citation
    if citation is not None:
        assert citation.word_change is not None
        return (
            f'  supported by {folder / citation.hit.passage.location}: without this passage, "{citation.word}" is '
            f"{_describe_ratio(citation.word_change)} ({citation.word_change:+.1f} nats)"
        )
    if (cited := answer.lacking_passage) is not None:
        words = ", ".join(f'"{word}"' for word in cited.missing)
        location = folder / cited.hit.passage.location
        return f"  not supported: the answer depends on {location}, which does not contain {words}"
    changes = [
        passage.word_change for passage in answer.passages if passage.word_change is not None and not passage.is_control
    ]
    if not changes:
        return "  The search found no passage that is similar to the question."
    cut = "the passage" if len(changes) == 1 else f"any of the {len(changes)} passages"
    written = "" if answer.verdict == "not supported" else f' The model would have written: "{answer.text}"'
    return f"  not supported: without {cut}, no word becomes much less probable ({min(changes):+.1f} nats).{written}"


def _describe_ratio(change: float) -> str:
    ratio = math.exp(min(-change, 50.0))
    return f"{ratio:,.0f} times less probable" if ratio < LARGEST_RATIO else "more than a million times less probable"


def _print_passages(passages: tuple[CutPassage, ...], folder: Path, output: CommandOutput) -> None:
    """Print where each passage is, with the beginning of its text."""
    if not passages:
        output.print("no passage was found")
    for passage in passages:
        output.print(f"  {folder / passage.hit.passage.location}  ({_describe_scores(passage)})")
        output.print(f"    {_shorten(passage.hit.passage.text)}")


def _describe_scores(passage: CutPassage) -> str:
    """Return the scores of the search; "fused" ranks by both of them."""
    scores = {"cosine": passage.hit.cosine, "BM25": passage.hit.bm25}
    return ", ".join(f"{name} {score:.2f}" for name, score in scores.items() if score is not None)


def _print_table(passages: tuple[CutPassage, ...], folder: Path, output: CommandOutput) -> None:
    """Print a table of the passages: the attention on each, and the change when it is cut."""
    columns = {
        "passage": [str(folder / passage.hit.passage.location) for passage in passages],
        "": ["control" if passage.is_control else "found" for passage in passages],
        "cosine": ["-" if passage.hit.cosine is None else f"{passage.hit.cosine:.2f}" for passage in passages],
        "attention": ["-" if passage.attention is None else f"{passage.attention:.1%}" for passage in passages],
        "change if cut": ["-" if passage.change is None else f"{passage.change:+.2f} nats" for passage in passages],
        "most changed word": [_describe_word(passage) for passage in passages],
    }
    output.print_table("l" * len(columns), zip(*columns.values(), strict=True), list(columns), indent=2)
    output.print()
    for passage in passages:
        if not passage.is_control:
            output.print(f"  {folder / passage.hit.passage.location}")
            wrapped = textwrap.fill(
                passage.hit.passage.text, EXCERPT_WIDTH, initial_indent="    ", subsequent_indent="    "
            )
            output.print(wrapped)


def _describe_word(passage: CutPassage) -> str:
    return "-" if passage.word_change is None else f"{passage.word} {passage.word_change:+.2f}"


def _shorten(text: str) -> str:
    return textwrap.shorten(text, EXCERPT_WIDTH, placeholder=" ...")
