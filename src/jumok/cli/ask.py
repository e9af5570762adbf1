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

from jumok.bilingual_text import Text, Texts
from jumok.translation import translate

from .command import json_option, list_given_options, show_status
from .command_output import CommandOutput
from .help import Command
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

TEXTS = Texts(__file__)
OPEN_OPTIONS = ("passages", "limit", "method", "reader")  # the page shows everything else by itself
EXCERPT_WIDTH = 100
LARGEST_RATIO = 1e6  # a larger ratio of probabilities is printed as "more than a million times"


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("questions", nargs=-1, metavar="[QUESTION]...")
@click.option("--why", is_flag=True)
@click.option("--passages", type=click.IntRange(1, 20), default=1)
@click.option("--limit", type=click.IntRange(1, 512), default=32, show_default=True)
@click.option("--method", type=click.Choice(["auto", "bm25", "dense", "fused"]), default="auto", show_default=True)
@click.option("--reader", show_default="smollm2 with --why and --open; else none")
@click.option("--search-only", is_flag=True)
@click.option("--open", "is_open", is_flag=True)
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
    reader: str | None,
    search_only: bool,
    as_json: bool,
    is_open: bool,
    **server_options: Any,
) -> None:
    """The command ``jumok ask``."""
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

    if reader is None and (why or is_open):
        reader = "smollm2"
    if reader is not None and not search_only:
        resolve_model_path(reader)  # a missing model is named before the files are indexed
    output = CommandOutput(as_json)
    settings = AskSettings(passages=passages, limit=limit, method=method, why=why)
    with _open_index(folder, method, output) as index:
        if not is_open:
            _print_answers(index, folder, questions, reader, search_only, settings, output)
            return
        from jumok.web.folder_questions import PAGE_PASSAGES, FolderQuestions
        from jumok.web.session import Session, Start

        if "passages" not in given_options:
            settings = replace(settings, passages=PAGE_PASSAGES)
        answers = FolderQuestions(index, str(folder), questions[0] if questions else "", settings)
        page = PageOptions(is_open, html=None, **server_options)
        serve_session(page, Session(Start(reader or "", questions=answers)), CommandOutput())


def _print_answers(
    index: FolderIndex,
    folder: Path,
    questions: tuple[str, ...],
    reader: str | None,
    search_only: bool,
    settings: AskSettings,
    output: CommandOutput,
) -> None:
    """Answer the questions one after the other; without a reader, by sentences of the files."""
    from jumok import load
    from jumok.tasks.ask import ask, create_reader

    # several answers are told apart by their questions; a terminal shows what was typed
    is_list = len(questions) > 1 or not (questions or sys.stdin.isatty())
    loaded_reader: Reader | None = None
    for question in _list_questions(questions, output):
        with show_status("searching", quiet=output.as_json) as report:
            if loaded_reader is None and reader is not None and not search_only:
                report("loading the reader")
                loaded_reader = create_reader(load(reader))
            answer = ask(index, question, loaded_reader, settings, report)
        if output.as_json:
            output.print_json(answer.to_json())
            continue
        if is_list:
            output.print(f"> {question}")
        _print_answer(answer, folder, search_only, output)
        if is_list:
            output.print()


def _open_index(folder: Path, method: str, output: CommandOutput) -> FolderIndex:
    """Open the index of a folder with a progress bar; it is built or updated if needed."""
    from jumok.retrieval import open_index

    embedder = None if method == "bm25" else "auto"
    with show_stages(output.as_json) as progress:
        return open_index(folder, embedder=embedder, progress=progress, report=lambda note: _print_note(note, output))


def _print_note(note: str, output: CommandOutput) -> None:
    click.echo(output.select(TEXTS("note", note=translate(note))), err=True)


