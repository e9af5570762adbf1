"""Every recipe from training to saving, through the command line: train, run, look, effect, save.

The input of run, look and effect is the one that the run's own report suggests ("try").
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import soundfile
import torch
from click.testing import CliRunner
from PIL import Image

import jumok
from jumok.cli import cli
from jumok.recipes.recipe import RECIPES
from jumok.recipes.toys import induction as inductions
from toys import skip_plots

SMALL = {"width": 16, "layers": 1, "heads": 2, "hidden": 32}
SMALL_IMAGE = {"image": [8, 8], "patch": [4, 4], **SMALL}
SHORT = {"steps": 2, "batch": 8, "evaluate_every": 2, "save_every": 2, "warmup": 1}
# name: (recipe, data, changes)
CASES: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "numbers": ("numbers", None, {"width": 16, "hidden": 16}),
    "copy": ("copy", None, {**SMALL, "examples": 60, "held_out": 5}),
    "copy, gpt": ("copy", None, {**SMALL, "examples": 60, "held_out": 5, "model": "gpt"}),
    "reverse, lstm": (
        "reverse",
        None,
        {"model": "lstm", "width": 8, "encoder_width": 8, "embedding_width": 4, "examples": 60, "held_out": 5},
    ),
    "sort": ("sort", None, {**SMALL, "digits": 4}),
    "add": ("add", None, {**SMALL, "digits": 1}),
    "induction": ("induction", None, {"width": 16, "hidden": 8, "heads": 2, "length": 32}),
    "text": ("text", "book.txt", {**SMALL, "length": 16}),
    "text-fast": ("text-fast", "book.txt", {**SMALL, "length": 16, "tokens": "learned", "vocabulary": 300}),
    "gpt2": ("gpt2", "book.txt", {**SMALL, "length": 16, "vocabulary": 300}),
    "masked": ("masked", "book.txt", {**SMALL, "length": 24, "vocabulary": 300}),
    "translate": ("translate", "pairs.tsv", {**SMALL, "length": 32, "vocabulary": 320}),
    "translate, lstm": (
        "translate",
        "pairs.tsv",
        {"width": 16, "embedding_width": 16, "vocabulary": 320, "model": "lstm"},
    ),
    "sentiment": ("sentiment", "moods.tsv", {"width": 16, "heads": 2, "hidden": 32, "vocabulary": 300}),
    "caption": ("caption", "images", {**SMALL_IMAGE, "decoder_layers": 1, "vocabulary": 300}),
    "image": ("image", "images", {**SMALL_IMAGE, "model": "vit"}),
    "listen": (
        "listen",
        "recordings",
        {**SMALL, "decoder_layers": 1, "decoder_heads": 2, "decoder_hidden": 32, "mel_bins": 8, "language": "ko"},
    ),
    "reader": ("reader", "questions.jsonl", {**SMALL, "decoder_layers": 1, "length": 32, "vocabulary": 300}),
    "image, swin": (
        "image",
        "images",
        {"image": [8, 8], "patch": [2, 2], "width": 16, "depths": [2], "heads": [2], "window": 2, "model": "swin"},
    ),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file or folder for every recipe that reads data."""
    folder = tmp_path_factory.mktemp("data")
    book = [f"In year {number} the cat sat\non the mat and 고양이 was glad." for number in range(80)]
    (folder / "book.txt").write_text("\n\n".join(book) + "\n", encoding="utf-8")
    pairs = [f"Open file {number}\t파일 {number} 열기" for number in range(80)]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    moods = [f"{word} day {number}\t{word}" for number in range(40) for word in ("good", "bad", "plain")]
    (folder / "moods.tsv").write_text("text\tlabel\n" + "\n".join(moods) + "\n", encoding="utf-8")
    questions = [
        {
            "question": f"Where is {number}?",
            "passages": [f"{number} is in {name}.", f"{number + 1} is in Rome."],
            "answer": name,
        }
        for number in range(40)
        for name in ("Ulm", "Bonn")
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)) + "\n", encoding="utf-8")
    rng, captions = numpy.random.default_rng(1), ["file\tcaption"]
    for kind in ("dark", "light"):
        (folder / "images" / kind).mkdir(parents=True)
        for number in range(40):
            pixels = rng.integers(0, 90, (8, 8, 3)) + (0 if kind == "dark" else 160)
            Image.fromarray(pixels.astype(numpy.uint8)).save(folder / "images" / kind / f"{number}.png")
            captions.append(f"{kind}/{number}.png\ta {kind} picture")
    (folder / "images" / "captions.tsv").write_text("\n".join(captions) + "\n", encoding="utf-8")
    (folder / "recordings").mkdir()
    transcripts = ["file\ttext"]
    for number in range(60):
        pitch, name = ((300, "낮다"), (1500, "높다"))[number % 2]
        tone = 0.3 * numpy.sin(2 * numpy.pi * (pitch + number) * numpy.arange(3200) / 16_000)
        soundfile.write(folder / "recordings" / f"{number}.wav", tone, 16_000)
        transcripts.append(f"{number}.wav\t{name}")
    (folder / "recordings" / "transcripts.tsv").write_text("\n".join(transcripts) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module", autouse=True)
def _few_test_sequences() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inductions, "SEQUENCES_PER_KIND", 4)
        yield


