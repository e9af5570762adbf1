"""The options that show the page instead of text: in a browser (--open) or in a file (--html)."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from jumok.bilingual_text import Text
from jumok.reporting import get_chosen_language

from .arguments import parse_layer, read_page_input
from .command import list_given_options, show_progress
from .command_output import CommandOutput

if TYPE_CHECKING:
    from jumok.lens import Edit
    from jumok.web.session import Session

    from .look.look_command import LookOptions

SERVER_OPTIONS = ("host", "port", "allowed_hosts", "without_browser")
# what the page shows by itself, or what the user chooses there
OPEN_OPTIONS = ("language", "begin")
HTML_OPTIONS = ("language", "begin", "layer", "head", "live", "second", "effects")  # the head to show first
PAGE_OPTIONS = ("is_open", "html", "edits")

HOST_NAME = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


@dataclass(frozen=True)
class PageOptions:
    """Where to show the page.

    Attributes:
        html: The file to write, or None.
        host: The address that the server listens on.
        port: Its port; None chooses one.
        allowed_hosts: Further names under which browsers reach it.
        live: Whether the file contains the model.
        second: A second model for this file.
        effects: Whether effects are measured for the file.
        edits: The edits to begin with, as they are written in Python.
    """

    is_open: bool
    html: Path | None
    host: str
    port: int | None
    allowed_hosts: tuple[str, ...]
    without_browser: bool
    live: bool = False
    second: str | None = None
    effects: bool = False
    edits: tuple[str, ...] = ()


def add_page_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --open, --html, their options and those of the server to a command."""
    decorators = (
        click.option("--open", "is_open", is_flag=True),
        click.option("--html", type=click.Path(path_type=Path, dir_okay=False)),
        click.option("--live", is_flag=True),
        click.option("--second", metavar="MODEL"),
        click.option("--effects", is_flag=True),
        click.option("--edit", "edits", metavar="EDIT", multiple=True),
        add_server_options,
    )
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def add_server_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the server to a command that has --open."""
    decorators = (
        click.option("--port", type=click.IntRange(0, 65535)),
        click.option("--host", default="127.0.0.1", show_default=True),
        click.option("--allow-host", "allowed_hosts", metavar="NAME[:PORT]", multiple=True, callback=_check_names),
        click.option("--no-browser", "without_browser", is_flag=True),
    )
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def _check_names(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of --allow-host. A wildcard or an address with a path would never match a browser's request."""
    for name in names:
        if not HOST_NAME.fullmatch(name):
            raise click.BadParameter(f"{name!r} is not a name such as box.example or localhost:9000")
    return names


def check_page_options(context: click.Context, page: PageOptions) -> None:
    """Refuse options that have no meaning together."""
    options = list_given_options(context)
    if page.is_open and page.html is not None:
        raise click.UsageError("--open and --html show the same page; give one of them")
    if not page.is_open:
        refuse_server_options(options)
    for name in ("live", "effects"):
        if name in options and page.html is None:
            raise click.UsageError(f"{options[name]} is for the file of a page; add --html page.html")
    if page.edits and not page.is_open and page.html is None:
        raise click.UsageError("--edit changes what a page shows; add --open, or --html page.html")
    if page.second is not None and not page.live:
        raise click.UsageError("--second is for a file with the model; add --live")
    if page.live and page.effects:
        raise click.UsageError("a page with --live measures effects by itself; leave out --effects")
    if page.is_open:
        refuse_page_options(options, "--open", OPEN_OPTIONS)
    elif page.html is not None:
        refuse_page_options(options, "--html", HTML_OPTIONS)


def refuse_server_options(options: dict[str, str]) -> None:
    """Refuse the options of the server, which have no meaning without --open.

    Args:
        options: What ``list_given_options`` returned.
    """
    for name in SERVER_OPTIONS:
        if name in options:
            raise click.UsageError(f"{options[name]} belongs to the server of the page; add --open")


