"""Drive the page in a real browser: start the server, open the page, and read what it shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, TimeoutError

SIZE = {"width": 1280, "height": 800}
MAP = "canvas[data-map][data-complete=true]"


@contextmanager
def serve_page(
    *arguments: str, folder: Path | None = None, command: str = "look", program: Sequence[str] = ("-m", "jumok")
) -> Iterator[str]:
    """Run ``jumok look ... --open`` as a process, and yield the address that it prints.

    Args:
        arguments: The model and its input.
        folder: The working folder of the process.
        command: The name of the command: "look" or "ask".
        program: Arguments of Python that start the command line.
    """
    words = [sys.executable, *program, command, *arguments, "--open", "--no-browser", "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=[\w-]{20,}", address), address
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


class ShownPage:
    """A page that is open in the browser, with everything that its console printed.

    Attributes:
        page: Playwright's page.
        problems: Errors and warnings of the console, uncaught exceptions, and requests to other hosts.
    """

    def __init__(self, browser: Browser, **settings: Any) -> None:
        self.context = browser.new_context(viewport=SIZE, locale=settings.pop("locale", "en-US"), **settings)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.context.set_default_timeout(60_000)  # two workers and their browsers may share two cores
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.problems.append(error.stack or str(error)))
        self.page.on("request", lambda request: self._note_request(request.url))

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _note_request(self, url: str) -> None:
        if not re.match(r"(http://127\.0\.0\.1:|data:|blob:|file:)", url):
            self.problems.append(f"a request to {url}")

    def open(self, address: str, ready: str = MAP) -> None:
        """Open an address, and wait until the first map is complete.

        Args:
            address: The address with its token, or a file.
            ready: The element to wait for, if the page does not begin with a map.
        """
        self.page.goto(address)
        self.page.wait_for_selector(ready)

    def wait_for_map(self, shown: str = "") -> None:
        """Wait until a map is drawn with all of its tiles.

        Args:
            shown: "clean", "edited" or "difference"; default: any of them.
        """
        map_name = f"={shown}" if shown else ""
        self.page.wait_for_selector(f"canvas[data-map{map_name}][data-complete=true]")

    def read_link(self) -> dict[str, Any]:
        """Return what the address of the page says about the view."""
        import json
        from urllib.parse import parse_qs

        fragment = self.page.evaluate("() => location.hash")
        return json.loads(parse_qs(fragment[1:])["state"][0])

    def wait_for_edits(self, count: int) -> None:
        """Wait until the list of edits has a length and the run that belongs to it is shown.

        Args:
            count: The number of edits.
        """
        self.page.wait_for_function(
            "count => document.querySelectorAll('.jk-edit-list li').length === count"
            " && document.querySelector('.jk-task').dataset.busy === 'false'",
            arg=count,
        )

    def read_predictions(self, side: str = "clean") -> dict[str, str]:
        """Return the predicted labels with their probabilities, as they are written.

        Args:
            side: "clean" or "edited".
        """
        rows = self.page.query_selector_all(".jk-predictions tbody tr")
        cells = ((row.query_selector("th"), row.query_selector(f"td.jk-{side}")) for row in rows)
        return {label.inner_text(): cell.inner_text().strip() for label, cell in cells if label and cell}

    def point_at_cell(self, query: int, key: int) -> str:
        """Move the map's cursor to a cell with the keyboard, and return the sentence below the map.

        Args:
            query: The row.
            key: The column.
        """
        for timeout in (10_000, 10_000, 60_000):  # a map that is drawn again meanwhile loses the focus
            self.page.locator("canvas[data-map]").first.focus()
            for pressed in ("Home", "PageUp", *["ArrowDown"] * query, *["ArrowRight"] * key):
                self.page.keyboard.press(pressed)
            with suppress(TimeoutError):
                self.page.wait_for_function(
                    "cells => cells.every((cell) => document.querySelector('.jk-value').textContent.includes(cell))"
                    " && !document.querySelector('.jk-value').textContent.endsWith('…')",
                    arg=[f"[{query}] → ", f"[{key}]: "],
                    timeout=timeout,
                )
                return self.page.locator(".jk-value").inner_text()
        raise AssertionError(f"the cursor did not reach row {query}, column {key}")

    def close(self) -> None:
        """Close the page, and fail if the console printed a problem."""
        self.context.close()
        assert not self.problems, self.problems
