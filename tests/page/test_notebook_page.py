"""The page as a widget, in a real JupyterLab and in marimo."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from page_driver import ShownPage
from playwright.sync_api import Browser

from speech.small_speech import play_tones, save_listener, write_wav

pytestmark = [pytest.mark.xdist_group("page"), pytest.mark.slow]

CODE = 'import jumok\npage = jumok.show("tiny", "the cat sat; the cat")\npage'
TOKEN = "notebook-test"
#: a cell that changes the page, and runs until the test allows it to end
WAIT = """import pathlib, time
page.selection = (0, 1)
while not pathlib.Path("release").exists():
    time.sleep(0.05)
print("released", 1 + 1)"""


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serve(command: list[str], address: str, folder: Path) -> Iterator[None]:
    """Run a server of notebooks until the block ends; wait until it answers."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "JUPYTER_CONFIG_DIR": str(folder / "config")}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(30)


def wait_for_idle_kernel(address: str) -> None:
    """Wait until the only kernel is idle and connected; JupyterLab's indicator says so too early."""
    for _ in range(300):
        with urllib.request.urlopen(f"{address}/api/kernels?token={TOKEN}", timeout=5) as answer:
            kernels = json.load(answer)
        if kernels and kernels[0]["execution_state"] == "idle" and kernels[0]["connections"] > 0:
            return
        time.sleep(0.2)
    pytest.fail("the kernel did not start")


def ablate_a_head(shown: ShownPage) -> None:
    """Ablate a head in the widget, and wait for the edited prediction."""
    shown.page.locator('[data-head="1.0"]').first.click()
    shown.page.locator("[data-action=ablate]").first.click()
    shown.page.wait_for_selector(".jk-predictions td.jk-edited")
    shown.page.wait_for_selector("canvas[data-map=edited][data-complete=true]")


def compare_two_texts(shown: ShownPage) -> None:
    """Compare a second text in the widget, and patch the head that restores the answer of the first one."""
    shown.page.locator("[data-action=contrast]").first.click()
    shown.page.locator("[data-contrast-input]").fill("the cat sat; the dog")
    shown.page.locator("[data-action=compare]").click()
    shown.page.locator("[data-value=corrupted]").wait_for()
    shown.page.locator("[data-action=sweep]").click()
    shown.page.locator("[data-restores] button").first.click()
    shown.page.locator("[data-value=patched]").wait_for()
    shown.page.locator("canvas[data-contrast=difference][data-complete=true]").wait_for()


def test_a_cell_of_jupyterlab_shows_the_page_and_follows_its_edits(browser: Browser, tmp_path: Path) -> None:
    port = find_free_port()
    address = f"http://127.0.0.1:{port}"
    cells = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source, "id": name}
        for name, source in (("show", CODE), ("read", "print('edits:', page.edits)"), ("wait", WAIT))
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "page.ipynb").write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={tmp_path}", "--ServerApp.port_retries=0"]
    with serve(command, f"{address}/api?token={TOKEN}", tmp_path):
        shown = ShownPage(browser)
        shown.page.goto(f"{address}/lab/tree/page.ipynb?token={TOKEN}")
        shown.page.wait_for_selector(".jp-CodeCell", timeout=60_000)
        wait_for_idle_kernel(address)
        shown.page.locator(".jp-CodeCell .cm-content").first.click()
        shown.page.keyboard.press("Shift+Enter")
        shown.wait_for_map()
        ablate_a_head(shown)
        shown.page.locator(".jp-CodeCell .cm-content").nth(1).click()
        shown.page.keyboard.press("Shift+Enter")
        output = shown.page.locator(".jp-OutputArea-output pre").last
        output.wait_for()
        assert "Ablate(layer=1, head=0" in output.inner_text()

        # while a cell runs, another thread of the kernel passes the asks of the page on
        shown.page.locator(".jp-CodeCell .cm-content").nth(2).click()
        shown.page.keyboard.press("Shift+Enter")
        shown.page.wait_for_selector(".jp-InputPrompt:has-text('[*]')")
        shown.page.locator(".jumok-widget textarea").fill("xyz xyz")
        shown.page.locator(".jumok-widget textarea").press("Enter")
        shown.page.wait_for_function(
            "() => document.querySelector('.jumok-widget').innerText.includes('x\\ny\\nz')", timeout=20_000
        )
        assert shown.page.locator(".jp-InputPrompt:has-text('[*]')").count() == 1, "the cell is still running"
        (tmp_path / "release").touch()
        shown.page.wait_for_selector(".jp-OutputArea-output pre:has-text('released 2')")
        # JupyterLab prints warnings of its own
        shown.problems = [problem for problem in shown.problems if "jumok" in problem.lower()]
        shown.close()


@contextmanager
def serve_marimo(code: str, folder: Path) -> Iterator[str]:
    """Run marimo with one cell, and yield its address."""
    cells = "\n".join(f"    {line}" for line in code.splitlines())
    program = f"import marimo\n\napp = marimo.App()\n\n\n@app.cell\ndef _():\n{cells}\n    return\n"
    (folder / "page.py").write_text(program)
    port = find_free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "marimo", "run", "page.py", "--headless", "--no-token", "--port", str(port)]
    with serve(command, address, folder):
        yield address


def test_marimo_plays_audio(browser: Browser, tmp_path: Path) -> None:
    save_listener(tmp_path / "listener")
    write_wav(tmp_path / "tones.wav", play_tones("도파미"))
    with serve_marimo('import jumok\npage = jumok.show("listener", "tones.wav")\npage', tmp_path) as address:
        shown = ShownPage(browser)
        shown.page.goto(address)
        shown.wait_for_map()
        shown.page.locator("[data-action=play-sound]:not([disabled])").click()
        player = shown.page.locator("audio")
        player.evaluate("player => new Promise((resolve) => player.addEventListener('ended', resolve))")
        shown.page.locator("[data-word='1']").click()
        shown.page.locator("canvas[data-sound]").focus()
        for pressed in ("Shift+ArrowRight", "Shift+ArrowRight", "Delete"):
            shown.page.keyboard.press(pressed)
        shown.page.locator("[data-transcript=edited]").wait_for()
        assert shown.page.locator("[data-transcript=clean]").inner_text() == "도 파 미"
        shown.problems = [problem for problem in shown.problems if "jumok" in problem.lower()]
        shown.close()


def test_marimo_shows_the_page(browser: Browser, tmp_path: Path) -> None:
    with serve_marimo(CODE, tmp_path) as address:
        shown = ShownPage(browser)
        shown.page.goto(address)
        shown.wait_for_map()  # Playwright looks into shadow roots
        ablate_a_head(shown)
        compare_two_texts(shown)
        shown.problems = [problem for problem in shown.problems if "jumok" in problem.lower()]
        shown.close()
