"""Find the browser in which the tests open the page, and install one where that is possible.

Run as a program, it installs what is missing: ``make test`` does so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_PATHS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
# no requests of the browser's own: the tests fail on every request that is not ours
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING = (
    "the tests of the page need Chromium or Chrome: install one (Debian: apt-get install chromium fonts-nanum; elsewhere: "
    "playwright install chromium), or name it in JUMOK_BROWSER"
)


def find_browser() -> str | None:
    """Return the path of a Chromium; None if there is none."""
    named = os.environ.get("JUMOK_BROWSER")
    if named:
        return named
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    for path in MAC_PATHS:
        if Path(path).is_file():
            return path
    return _find_playwright_browser()


def _find_playwright_browser() -> str | None:
    """Return the browser that Playwright downloaded, if it did."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if path and Path(path).is_file() else None


def install_browser() -> None:
    """Install Chromium and a font with Hangul: by apt as root, else by Playwright."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        packages = ["chromium", "fonts-nanum"]
        install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (install, ["apt-get", "update", "--quiet"], install):
            if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode == 0 and command is install:
                return
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)


if __name__ == "__main__":
    if find_browser() is None:
        install_browser()
    if find_browser() is None:
        sys.exit(MISSING)
