"""Measure the page in a real browser: sizes, first picture, frames, memory, and the time from an edit to its picture.

    python bench/page.py [--only NAME ...]

Needs Chromium (see tests/page/chromium.py) and, for "edit-smollm2", the catalogue model smollm2.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import torch
from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "page"))
from chromium import ARGUMENTS, MISSING, find_browser
from page_driver import ShownPage, serve_page
from page_models import LONG, save_long_model

import jumok
from jumok.models import GPT
from jumok.models.gpt import GPTConfig

WORDS_64 = "The animal didn't cross the street because it was too tired, and the driver of the old bus waited. " * 3
REPEATS = 9

RECORD_FRAMES = """() => {
  window.frameTimes = [];
  let last = performance.now();
  const note = (now) => {
    window.frameTimes.push(now - last);
    last = now;
    window.frameId = requestAnimationFrame(note);
  };
  window.frameId = requestAnimationFrame(note);
}"""


def measure_bundle() -> None:
    """Print the size of the bundle."""
    folder = files("jumok") / "web" / "static"
    for name in ("jumok.js", "jumok.css"):
        content = (folder / name).read_bytes()
        print(f"{name}: {len(content):,} bytes, {len(gzip.compress(content, 9)):,} gzipped")


def measure_start(browser: Browser) -> None:
    """Print the time from the command to the skeleton and to the first picture of tiny."""
    skeletons, pictures = [], []
    for _ in range(5):
        begin = time.perf_counter()
        with serve_page("tiny", "the cat sat; the cat") as address:
            shown = ShownPage(browser)
            shown.page.goto(address, wait_until="commit")
            shown.page.wait_for_selector(".jk-header")
            skeletons.append(time.perf_counter() - begin)
            shown.wait_for_map()
            pictures.append(time.perf_counter() - begin)
            shown.close()
    print(f"skeleton: {statistics.median(skeletons):.2f} s (worst {max(skeletons):.2f})")
    print(f"first picture of tiny: {statistics.median(pictures):.2f} s (worst {max(pictures):.2f})")


def save_small_gpt(folder: Path) -> Path:
    """Write an untrained GPT with the shape of GPT-2 small: 12 layers of 12 heads."""
    if folder.exists():
        return folder
    torch.manual_seed(0)
    config = GPTConfig(vocabulary=256, length=1024)
    return jumok.save(GPT(config), folder, tokenizer=jumok.load("tiny").require_tokenizer())


def measure_first_bytes(browser: Browser, folder: Path) -> None:
    """Print what the page receives for 144 heads at 512 tokens until the first picture, and with all thumbnails."""
    model = save_small_gpt(folder / "small")
    text = (WORDS_64 * 4)[:512]
    with serve_page(str(model), text) as address:
        shown = ShownPage(browser)
        received: list[int] = []
        shown.page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(len(frame))))
        shown.page.goto(address)
        shown.wait_for_map()
        at_map = sum(received)
        shown.page.wait_for_function(
            "() => document.querySelectorAll('.jk-head canvas[data-loaded=true]').length === 144", timeout=120_000
        )
        print(f"144 heads at 512 tokens: first picture {at_map:,} bytes, with all thumbnails {sum(received):,}")
        shown.close()


def measure_frames(browser: Browser, folder: Path) -> None:
    """Print the frame times while a map of 16,384 tokens is panned and zoomed, and the growth of the heap."""
    model = save_long_model(folder / "long")
    (folder / "long.txt").write_text(("the quick brown fox " * LONG)[:LONG])
    with serve_page(str(model), str(folder / "long.txt")) as address:
        shown = ShownPage(browser)
        shown.page.goto(address)
        shown.wait_for_map()
        page = shown.page
        box = page.locator("canvas[data-map]").bounding_box()
        assert box is not None
        centre = box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.7
        page.mouse.move(*centre)
        for _ in range(12):
            page.mouse.wheel(0, -300)
        page.wait_for_timeout(1500)
        for name, action in (("pan", pan), ("zoom", zoom)):
            page.evaluate(RECORD_FRAMES)
            action(page, centre, 10)
            page.evaluate("() => cancelAnimationFrame(window.frameId)")
            times = sorted(page.evaluate("() => window.frameTimes"))
            p95 = times[int(len(times) * 0.95)]
            print(f"{name}: p95 {p95:.1f} ms a frame, median {statistics.median(times):.1f}, {len(times)} frames")
        before = measure_heap(page)
        pan(page, centre, 60)
        after = measure_heap(page)
        print(f"heap after a minute of panning: {before / 1e6:.1f} -> {after / 1e6:.1f} MB ({after / before - 1:+.1%})")
        shown.close()


def pan(page: Page, centre: tuple[float, float], seconds: float) -> None:
    """Drag the map back and forth."""
    end = time.perf_counter() + seconds
    direction = 1
    while time.perf_counter() < end:
        page.mouse.move(*centre)
        page.mouse.down()
        for step in range(20):
            page.mouse.move(centre[0] + direction * 8 * step, centre[1] + direction * 6 * step)
            page.wait_for_timeout(8)
        page.mouse.up()
        direction = -direction


def zoom(page: Page, centre: tuple[float, float], seconds: float) -> None:
    """Zoom in and out."""
    end = time.perf_counter() + seconds
    page.mouse.move(*centre)
    step = 0
    while time.perf_counter() < end:
        page.mouse.wheel(0, -60 if step // 25 % 2 else 60)
        page.wait_for_timeout(16)
        step += 1


def measure_heap(page: Page) -> float:
    """Return the bytes that JavaScript uses after garbage collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return session.send("Runtime.getHeapUsage")["usedSize"]