def _list_questions(questions: tuple[str, ...], output: CommandOutput) -> Iterator[str]:
    """Yield the questions of the command line; without any, those of standard input, one per line."""
    if questions:
        yield from questions
        return
    is_terminal = sys.stdin.isatty()
    while True:
        if is_terminal:
            click.echo(output.select(TEXTS("prompt")), nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _print_answer(answer: Answer, folder: Path, search_only: bool, output: CommandOutput) -> None:
    """Print the quotation, and what a model wrote with its verdict; or the passages."""
    if answer.note is not None:
        _print_note(answer.note, output)
    quotation = None if search_only else answer.quotation
    if quotation is not None:
        name = "quoted.supported" if quotation.verdict == "supported" else "quoted.partly"
        words = ", ".join(f'"{word}"' for word in quotation.missing)
        lacking = TEXTS("quoted.lacking", words=words) if words else TEXTS("quoted.unasked")
        output.print(TEXTS("quoted.text", text=quotation.text))
        output.print(TEXTS(name, location=folder / quotation.location, lacking=lacking))
    if answer.verdict is None:
        if quotation is None and not search_only:
            output.print(TEXTS("nothing_fits", folder=folder))
            output.print(TEXTS("nearest"))
        if quotation is None or quotation.verdict != "supported":
            _print_passages(answer.passages, folder, output)
        return
    if quotation is not None:
        output.print(TEXTS("quoted.model"))

    if answer.verdict == "nothing fits":
        output.print(TEXTS("nothing_fits", folder=folder))
    else:
        output.print(f"{answer.text}{' ...' if answer.reached_limit else ''}")
    output.print(_describe_verdict(answer, folder))
    if any(passage.attention is not None for passage in answer.passages):
        output.print()
        _print_table(answer.passages, folder, output)
    elif answer.verdict != "supported":
        output.print(TEXTS("nearest"))
        _print_passages(answer.passages, folder, output)


def _describe_verdict(answer: Answer, folder: Path) -> Text:
    """Return the sentence about what an answer depends on."""
    citation = answer.citation
    if citation is not None:
        change = citation.word_change
        assert change is not None
        ratio = math.exp(min(-change, 50.0))
        name = "less_probable" if ratio < LARGEST_RATIO else "much_less_probable"
        location = folder / citation.hit.passage.location
        values = {"ratio": TEXTS(f"verdict.{name}", ratio=ratio), "change": change}
        return TEXTS("verdict.supported", location=location, word=citation.word, **values)
    if (cited := answer.lacking_passage) is not None:
        words = ", ".join(f'"{word}"' for word in cited.missing)
        return TEXTS("verdict.missing", location=folder / cited.hit.passage.location, words=words)
    changes = [
        passage.word_change for passage in answer.passages if passage.word_change is not None and not passage.is_control
    ]
    if not changes:
        return TEXTS("verdict.no_similar")
    cut = TEXTS("verdict.one_passage" if len(changes) == 1 else "verdict.passages", count=len(changes))
    written = TEXTS("verdict.unwritten" if answer.verdict == "not supported" else "verdict.written", text=answer.text)
    return TEXTS("verdict.not_supported", cut=cut, change=min(changes), written=written)


def _print_passages(passages: tuple[CutPassage, ...], folder: Path, output: CommandOutput) -> None:
    """Print where each passage is, with the beginning of its text."""
    if not passages:
        output.print(TEXTS("no_passage"))
    for passage in passages:
        output.print(f"  {folder / passage.hit.passage.location}  ({_describe_scores(passage, output)})")
        output.print(f"    {textwrap.shorten(passage.hit.passage.text, EXCERPT_WIDTH, placeholder=' ...')}")


def _describe_scores(passage: CutPassage, output: CommandOutput) -> str:
    """Return the scores of the search; "fused" ranks by both of them."""
    cosine, bm25 = passage.hit.cosine, passage.hit.bm25
    scores = [] if cosine is None else [output.select(TEXTS("table.cosine", score=cosine))]
    return ", ".join(scores if bm25 is None else [*scores, f"BM25 {bm25:.2f}"])


def _print_table(passages: tuple[CutPassage, ...], folder: Path, output: CommandOutput) -> None:
    """Print a table of the passages: the attention on each, and the change when it is cut."""
    rows = [
        (
            str(folder / passage.hit.passage.location),
            TEXTS("table.control" if passage.is_control else "table.found"),
            "-" if passage.hit.cosine is None else f"{passage.hit.cosine:.2f}",
            "-" if passage.attention is None else f"{passage.attention:.1%}",
            "-" if passage.change is None else TEXTS("table.change", change=passage.change),
            "-" if passage.word_change is None else f"{passage.word} {passage.word_change:+.2f}",
        )
        for passage in passages
    ]
    output.print_table("llllll", rows, TEXTS.list("table.headings"), indent=2)
    output.print()
    for passage in passages:
        if not passage.is_control:
            output.print(f"  {folder / passage.hit.passage.location}")
            indent = " " * 4
            output.print(
                textwrap.fill(passage.hit.passage.text, EXCERPT_WIDTH, initial_indent=indent, subsequent_indent=indent)
            )