def refuse_page_options(options: dict[str, str], shown_by: str, allowed: tuple[str, ...]) -> None:
    """Refuse options that have no meaning on a page.

    Args:
        options: What ``list_given_options`` returned.
        shown_by: The option that shows the page.
        allowed: The parameters that keep their meaning.
    """
    for name, option in options.items():
        if name not in (*allowed, *SERVER_OPTIONS, *PAGE_OPTIONS):
            raise click.UsageError(f"{shown_by} shows the whole page, so {option} has no effect; remove one of them")


def open_page(page: PageOptions, options: LookOptions) -> None:
    """Show a model and its input in the browser."""
    require_packages()
    model, text = read_page_input(options.arguments)

    # torch is imported later, by the worker of the session: the page must not wait for it
    from jumok.web.session import Session, Start

    edits = _parse_edits(page.edits) if page.edits else ()
    session = Session(Start(model, text, edits=edits, language=get_chosen_language(), begin=options.begin or 0.0))
    serve_session(page, session, CommandOutput())


def write_page(path: Path, page: PageOptions, options: LookOptions) -> None:
    """Write the page as one HTML file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise click.UsageError(f"--html writes HTML; {path} must end in .html")
    if not path.parent.is_dir():
        raise click.UsageError(f"cannot write {path.name}: there is no folder {path.parent}")
    model, text = read_page_input(options.arguments)
    if text is None:
        raise click.UsageError("--html shows one input; give it after the model")

    from jumok.web.saved_file import save_html
    from jumok.web.session import Start

    with show_progress(f"writing {path.name}", quiet=False) as report:
        edits = _parse_edits(page.edits)
        start = Start(model, text, edits=edits, language=get_chosen_language(), begin=options.begin or 0.0)
        layer = None if options.layer is None else parse_layer(options.layer)
        written = save_html(
            path,
            start,
            layer=layer,
            head=options.head,
            live=page.live,
            effects=page.effects,
            second=page.second,
            progress=report,
        )
    CommandOutput().print_written([written])


def _parse_edits(texts: tuple[str, ...]) -> tuple[Edit, ...]:
    from jumok.lens.edits.edit_text import parse_edit

    return tuple(map(parse_edit, texts))


def serve_session(page: PageOptions, session: Session, output: CommandOutput) -> None:
    """Start the server, print the address, open the browser, and answer until Ctrl-C.

    Args:
        session: Answers the asks of the page.
    """
    from jumok.web.server.page_server import PageServer, is_loopback

    server = PageServer(session, host=page.host, port=page.port, allowed_hosts=page.allowed_hosts)
    if not is_loopback(page.host):
        output.warn(output.select(PUBLIC_WARNING))
    with suppress(KeyboardInterrupt):  # the usual way to end it, also before it runs
        output.print(server.address)
        output.print(STOP_HINT)
        if not page.without_browser:
            # some browsers return only when they are closed
            Thread(target=_start_browser, args=(server.address, output), daemon=True).start()
        server.run()


def _start_browser(address: str, output: CommandOutput) -> None:
    from jumok.web.server.open_browser import open_browser

    if not open_browser(address):
        with suppress(OSError):  # the reader of a pipe may be gone
            output.print(NO_BROWSER)


def find_missing_packages() -> list[str]:
    """Return the packages that --open needs and that are not installed."""
    from importlib.util import find_spec

    return [name for name in ("starlette", "uvicorn", "websockets") if find_spec(name) is None]


def require_packages() -> None:
    """Raise an ArgumentError if a package that --open needs is not installed."""
    from jumok.errors import ArgumentError

    missing = find_missing_packages()
    if missing:
        raise ArgumentError(f'--open needs {" and ".join(missing)}; install it with: pip install "jumok[page]"')


PUBLIC_WARNING = Text(
    "the page can be reached from other machines, without encryption; the token in its address is all that protects it",
    "다른 컴퓨터에서도 이 페이지에 암호화 없이 접속할 수 있으며, 주소에 든 토큰만이 이를 보호합니다",
)
STOP_HINT = Text("Ctrl-C stops the server.", "서버를 끝내려면 Ctrl-C를 누르세요.")
NO_BROWSER = Text("Open this address in a browser.", "이 주소를 브라우저에서 여세요.")
