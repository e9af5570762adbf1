"""``jumok look --open`` and plain ``jumok``: the address, the browser, Ctrl-C, and mistakes as one sentence."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from raw_client import WebSocketClient, build_request, exchange, read_status
from served_page import wait_until

JUMOK = [sys.executable, "-m", "jumok"]
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/#token=([\w-]{43})")


def build_environment(**variables: str) -> dict[str, str]:
    """Return the environment without a display and browser, with some variables."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "LANG", "LC_ALL", "LC_MESSAGES")
    return {**{name: text for name, text in os.environ.items() if name not in hidden}, **variables}


@contextmanager
def open_page(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command and end it by Ctrl-C: it must exit with 0, without a message."""
    command = [*JUMOK, "look", *arguments, "--open", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=build_environment(**variables), **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
            assert (process.returncode, errors) == (0, "")
        finally:
            process.kill()


def read_address(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the port and the token that the command prints first."""
    assert process.stdout is not None
    match = ADDRESS.fullmatch(process.stdout.readline().rstrip("\n"))
    assert match is not None
    return int(match[1]), match[2]


def test_the_page_is_served_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')")
    with open_page("tiny", "the cat", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}") as process:
        port, token = read_address(process)
        assert read_status(exchange(port, build_request(port))) == 200
        with WebSocketClient(port, token) as client:
            assert client.ask(id=1, ask="hello")["body"]["text"] == "the cat"
        assert process.stdout is not None
        assert process.stdout.readline() == "Ctrl-C stops the server.\n"
        assert process.stdout.readline() == "Open this address in a browser.\n"


def test_the_input_is_a_text_a_file_or_missing(tmp_path: Path) -> None:
    story = tmp_path / "story.txt"
    story.write_text("once upon\n")
    for arguments, model, text in (
        (("translator", str(story)), "translator", "once upon"),
        (("translator",), "translator", ""),
        ((), "tiny", ""),
    ):
        with open_page(*arguments, LANG="ko_KR.UTF-8") as process:
            port, token = read_address(process)
            with WebSocketClient(port, token) as client:
                body = client.ask(id=1, ask="hello")["body"]
            assert (body["model"], body["text"], body["language"]) == (model, text, None)
            assert process.stdout is not None
            assert process.stdout.readline() == "서버를 끝내려면 Ctrl-C를 누르세요.\n"


def test_the_browser_gets_the_address(tmp_path: Path) -> None:
    record, end = tmp_path / "address", tmp_path / "end"
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nprintf %s "$1" > {record}.part && mv {record}.part {record}\n'
        f"until [ -e {end} ]; do sleep 0.1; done\n"
    )
    browser.chmod(0o755)
    with open_page("tiny", "a", "--no-browser", BROWSER=str(browser)) as process:
        port, _ = read_address(process)
        assert read_status(exchange(port, build_request(port))) == 200
    assert not record.exists()

    with open_page("tiny", "a", BROWSER=str(browser)) as process:
        port, token = read_address(process)
        wait_until(record.exists)
        assert read_status(exchange(port, build_request(port))) == 200  # although this browser is still running
        end.touch()
    assert record.read_text() == f"http://127.0.0.1:{port}/#token={token}"


def run_jumok(*arguments: str) -> tuple[int, str]:
    process = subprocess.run(
        [*JUMOK, *arguments], capture_output=True, text=True, env=build_environment(), timeout=60, check=False
    )
    assert process.stdout == ""
    return process.returncode, process.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tiny", "a", "--open", "--json"), "--open shows the whole page, so --json has no effect; remove one of them"),
        (("tiny", "a", "--open", "--layer", "0"), "--open shows the whole page, so --layer has no effect"),
        (("tiny", "a", "--open", "--png", "a.png"), "--open shows the whole page, so --png has no effect"),
        (("tiny", "a", "--open", "--html", "a.html"), "--open and --html show the same page; give one of them"),
        (("tiny", "a", "--html", "a.html", "--json"), "--html shows the whole page, so --json has no effect"),
        (("tiny", "a", "--html", "a.html", "--limit", "5"), "--html shows the whole page, so --limit has no effect"),
        (("tiny", "a", "--html", "a.png"), "--html writes HTML; a.png must end in .html"),
        (("tiny", "a", "--html", "missing/a.html"), "cannot write a.html: there is no folder missing"),
        (("tiny", "--html", "a.html"), "--html shows one input; give it after the model"),
        (("tiny", "a", "--port", "8000"), "--port belongs to the server of the page; add --open"),
        (("tiny", "a", "--no-browser"), "--no-browser belongs to the server of the page; add --open"),
        (("tiny", "a", "--open", "--port", "70000"), "70000 is not in the range 0<=x<=65535"),
        (("tiny", "a", "--open", "--allow-host", "http://a/"), "'http://a/' is not a name such as box.example"),
        (("tiny", "a", "--open", "--allow-host", "*"), "'*' is not a name such as box.example"),
        (("tiny", "missing.txt", "--open"), "there is no file missing.txt"),
        (("missing-model", "a", "--open"), "there is no folder or .gguf file 'missing-model'"),
        (("tiny", "a", "--open", "--host", "192.0.2.1"), "cannot listen on 192.0.2.1"),
        ((), "Missing argument '[MODEL] INPUT'"),
    ],
)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], message: str) -> None:
    code, errors = run_jumok("look", *arguments)
    assert code == 2
    assert errors.startswith("jumok: ")
    assert message in errors
    assert errors.count("\n") == 1


def test_a_port_in_use_and_a_public_address_are_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, errors = run_jumok("look", "tiny", "a", "--open", "--port", port)
    assert code == 2
    assert errors == (
        f"jumok: port {port} is in use by another program; choose another one with --port, or 0 for any free port\n"
    )

    command = [*JUMOK, "look", "tiny", "a", "--open", "--port", "0", "--host", "0.0.0.0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        read_address(process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert errors.startswith("jumok: the page can be reached from other machines, without encryption")


def test_a_missing_package_names_the_extra() -> None:
    program = (
        "import sys, importlib.util as util\n"
        "find_spec = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name in ('uvicorn', 'websockets') else find_spec(name, *rest)\n"
        "from jumok.cli import main\n"
        "sys.argv = ['jumok', 'look', 'tiny', 'a', '--open']\n"
        "main()"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert process.stderr == (
        'jumok: --open needs uvicorn and websockets; install it with: pip install "jumok[page]"\n'
    )


@pytest.mark.parametrize("display", ["", ":99"])
def test_plain_jumok_opens_the_page_beside_a_display(display: str) -> None:
    parent, child = pty.openpty()
    environment = build_environment(DISPLAY=display, BROWSER="true")
    settings = {"stdin": child, "stdout": child, "stderr": child, "start_new_session": True, "env": environment}
    with subprocess.Popen(JUMOK, **settings) as process:  # type: ignore[call-overload]
        os.close(child)
        output = b""
        try:
            while b"Ctrl-C" not in output and b"jumok doctor" not in output:  # the page, or the help
                assert select.select([parent], [], [], 30)[0]
                output += os.read(parent, 4096)
            if b"Ctrl-C" in output:
                process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
    os.close(parent)
    assert (ADDRESS.search(output.decode()) is not None) is bool(display)
    assert (b"Usage: " in output) is not bool(display)
