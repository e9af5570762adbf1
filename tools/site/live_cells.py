"""MkDocs hook: put live cells into the pages: exercises, attentions to change, and the translator of the first screen.

A page says where with a comment, which is invisible elsewhere:

    <!-- live: attention text="I love AI" show="mask steps" -->

Exercises need no comment: each gets a field for its answer. The data of all cells of a page are JSON at its end; the
scripts are built from page/src/site. Without scripts a page shows what its Markdown says.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import torch

import jumok
from jumok.checkpoint import Loaded
from jumok.generate.quantize import quantize_rows
from jumok.lab import exercises
from jumok.lab.exercises import EXERCISES, Exercise, NumberExercise, QuizExercise, WordExercise
from jumok.lab.steps.document_examples import EXAMPLE_SENTENCE, build_example
from jumok.lab.steps.input_steps import draw_projections
from jumok.lab.steps.sentence_attention import embed_words, split_words
from jumok.layers import SinusoidalPositions
from jumok.tasks.labelled_input import prepare_input
from jumok.translation import translate
from jumok.web.model_pack import pack_model

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
MARKER = re.compile(r"^<!-- live: (\w+)(.*?) -->\n", flags=re.MULTILINE)
EXERCISE = re.compile(r"^\*\*(?:Exercise|연습) ([\w-]+)\.\*\*.*?\n(?=\n|\Z)", flags=re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"\n*(?:```.*?\n```|.+?)(?=\n\n|\Z)", flags=re.DOTALL)  # a code block or a paragraph
EXAMPLES = (
    "그녀는 어제 도서관에서 책을 읽었다",
    "나는 매일 학교에 간다",
    "우리는 내일 부산에 갈 거예요",
    "오늘은 날씨가 좋아요",
)
SAVED = ROOT / ".cache" / "site"
WORDS = tomllib.loads(Path(__file__).with_name("theme_texts.toml").read_text(encoding="utf-8"))
WHEEL = f"jumok-{jumok.__version__}-py3-none-any.whl"
DIGITS = 4  # of the numbers in a cell


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the comments by cells, and put a field for the answer below each exercise."""
    return add_cells(markdown, "ko" if page.url.startswith("ko/") else "en")


