"""The options of ``jumok look`` that show the page: in a browser (--open) or in a file (--html)."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.arguments import parse_layer, read_page_input
from jumok.cli.command import select_language, show_progress
from jumok.lab.bilingual_text import Text

if TYPE_CHECKING:
    from jumok.web.session import Session

SERVER_OPTIONS = ("host", "port", "allowed_hosts", "without_browser")
# what the page shows by itself, or what the user chooses there
OPEN_OPTIONS = ("language", "begin")
HTML_OPTIONS = ("language", "begin", "layer", "head")  # the head to show first


HOST_NAME = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


@dataclass(frozen=True)
class PageOptions:
    """Where to show the page.

    Attributes:
        html: The file to write, or None.
        host: The address that the server listens on.
        port: Its port; None chooses one.
        allowed_hosts: Further names under which browsers reach it.
    """

    is_open: bool
    html: Path | None
    host: str
    port: int | None
    allowed_hosts: tuple[str, ...]
    without_browser: bool


def add_page_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the page to a command; with --open or --html, the page is shown instead.

    Args:
        function: The command without these options.
    """

    @functools.wraps(function)
    def show_page_or_call(
        is_open: bool,
        html: Path | None,
        host: str,
        port: int | None,
        allowed_hosts: tuple[str, ...],
        without_browser: bool,
        **options: Any,
    ) -> Any:
        page = PageOptions(is_open, html, host, port, allowed_hosts, without_browser)
        context = click.get_current_context()
        _check_combination(context, page)
        if page.is_open:
            return _open_page(page, options)
        if page.html is not None:
            return _write_page(page.html, options)
        if not options["arguments"]:
            parameter = next(parameter for parameter in context.command.params if parameter.name == "arguments")
            raise click.MissingParameter(ctx=context, param=parameter)
        return function(**options)

    decorators = (
        click.option("--open", "is_open", is_flag=True, help="Show it in the browser, where it can be edited."),
        click.option(
            "--html",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Write the page as one HTML file, which needs no server and no network.",
        ),
        add_server_options,
    )
    command: Callable[..., Any] = show_page_or_call
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def add_server_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the server to a command that has --open.

    Args:
        function: The command without these options.
    """
    decorators = (
        click.option("--port", type=click.IntRange(0, 65535), help="With --open: the port; 0 takes a free one."),
        click.option(
            "--host",
            default="127.0.0.1",
            show_default=True,
            help="With --open: the address to listen on. The default is reached from this machine only.",
        ),
        click.option(
            "--allow-host",
            "allowed_hosts",
            metavar="NAME[:PORT]",
            multiple=True,
            callback=_check_names,
            help="With --open: another name under which the browser reaches this server, such as that of a port that "
            "SSH or VS Code forwards; can be repeated.",
        ),
        click.option(
            "--no-browser",
            "without_browser",
            is_flag=True,
            help="With --open: only print the address. Other users of this machine can read the address of a browser "
            "that is started here in the list of processes.",
        ),
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


def _check_combination(context: click.Context, page: PageOptions) -> None:
    """Refuse options that have no meaning together."""
    options = list_given_options(context)
    if page.is_open and page.html is not None:
        raise click.UsageError("--open and --html show the same page; give one of them")
    if not page.is_open:
        refuse_server_options(options)
    if page.is_open or page.html is not None:
        shown = "--open" if page.is_open else "--html"
        allowed = (*(OPEN_OPTIONS if page.is_open else HTML_OPTIONS), *SERVER_OPTIONS, "is_open", "html")
        for name, option in options.items():
            if name not in allowed:
                raise click.UsageError(f"{shown} shows the whole page, so {option} has no effect; remove one of them")


def list_given_options(context: click.Context) -> dict[str, str]:
    """Return the options that the user wrote, by the names of their parameters."""
    commandline = click.core.ParameterSource.COMMANDLINE
    return {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
        and parameter.name is not None
        and context.get_parameter_source(parameter.name) is commandline
    }


def refuse_server_options(options: dict[str, str]) -> None:
    """Refuse the options of the server, which have no meaning without --open.

    Args:
        options: What ``list_given_options`` returned.

    Raises:
        click.UsageError: If one of them was given.
    """
    for name in SERVER_OPTIONS:
        if name in options:
            raise click.UsageError(f"{options[name]} belongs to the server of the page; add --open")


def _open_page(page: PageOptions, options: dict[str, Any]) -> None:
    """Show a model and its input in the browser."""
    require_packages()
    model, text = read_page_input(options["arguments"])

    # torch is imported later, by the worker of the session: the page must not wait for it
    from jumok.web.session import Session, Start

    session = Session(Start(model, text, language=options["language"], begin=options["begin"] or 0.0))
    serve_session(page, session, select_language(options["language"]))


def serve_session(page: PageOptions, session: Session, language: str) -> None:
    """Start the server, print the address, open the browser, and answer until Ctrl-C.

    Args:
        session: Answers the asks of the page.
        language: The language of what is printed: "en" or "ko".
    """
    from jumok.web.server.page_server import PageServer, is_loopback

    server = PageServer(session, host=page.host, port=page.port, allowed_hosts=page.allowed_hosts)
    if not is_loopback(page.host):
        click.echo(f"jumok: {PUBLIC_WARNING.select(language)}", err=True)
    with suppress(KeyboardInterrupt):  # the usual way to end it, also before it runs
        click.echo(server.address)
        click.echo(STOP_HINT.select(language))
        if not page.without_browser:
            # some browsers return only when they are closed
            Thread(target=_start_browser, args=(server.address, language), daemon=True).start()
        server.run()


def _start_browser(address: str, language: str) -> None:
    from jumok.web.server.open_browser import open_browser

    if not open_browser(address):
        with suppress(OSError):  # the reader of a pipe may be gone
            click.echo(NO_BROWSER.select(language))


def _write_page(path: Path, options: dict[str, Any]) -> None:
    """Write the page as one HTML file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise click.UsageError(f"--html writes HTML; {path} must end in .html")
    if not path.parent.is_dir():
        raise click.UsageError(f"cannot write {path.name}: there is no folder {path.parent}")
    model, text = read_page_input(options["arguments"])
    if text is None:
        raise click.UsageError("--html shows one input; give it after the model")

    from jumok.web.saved_file import save_html
    from jumok.web.session import Start

    with show_progress(f"writing {path.name}", quiet=False) as report:
        start = Start(model, text, language=options["language"], begin=options["begin"] or 0.0)
        layer = None if options["layer"] is None else parse_layer(options["layer"])
        written = save_html(path, start, layer=layer, head=options["head"], progress=report)
    click.echo(f"wrote {written}")


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
