"""Measure the engine of the page in Chromium: a translated sentence, tokens of a story, forward passes, and edits.

    python bench/engine.py

Needs Chromium (see tests/page/chromium.py). The engine computes on one core, and so does Python beside it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "page"))
from chromium import ARGUMENTS, MISSING, find_browser
from engine_page import open_engine_page

import jumok
from jumok.generate.loop import generate
from jumok.tasks.labelled_input import prepare_input

REPEATS = 15
NEW_TOKENS = 48
SENTENCE = "나는 어제 학교에서 재미있는 책을 읽었다"
STORY = "옛날 옛적에 숲속에 토끼가 살았습니다. "

#: each takes the model, a text and the number of new tokens, and returns milliseconds
TIMERS = """{
  async open({ engine, name }) {
    const files = await globalThis.readModelFiles(name);
    const begin = performance.now();
    engine.openModel(files);
    return performance.now() - begin;
  },
  async translate({ engine, model, text }) {
    const begin = performance.now();
    const { tokens: source } = engine.prepareText(model, text, "ko");
    const { target } = engine.prepareAnswer(model, source);
    engine.forward(model, { source, target });
    return performance.now() - begin;
  },
  async write({ engine, model, text, count }) {
    const { tokens: source } = engine.prepareText(model, text, "ko");
    let [begin, tokens] = [0, 0];
    for (const _ of engine.generate({ ...model, ends: new Set() }, { source }, { limit: count + 1 })) {
      if (tokens++ === 0) begin = performance.now(); // the prompt is read
    }
    return (performance.now() - begin) / count;
  },
  async read({ engine, model, text, count }) {
    const source = repeat(engine.prepareText(model, text, "ko").tokens, count);
    const begin = performance.now();
    engine.forward(model, { source });
    return performance.now() - begin;
  },
  async edit({ engine, model, text, count }) {
    const source = repeat(engine.prepareText(model, text, "ko").tokens, count);
    const clean = engine.forward(model, { source });
    const begin = performance.now();
    const edits = [{ edit: "Ablate", layer: model.sites.at(-1).layer, head: 0 }];
    engine.forward(model, { source }, { edits, reuse: clean, logits: 1 });
    return performance.now() - begin;
  },
}"""


def measure(page: Page, timer: str, name: str, text: str, count: int = 0) -> float:
    """Return the milliseconds that a timer measures once."""
    script = f"""async (options) => {{
      const repeat = (tokens, count) => Array.from({{ length: count }}, (_, index) => tokens[index % tokens.length]);
      const timers = {TIMERS};
      const model = await globalThis.openModel(options.name);
      return timers[options.timer]({{ engine: globalThis.engine, model, ...options }});
    }}"""
    options = {"timer": timer, "name": name, "text": text, "count": count}
    return float(page.evaluate(script, options))


def time_python(compute: Callable[[], Any]) -> float:
    """Return the milliseconds of a call."""
    begin = time.perf_counter()
    with torch.inference_mode():
        compute()
    return 1000 * (time.perf_counter() - begin)


def print_times(title: str, engine: Callable[[], float], python: Callable[[], float] | None = None) -> None:
    """Print medians of interleaved repeats, with their range."""
    engine_times, python_times = [], []
    for repeat in range(REPEATS + 2):
        times = engine(), python() if python is not None else 0.0
        if repeat >= 2:  # the first ones compile
            engine_times.append(times[0])
            python_times.append(times[1])
    described = f"{statistics.median(engine_times):.1f} ms [{min(engine_times):.1f}, {max(engine_times):.1f}]"
    if python is not None:
        described += f", Python {statistics.median(python_times):.1f} ms"
    print(f"{title}: {described}")


def main() -> None:
    path = find_browser()
    if path is None:
        sys.exit(MISSING)
    torch.set_num_threads(1)
    translator, korean = jumok.load("translator"), jumok.load("korean")
    prompt = korean.require_tokenizer().encode(STORY)
    new = generate(korean.model, [prompt], limit=NEW_TOKENS)[0]
    text = torch.tensor([(prompt * 256)[:256]])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        page = open_engine_page(browser)
        for name in ("tiny", "translator", "korean"):
            print_times(f"open {name}", lambda name=name: measure(page, "open", name, ""))
        print_times(
            "translator, a sentence: text, answer and all maps",
            lambda: measure(page, "translate", "translator", SENTENCE),
            lambda: time_python(lambda: prepare_input(translator, SENTENCE, literal=True)),
        )
        print_times(
            f"korean, a token behind {len(prompt)} to {len(prompt) + NEW_TOKENS}",
            lambda: measure(page, "write", "korean", STORY, NEW_TOKENS),
            lambda: time_python(lambda: generate(korean.model, [prompt], limit=NEW_TOKENS)) / len(new),
        )
        for count in (32, 256):
            print_times(
                f"korean, {count} tokens with all logits",
                lambda count=count: measure(page, "read", "korean", STORY, count),
                lambda count=count: time_python(lambda: korean.model(text[:, :count])),
            )
            print_times(
                f"korean, {count} tokens, a head of the last layer ablated",
                lambda count=count: measure(page, "edit", "korean", STORY, count),
            )
        browser.close()


if __name__ == "__main__":
    main()