def add_cells(markdown: str, language: str) -> str:
    """Return the Markdown of a page with its cells, and their data at its end."""
    cells: dict[str, Any] = {}
    markdown = replace_markers(markdown, cells, language)
    markdown = EXERCISE.sub(lambda match: match.group() + place_exercise(match.group(1), cells, language), markdown)
    markdown = replace_quizzes(markdown, cells, language)
    if not cells:
        return markdown
    data = {"cells": cells, "texts": select_texts(language)}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return f'{markdown}\n\n<script type="application/json" id="site-cells">{text}</script>\n'


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write the translator as a script, which loads from disk too; copy the saved pages and the wheel."""
    pack = pack_model(load_translator(), quantize_rows)
    script = f'globalThis.jumokLive = {{ ...globalThis.jumokLive, pack: "{pack}" }}\n'
    (Path(config.site_dir) / "assets" / "translator.js").write_text(script, encoding="utf-8")
    for page in SAVED.glob("*.html"):
        (Path(config.site_dir) / "saved").mkdir(exist_ok=True)
        shutil.copy(page, Path(config.site_dir) / "saved")
    if (ROOT / "dist" / WHEEL).exists():
        shutil.copy(ROOT / "dist" / WHEEL, config.site_dir)


def replace_markers(markdown: str, cells: dict[str, Any], language: str) -> str:
    """Replace each comment by its cell. What stands behind ``translator`` and ``install`` is for other readers, and the
    picture behind ``saved`` gets a link to the page that it shows.
    """
    position, parts = 0, []
    for match in MARKER.finditer(markdown):
        parts.append(markdown[position : match.start()])
        position = match.end()
        name, settings = match.group(1), dict(word.split("=", 1) for word in shlex.split(match.group(2)))
        block = ""
        if name in ("translator", "install", "saved"):
            following = BLOCK.match(markdown, position)
            assert following is not None, f"nothing follows the comment {match.group()!r}"
            block, position = following.group().strip(), following.end()
        if name == "install":
            command = f'<pre><code data-wheel="{WHEEL}">pip install {WHEEL}</code></pre>'
            parts.append(f'<div class="highlight install">{command}</div>\n')
            continue
        if name == "saved":
            lazy = "{ loading=lazy }" if block.startswith("![") else ""
            parts.append(f"{block}{lazy}\n\n{link_saved_page(settings['name'], language)}\n")
            continue
        key = f"{name}-{len(cells)}"
        cells[key] = {"kind": name, "data": BUILDERS[name](**settings)}
        parts.append(place_cell(key, block))
    return "".join([*parts, markdown[position:]])


def link_saved_page(name: str, language: str) -> str:
    """Return a link of the home page to a saved page; nothing if ``saved_pages.py`` has not written it."""
    if not (SAVED / f"{name}.html").exists():
        return ""
    prefix = "../" if language == "ko" else ""
    state = quote(json.dumps({"language": language}, separators=(",", ":")))
    link = f"{prefix}saved/{name}.html#state={state}"
    return f'<p><a class="open" href="{link}">{WORDS[language]["saved"][name]}</a></p>\n'


def place_cell(key: str, fallback: str = "") -> str:
    """Return the element of a cell, with what it shows without scripts."""
    hidden = f'<noscript markdown="1">\n\n{fallback}\n\n</noscript>\n' if fallback else ""
    return f'<div class="live" data-cell="{key}" markdown="1">\n{hidden}</div>\n'


def build_attention(
    text: str = EXAMPLE_SENTENCE,
    example: str = "",
    saved: str = "",
    scores: str = "",
    width: str = "4",
    show: str = "",
    causal: str = "",
) -> dict[str, Any]:
    """Return the data of an attention: the scores of an example of ``jumok steps``, or words with projections.

    Args:
        example: The example with given scores; without it, the words of ``text`` are embedded as ``jumok steps`` does.
        saved: The name of a file with words and scores, as ``pronoun_head.py`` writes it.
        scores: The scores of one query, in place of an example.
        show: What can be changed, of "mask draw temperature heads positions steps".
        causal: Any text: the mask is causal at the beginning.
    """
    shared = {"controls": show.split(), "isCausal": bool(causal)}
    if saved:
        head = read_json(saved)
        return {**shared, "queries": head["words"], "keys": head["words"], "scores": head["scores"]}
    if scores:
        numbers = [float(number) for number in scores.split()]
        keys = [f"k{key}" for key in range(len(numbers))]
        return {**shared, "queries": ["q0"], "keys": keys, "scores": [numbers]}
    if example:
        step = build_example(example).steps[0]
        return {**shared, "queries": list(step.rows), "keys": list(step.columns), "scores": write_matrix(step.matrix)}
    words, size = split_words(text), int(width)
    to_query, to_key, _ = draw_projections(3, size, size, 0)
    return {
        **shared,
        "queries": words,
        "keys": words,
        "vectors": write_matrix(embed_words(words, size, 0)[0]),
        "positions": write_matrix(SinusoidalPositions(size)(range(len(words)))),
        "toQuery": write_matrix(to_query),
        "toKey": write_matrix(to_key),
    }


def write_matrix(matrix: Any) -> list[list[float]]:
    """Return the numbers of a matrix, rounded."""
    return [[round(number, DIGITS) for number in row] for row in matrix.tolist()]


@cache
def load_translator() -> Loaded:
    """Return the translator as the page computes it, with matrices of 8 bits: 1.6 MB instead of 3.0."""
    translator = jumok.load("translator")
    with torch.no_grad():
        for parameter in translator.model.parameters():
            if parameter.ndim == 2:
                integers, scales = quantize_rows(parameter)
                parameter.copy_(integers * scales[:, None])
    return translator


@cache
def build_translator() -> dict[str, Any]:
    """Return the examples, and the first translation with its cross-attention, so that a page shows it at once."""
    translator = load_translator()
    labelled = prepare_input(translator, EXAMPLES[0])
    with torch.no_grad(), jumok.Lens(translator) as lens:
        capture = lens.run(*labelled.inputs)
        logits = translator.model(*labelled.inputs).logits[0].softmax(-1)
    tokens = labelled.inputs[1].flatten().tolist()
    written = [*tokens[1:], translator.model.end_token]
    probabilities = [round(float(row[token]), 5) for row, token in zip(logits, written, strict=True)]
    layers = [name for name in capture.sites.names if name.endswith(".cross")]
    first = {
        "source": ["" if token == "</s>" else token for token in labelled.source],
        "target": [*labelled.target[1:], ""],
        "probabilities": probabilities,
        "maps": [[write_matrix(weights) for weights in capture.weights(layer)] for layer in layers],
    }
    return {"examples": EXAMPLES, "first": first}


def build_speech() -> dict[str, Any]:
    """Return the sentence that ``spoken_sentence.py`` wrote."""
    return read_json("spoken_sentence")


def read_json(name: str) -> dict[str, Any]:
    """Return a file that a program of this folder wrote."""
    content: dict[str, Any] = json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
    return content


BUILDERS: dict[str, Callable[..., dict[str, Any]]] = {
    "attention": build_attention,
    "speech": build_speech,
    "translator": build_translator,
}


def place_exercise(name: str, cells: dict[str, Any], language: str) -> str:
    """Return the field below an exercise; nothing if the answer is a program, which the text explains."""
    exercise = EXERCISES[name]
    if not isinstance(exercise, NumberExercise | WordExercise):
        return ""
    cells[name] = {"kind": "exercise", "data": describe_exercise(exercise, language)}
    return "\n" + place_cell(name)


def replace_quizzes(markdown: str, cells: dict[str, Any], language: str) -> str:
    """Put each quiz into a cell; its list of questions is what the cell shows without scripts."""
    for name, exercise in EXERCISES.items():
        question = exercise.question.select(language)
        if isinstance(exercise, QuizExercise) and f"\n\n{question}\n\n" in markdown:
            cells[name] = {"kind": "exercise", "data": describe_exercise(exercise, language)}
            markdown = markdown.replace(f"\n\n{question}\n\n", f"\n\n{place_cell(name, question)}\n\n")
    return markdown


@cache
def describe_exercise(exercise: Exercise, language: str) -> dict[str, Any]:
    """Return the right answer, the known mistakes and what to say of them, as page/src/site/answers.ts reads them."""
    shared: dict[str, Any] = {"name": exercise.name}
    if isinstance(exercise, QuizExercise):
        questions = read_toml(exercise.name.partition("-")[0])[exercise.name]["questions"]
        parts = ("question", "options", "reasons")
        texts = [{part: entry[part][language] for part in parts} | {"right": entry["right"]} for entry in questions]
        return {**shared, "kind": "quiz", "questions": texts}
    if isinstance(exercise, NumberExercise):
        shared |= {"kind": "numbers", "tolerance": exercise.tolerance}
    else:
        shared["kind"] = "words"
    reasons = [exercise.reason, *(mistake.reason for mistake in exercise.mistakes)]
    answers = compute_answers(exercise.name)
    right, *mistakes = (
        {"answer": answer, "reason": reason.select(language)} for answer, reason in zip(answers, reasons, strict=True)
    )
    return {**shared, **right, "mistakes": mistakes}


@cache
def read_toml(name: str) -> dict[str, Any]:
    """Return a file beside the exercises."""
    return tomllib.loads((Path(exercises.__file__).with_name(f"{name}.toml")).read_text(encoding="utf-8"))


@cache
def compute_answers(name: str) -> list[list[Any]]:
    """Return the right answer and the known mistakes: numbers as they are, words as an answer is compared with them."""
    exercise = EXERCISES[name]
    computed = [exercise.compute(), *(mistake.compute() for mistake in exercise.mistakes)]
    if isinstance(exercise, NumberExercise):
        return [list(numbers) for numbers in computed]
    return [sorted({word.casefold() for word in spellings}) for spellings in computed]


def select_texts(language: str) -> dict[str, str]:
    """Return what is said of answers that are neither right nor a known mistake, or cannot be read."""
    names = ("count", "too_large", "too_small", "position", "word", "quiz_result")
    errors = {
        "not_a_number": "'PART' is not a number; write numbers such as 0.5, separated by spaces",
        "not_finite": "'PART' is not a finite number",
        "no_numbers": "the answer is empty; write numbers such as 0.5, separated by spaces",
        "no_word": "the answer is empty; write one word",
    }
    entries = read_toml("exercise")
    texts = {name: entries[name][language] for name in names}
    return texts | {name: translate(text, language).replace("'PART'", "{part!r}") for name, text in errors.items()}
