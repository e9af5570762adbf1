"""Measure the engine of the page in Chromium: a translated sentence, tokens of a story, forward passes, and edits.

    python bench/engine.py

Needs Chromium (see tests/page/chromium.py). Engine and Python compute on one core each, in turn. On
a busy machine, the time of the processor is that of an idle one by the clock.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "page"))
from chromium import ARGUMENTS, MISSING, find_browser
from engine_page import open_engine_page

import jumok
from jumok.generate.loop import generate
from jumok.lens import Ablate
from jumok.lens.capture.recorder import KEEP_OPTIONS
from jumok.tasks.labelled_input import prepare_input

REPEATS = 15
NEW_TOKENS = 48
SENTENCE = "나는 어제 학교에서 재미있는 책을 읽었다"
STORY = "옛날 옛적에 숲속에 토끼가 살았습니다. "

#: each takes a model, a text and a number of tokens, and returns the function that is measured
JOBS = """{
  open: async ({ name }) => {
    const files = await readModelFiles(name);
    return () => engine.openModel(files);
  },
  translate: ({ model, text }) => () => {
    const { tokens: source } = engine.prepareText(model, text, "ko");
    const { target } = engine.prepareAnswer(model, source);
    engine.forward(model, { source, target });
  },
  write: ({ model, text, count }) => {
    const { tokens: source } = engine.prepareText(model, text, "ko");
    const tokens = engine.generate({ ...model, ends: new Set() }, { source }, { limit: count + 1 });
    tokens.next(); // the prompt is read
    return () => Array.from(tokens);
  },
  read: ({ model, source }) => () => engine.forward(model, { source }),
  edit: ({ model, source }) => {
    const clean = engine.forward(model, { source });
    const edits = [{ edit: "Ablate", layer: model.sites.at(-1).layer, head: 0 }];
    return () => engine.forward(model, { source }, { edits, reuse: clean, logits: 1 });
  },
}"""
PREPARE = f"""async ({{ kind, name, text, count }}) => {{
  const model = await openModel(name);
  const {{ tokens }} = count ? engine.prepareText(model, text, "ko") : {{}};
  const source = Array.from({{ length: count }}, (_, index) => tokens[index % tokens.length]);
  globalThis.job = await {JOBS}[kind]({{ model, name, text, count, source }});
}}"""


class Times(NamedTuple):
    """What a call takes, in milliseconds."""

    clock: float
    processor: float


class EnginePage:
    """The page of the engine, with the clock of its thread."""

    def __init__(self, browser: Browser) -> None:
        self.page = open_engine_page(browser)
        self.session = self.page.context.new_cdp_session(self.page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def measure(self, kind: str, name: str, text: str, count: int = 0) -> Times:
        """Measure one of JOBS once."""
        self.page.evaluate(PREPARE, {"kind": kind, "name": name, "text": text, "count": count})
        before = self._read_processor()
        clock = self.page.evaluate(
            "() => { const begin = performance.now(); job(); return performance.now() - begin; }"
        )
        return Times(clock, self._read_processor() - before)

    def _read_processor(self) -> float:
        metrics = self.session.send("Performance.getMetrics")["metrics"]
        return 1000 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def measure_python(compute: Callable[[], Any]) -> Times:
    """Measure a call once."""
    clock, processor = time.perf_counter(), time.thread_time()
    with torch.inference_mode():
        compute()
    return Times(1000 * (time.perf_counter() - clock), 1000 * (time.thread_time() - processor))


def print_times(title: str, engine: Callable[[], Times], python: Callable[[], Times], count: int = 1) -> None:
    """Print medians of interleaved repeats, each divided by the number of tokens."""
    measured = [(engine(), python()) for _ in range(REPEATS + 2)][2:]  # the first ones compile
    described = []
    for name, times in (("engine", [pair[0] for pair in measured]), ("Python", [pair[1] for pair in measured])):
        clock = sorted(sample.clock / count for sample in times)
        processor = statistics.median(sample.processor / count for sample in times)
        spread = f"[{clock[0]:.1f}, {clock[-1]:.1f}]"
        described.append(f"{name} {statistics.median(clock):.1f} ms {spread}, of the processor {processor:.1f} ms")
    print(f"{title}: {'; '.join(described)}")


def main() -> None:
    path = find_browser()
    if path is None:
        sys.exit(MISSING)
    torch.set_num_threads(1)
    translator, korean = jumok.load("translator"), jumok.load("korean")
    prompt = korean.require_tokenizer().encode(STORY)
    tokens = torch.tensor([(prompt * 256)[:256]])
    with sync_playwright() as playwright, jumok.Lens(korean) as lens:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        page = EnginePage(browser)
        for name in ("tiny", "translator", "korean"):
            print_times(
                f"open {name}",
                partial(page.measure, "open", name, STORY),
                partial(measure_python, partial(jumok.load, name)),
            )
        print_times(
            "translator: a sentence read, answered, and read again for its maps",
            partial(page.measure, "translate", "translator", SENTENCE),
            partial(
                measure_python, lambda: translator.model(*prepare_input(translator, SENTENCE, literal=True).inputs)
            ),
        )
        print_times(
            f"korean: a token behind {len(prompt) + 1} to {len(prompt) + NEW_TOKENS}",
            partial(page.measure, "write", "korean", STORY, NEW_TOKENS),
            partial(measure_python, partial(generate, korean.model, [prompt], limit=NEW_TOKENS)),
            NEW_TOKENS,
        )
        for count in (32, 256):
            text = tokens[:, :count]
            print_times(
                f"korean: {count} tokens with all logits",
                partial(page.measure, "read", "korean", STORY, count),
                partial(measure_python, partial(korean.model, text)),
            )
            clean = lens.run(text, reusable=True, keep=KEEP_OPTIONS)
            edits = [Ablate(layer=-1, head=0)]
            print_times(
                f"korean: {count} tokens, a head of the last layer ablated",
                partial(page.measure, "edit", "korean", STORY, count),
                partial(measure_python, partial(lens.run, text, edits=edits, reuse=clean, keep=KEEP_OPTIONS)),
            )
        browser.close()


if __name__ == "__main__":
    main()
