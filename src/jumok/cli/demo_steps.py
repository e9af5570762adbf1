"""The computations of ``jumok demo``; ``demo.py`` prints their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from jumok import draw
from jumok.bilingual_text import Text
from jumok.checkpoint import Loaded
from jumok.data.datasets.korean.sentences import make_sentence_pairs
from jumok.lens import Lens
from jumok.lens.edits.edit_base import Edit
from jumok.lens.effects.effect_table import EffectFigure
from jumok.lens.effects.measure import effect
from jumok.recipes.training_run import train
from jumok.tasks.labelled_input import prepare_input
from jumok.web.saved_file import save_html
from jumok.web.session import Start

if TYPE_CHECKING:
    from jumok.lens.effects.effect_table import Effects
    from jumok.training.displays import ProgressDisplay

# About a minute on two cores; "quick" takes seconds and writes nonsense.
SENTENCE_COUNT = 10_000
GPT_FIELDS: dict[str, Any] = {
    "width": 96, "heads": 4, "hidden": 384, "layers": 2, "length": 96, "batch": 24, "evaluated": 20_000,
}  # fmt: skip
STEPS = 1000
QUICK_SENTENCE_COUNT = 300
QUICK_FIELDS: dict[str, Any] = {
    "width": 16, "heads": 2, "hidden": 32, "layers": 2, "length": 96, "batch": 4, "evaluated": 1000,
}  # fmt: skip
QUICK_STEPS = 20
LINE_LIMIT = 60  # letters


@dataclass(frozen=True)
class CrossAttention:
    """Where the translator looks.

    Attributes:
        written: The tokens that are written, one for each row.
        read: The tokens that are read, one for each column.
        weights: The mean weights of its heads, ``[row, column]``.
        page: The HTML file that shows all heads.
    """

    site: str
    written: list[str]
    read: list[str]
    weights: Tensor
    heads: int
    picture: str
    page: str


@dataclass(frozen=True)
class TrainedLine:
    """What the trained GPT writes, and how.

    Attributes:
        loss: Its loss on held-out text.
        keys: What the last letter attends to with the most important head: position, letter, weight.
        effects: The effect of each head on the mean log-probability of the letters of the line.
        line_without: The line that it writes without the most important head.
    """

    folder: str
    parameters: int
    loss: float
    line: str
    keys: list[tuple[int, str, float]]
    effects: Effects
    line_without: str
    pictures: list[str]


def capture_cross_attention(translator: Loaded, sentence: str, out: Path, language: str) -> CrossAttention:
    """Translate a sentence, record the last cross-attention, draw it, and write the page that shows all heads."""
    labelled = prepare_input(translator, sentence)
    with Lens(translator) as lens:
        capture = lens.run(*labelled.inputs)
    site = next(name for name in reversed(capture.sites.names) if name.endswith("cross"))
    weights = capture.mean_weights(site)
    # a row of the decoder predicts the token after the one that it reads
    written, read = [*labelled.target[1:], labelled.source[-1]], labelled.source
    title = f"{sentence} → {labelled.answer}"
    caption = Text(
        f"{site}, mean of {capture.heads(site)} heads; rows are written, columns are read",
        f"{site}, 헤드 {capture.heads(site)}개의 평균. 행은 쓴 토큰, 열은 읽은 토큰",
    ).select(language)
    names = draw.AXIS_NAMES[language]
    path = out / "translator.png"
    picture = draw.save_heat_map(path, weights, written, read, title=title, caption=caption, axis_names=names)
    # by name, so that the Python code that the page offers runs elsewhere too
    start = Start("translator", sentence, language="ko" if language == "ko" else "en")
    page = save_html(out / "attention.html", start, layer=site)
    return CrossAttention(site, written, read, weights, capture.heads(site), str(picture), str(page))


def write_training_text(language: str, out: Path, *, quick: bool) -> tuple[Path, int]:
    """Write the sentences that the GPT reads, one per line; return the file and the number of sentences."""
    pairs = make_sentence_pairs(QUICK_SENTENCE_COUNT if quick else SENTENCE_COUNT, level="simple")
    path = out / f"sentences-{language}.txt"
    lines = (pair.english if language == "en" else pair.korean for pair in pairs)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path, len(pairs)


def train_and_ablate(
    text: Path, prompt: str, out: Path, display: ProgressDisplay | None, *, quick: bool
) -> TrainedLine:
    """Train a GPT, let it write a line, and measure which of its heads matter for that line.

    Args:
        display: Shows the progress of the training; None = a bar in a terminal, plain lines elsewhere.
    """
    fields, steps = (QUICK_FIELDS, QUICK_STEPS) if quick else (GPT_FIELDS, STEPS)
    folder = _find_free_folder(out)
    outcome = train("text", data=text, out=folder, steps=steps, display=display, **fields)
    gpt = outcome.load()

    with Lens(gpt) as lens:
        line = _write_line(lens, prompt)
        capture = lens.run(line)
        effects = effect(gpt, line, metric=_create_line_metric(gpt, line))
        strongest = effects[0]
        line_without = _write_line(lens, prompt, [strongest.edit])
    row = capture.row(strongest.layer, strongest.head, len(line) - 1)
    keys = [(int(key), line[int(key)], float(row[key])) for key in row.topk(min(3, len(line))).indices]
    pictures = [
        str(capture.plot().save(out / "gpt-heads.png")),
        str(EffectFigure(effects, f"log-probability per letter: {effects.clean:.2f}").save(out / "gpt-effects.png")),
    ]
    return TrainedLine(
        str(folder), gpt.model.parameter_count, outcome.report["loss"], line, keys, effects, line_without, pictures
    )


def _find_free_folder(out: Path) -> Path:
    number = 1
    while (out / f"gpt-{number}").exists():
        number += 1
    return out / f"gpt-{number}"


def _write_line(lens: Lens, prompt: str, edits: list[Edit] | None = None) -> str:
    """Return the prompt with the most probable letters after it, up to the end of the line."""
    text = lens.generate(prompt, edits=edits or [], limit=LINE_LIMIT).text or ""
    return (prompt + text).split("\n")[0].rstrip()


def _create_line_metric(gpt: Loaded, line: str) -> Callable[[Tensor], Tensor]:
    """Return a metric: the mean log-probability of the letters of a line, each from the letters before it."""
    tokens = torch.tensor(gpt.require_tokenizer().encode(line))

    def log_probability_per_letter(logits: Tensor) -> Tensor:
        return logits[:-1].log_softmax(-1).gather(1, tokens[1:, None]).mean()

    return log_probability_per_letter
