"""One browser for each file of tests, and one server for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from chromium import ARGUMENTS, MISSING, find_browser
from page_driver import MAP, ShownPage, serve_page
from playwright.sync_api import Browser, sync_playwright

TEXT = "the cat sat; the cat"


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test of the page again if it waited for the browser in vain: beside another worker, a key may be pressed
    before the page has drawn what it is for. A test that fails twice fails."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed and "TimeoutError" in str(report.longrepr) for report in reports):
        item._initrequest()  # type: ignore[attr-defined]  # new fixtures
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium without windows.

    One for each file, as Playwright's event loop seems to run as long as it is open, and other tests start their own.
    """
    path = find_browser()
    if path is None:
        pytest.fail(MISSING)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The address of a server that shows tiny."""
    with serve_page("tiny", TEXT) as printed:
        yield printed


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., ShownPage]]:
    """Open an address in a new page; at the end, the page is closed and its console checked."""
    pages: list[ShownPage] = []

    def open_address(address: str, ready: str = MAP, **settings: Any) -> ShownPage:
        shown = ShownPage(browser, **settings)
        pages.append(shown)
        shown.open(address, ready)
        return shown

    yield open_address
    for shown in pages:
        shown.close()