def run_command(*arguments: str) -> str:
    """Run ``jumok`` with these arguments, and return its output."""
    outcome = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def run_json_command(*arguments: str) -> Any:
    return json.loads(run_command(*arguments, "--json"))


def train(case: str, run: Path, data: Path) -> None:
    recipe, source, fields = CASES[case]
    changes = [f"--set={name}={json.dumps(setting)}" for name, setting in {**SHORT, **fields}.items()]
    data_option = [] if source is None else ["--data", str(data / source)]
    with skip_plots():
        run_command("train", recipe, "--out", str(run), *changes, *data_option)


def get_example_input(run: Path) -> str:
    """Return the input that the run's report suggests."""
    example: str = json.loads((run / "report.json").read_text(encoding="utf-8"))["try"]
    return str(run / example) if example in ("example.png", "example.wav") else example


def test_every_recipe_has_a_case() -> None:
    assert {recipe for recipe, _, _ in CASES.values()} == set(RECIPES)


@pytest.mark.parametrize("case", CASES)
def test_recipe_trains_runs_is_explained_and_is_saved(case: str, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(case, run, data)
    example = get_example_input(run)
    answer = run_command("run", str(run), "--json", "--", example)

    # the last layer; in an encoder-decoder its attention is cross-attention
    last_layer = str(run_json_command("look", str(run), example)["heads"][-1]["layer"])
    image = tmp_path / "heads.png"
    report = run_json_command("look", str(run), example, "--png", str(image), "--layer", last_layer)
    assert report["heads"] and all(row["sums"] < 1e-4 for row in report["heads"])
    assert report["tokens"] and all(token["sources"] for token in report["tokens"])
    assert image.stat().st_size > 1000
    assert "\N{REPLACEMENT CHARACTER}" not in json.dumps(report, ensure_ascii=False)

    heads = run_json_command("effect", str(run), example)
    assert heads["rows"] and {row["rank"] for row in heads["rows"]} <= set(range(1, len(heads["rows"]) + 1))
    if "swin" not in case:  # edges inside Swin's windows cannot be ranked
        edges = run_json_command("effect", str(run), example, "--over", "edges", "--verify", "2", "--controls", "2")
        assert edges["rows"] and all(0 < row["weight"] <= 1.0001 for row in edges["rows"])

    copy = str(tmp_path / "copy")
    jumok.save(jumok.load(run), copy)
    assert run_command("run", copy, "--json", "--", example) == answer
    assert run_json_command("effect", copy, example)["rows"] == heads["rows"]


def test_huggingface_format_keeps_the_logits(data: Path, tmp_path: Path) -> None:
    train("text", tmp_path / "run", data)
    loaded = jumok.load(tmp_path / "run")
    jumok.save(loaded, tmp_path / "huggingface", "huggingface")
    tokens = torch.tensor([loaded.tokenizer.encode("In year")])
    reloaded = jumok.load(tmp_path / "huggingface").model
    assert torch.equal(reloaded(tokens).logits, loaded.model(tokens).logits)