def measure_edits(browser: Browser, model: str, text: str) -> None:
    """Print the time from a click that ablates a head to the new picture and predictions."""
    loaded = jumok.load(model)
    tokens = torch.tensor([loaded.require_tokenizer().encode(text)[:64]])
    with serve_page(model, loaded.require_tokenizer().decode(tokens[0].tolist())) as address:
        shown = ShownPage(browser)
        shown.page.goto(address)
        shown.wait_for_map()
        shown.page.wait_for_selector(".jk-kinds b", timeout=120_000)
        first = '[data-head="0.0"]'
        shown.page.click(first)
        times, passes = [], []
        for _ in range(REPEATS):
            with torch.inference_mode():
                begin = time.perf_counter()
                loaded.model(tokens)
                passes.append(1000 * (time.perf_counter() - begin))
            times.append(time_edit(shown.page))
            shown.page.click("[data-action=undo]")
            shown.wait_for_edits(0)
            shown.page.wait_for_timeout(300)
        ratio = statistics.median(times) / statistics.median(passes)
        spread = f"[{min(times):.0f}, {max(times):.0f}]"
        print(f"{model}, {tokens.shape[1]} tokens: edit to redraw {statistics.median(times):.0f} ms {spread},", end=" ")
        print(f"a forward pass {statistics.median(passes):.0f} ms, ratio {ratio:.2f}")
        shown.close()


def time_edit(page: Page) -> float:
    """Ablate the selected head; return the milliseconds until the edited map and its predictions are drawn."""
    return page.evaluate("""() => new Promise((resolve) => {
      const begin = performance.now();
      document.querySelector('[data-action=ablate]').click();
      const look = () => {
        const map = document.querySelector('canvas[data-map=edited][data-complete=true]');
        const isPredicted = document.querySelector('.jk-predictions td.jk-edited');
        if (map && isPredicted) resolve(performance.now() - begin); else requestAnimationFrame(look);
      };
      look();
    })""")


def measure_saved_file(browser: Browser, folder: Path) -> None:
    """Print the size of a saved file of 144 heads at 512 tokens, and the time to open it."""
    from jumok.web.saved_file import save_html
    from jumok.web.session import Start

    model = save_small_gpt(folder / "small")
    path = save_html(folder / "saved.html", Start(str(model), (WORDS_64 * 4)[:512]))
    times = []
    for _ in range(3):
        shown = ShownPage(browser)
        begin = time.perf_counter()
        shown.page.goto(path.as_uri())
        shown.wait_for_map()
        times.append(time.perf_counter() - begin)
        shown.close()
    size = path.stat().st_size / 1e6
    print(f"saved file, 144 heads at 512 tokens: {size:.1f} MB, opened in {min(times):.1f} to {max(times):.1f} s")


def main() -> None:
    """Run all measurements, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = ("bundle", "start", "bytes", "frames", "edit-tiny", "edit-smollm2", "saved")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    chosen = parser.parse_args().only
    torch.set_num_threads(1)  # as in the server that is measured
    path = find_browser()
    if path is None:
        sys.exit(MISSING)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as name:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        folder = Path(name)
        measurements: dict[str, Callable[[], None]] = {
            "bundle": measure_bundle,
            "start": lambda: measure_start(browser),
            "bytes": lambda: measure_first_bytes(browser, folder),
            "frames": lambda: measure_frames(browser, folder),
            "edit-tiny": lambda: measure_edits(browser, "tiny", "the cat sat; the cat"),
            "edit-smollm2": lambda: measure_edits(browser, "smollm2", WORDS_64),
            "saved": lambda: measure_saved_file(browser, folder),
        }
        for chosen_name in chosen:
            measurements[chosen_name]()
        browser.close()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
