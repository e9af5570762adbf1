"""The option ``jumok ask --open``: show the answer and its passages in the browser, where passages can be cut."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.command import select_language
from jumok.cli.look.page_options import (
    SERVER_OPTIONS,
    PageOptions,
    add_server_options,
    list_given_options,
    refuse_server_options,
    require_packages,
    serve_session,
)

if TYPE_CHECKING:
    from jumok.retrieval import FolderIndex
    from jumok.tasks.ask import AskSettings

OPEN_OPTIONS = ("passages", "limit", "method", "reader")  # the page shows everything else by itself


def add_answer_page_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --open and the options of the server to ``jumok ask``, which receives them as one argument, ``page``.

    Args:
        function: The command without these options; ``page`` is None without --open.
    """

    @functools.wraps(function)
    def call_with_page(
        is_open: bool,
        host: str,
        port: int | None,
        allowed_hosts: tuple[str, ...],
        without_browser: bool,
        **options: Any,
    ) -> Any:
        written = list_given_options(click.get_current_context())
        page = None
        if is_open:
            _check_options(written, options["questions"])
            page = PageOptions(is_open, None, host, port, allowed_hosts, without_browser)
            if "passages" not in written:
                from jumok.web.folder_questions import PAGE_PASSAGES

                options["passages"] = PAGE_PASSAGES
        else:
            refuse_server_options(written)
        return function(page=page, **options)

    command = add_server_options(call_with_page)
    open_option = click.option(
        "--open", "is_open", is_flag=True, help="Show it in the browser, and cut passages there."
    )
    return open_option(command)


def open_answer_page(
    page: PageOptions,
    index: FolderIndex,
    folder: Path,
    questions: tuple[str, ...],
    settings: AskSettings,
    reader: str,
) -> None:
    """Answer questions in the browser until Ctrl-C.

    Args:
        questions: The question to answer first, or none.
        reader: The model that reads: a name or a folder.
    """
    from jumok.web.folder_questions import FolderQuestions
    from jumok.web.session import Session, Start

    answers = FolderQuestions(index, str(folder), questions[0] if questions else "", settings)
    serve_session(page, Session(Start(reader, questions=answers)), select_language(None))


def _check_options(written: dict[str, str], questions: tuple[str, ...]) -> None:
    """Refuse options that have no meaning on the page, and more than one question."""
    for name, option in written.items():
        if name not in (*OPEN_OPTIONS, *SERVER_OPTIONS, "is_open"):
            raise click.UsageError(f"--open shows the whole page, so {option} has no effect; remove one of them")
    if len(questions) > 1:
        raise click.UsageError("--open begins with one question; ask the others in the page")
    require_packages()
