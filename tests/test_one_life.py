"""One life for every recipe: train, run, look, effect, save; the same words, whatever the model is. Through the command
line, which a person would use, with what the run itself says that one can ask it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import jumok
from jumok.cli import cli
from jumok.recipes.recipe import RECIPES
from jumok.recipes.toys import induction as inductions

SMALL = {"width": 16, "layers": 1, "heads": 2, "hidden": 32}
PICTURE = {"image": [8, 8], "patch": [4, 4], "width": 16, "layers": 1, "heads": 2, "hidden": 32}
LIVES: dict[str, tuple[str, str | None, dict[str, Any]]] = {
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
    "masked": ("masked", "book.txt", {**SMALL, "length": 24, "vocabulary": 300}),
    "translate": ("translate", "pairs.tsv", {**SMALL, "length": 32, "vocabulary": 320}),
    "translate, lstm": (
        "translate",
        "pairs.tsv",
        {"width": 16, "embedding_width": 16, "vocabulary": 320, "model": "lstm"},
    ),
    "sentiment": ("sentiment", "moods.tsv", {"width": 16, "heads": 2, "hidden": 32, "vocabulary": 300}),
    "caption": ("caption", "pictures", {**PICTURE, "decoder_layers": 1, "vocabulary": 300}),
    "image": ("image", "pictures", {**PICTURE, "model": "vit"}),
    "image, swin": (
        "image",
        "pictures",
        {"image": [8, 8], "patch": [2, 2], "width": 16, "depths": [2], "heads": [2], "window": 2, "model": "swin"},
    ),
}
SHORT = {"steps": 2, "batch": 8, "evaluate_every": 2, "save_every": 2, "warmup": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data")
    book = [f"In year {number} the cat sat\non the mat and 고양이 was glad." for number in range(80)]
    (place / "book.txt").write_text("\n\n".join(book) + "\n", encoding="utf-8")
    pairs = [f"Open file {number}\t파일 {number} 열기" for number in range(80)]
    (place / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    moods = [f"{word} day {number}\t{word}" for number in range(40) for word in ("good", "bad", "plain")]
    (place / "moods.tsv").write_text("text\tlabel\n" + "\n".join(moods) + "\n", encoding="utf-8")
    draw, lines = numpy.random.default_rng(1), ["file\tcaption"]
    for kind in ("dark", "light"):
        (place / "pictures" / kind).mkdir(parents=True)
        for number in range(40):
            pixels = draw.integers(0, 90, (8, 8, 3)) + (0 if kind == "dark" else 160)
            Image.fromarray(pixels.astype(numpy.uint8)).save(place / "pictures" / kind / f"{number}.png")
            lines.append(f"{kind}/{number}.png\ta {kind} picture")
    (place / "pictures" / "captions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return place


def said(*words: str) -> str:
    done = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_recipe_has_a_life() -> None:
    assert {recipe for recipe, _, _ in LIVES.values()} == set(RECIPES)


@pytest.mark.parametrize("life", LIVES)
def test_one_life(life: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductions, "SEQUENCES_PER_KIND", 4)
    recipe, source, fields = LIVES[life]
    run, copy = str(tmp_path / "run"), tmp_path / "copy"
    changes = [f"--set={name}={json.dumps(value)}" for name, value in {**SHORT, **fields}.items()]
    said("train", recipe, "--out", run, *changes, *([] if source is None else ["--data", str(data / source)]))
    given = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))["try"]
    given = str(tmp_path / "run" / given) if given == "example.png" else given

    answer = said("run", run, "--json", "--", given)
    looked = json.loads(
        said("look", run, given, "--json", "--png", str(tmp_path / "x.png"), "--layer", layer(run, given))
    )
    assert looked["heads"] and all(row["sums"] < 1e-4 for row in looked["heads"])
    assert looked["tokens"] and all(one["sources"] for one in looked["tokens"])
    assert (tmp_path / "x.png").stat().st_size > 1000
    assert "\N{REPLACEMENT CHARACTER}" not in json.dumps(looked, ensure_ascii=False)
    heads = json.loads(said("effect", run, given, "--json"))
    assert heads["rows"] and {row["rank"] for row in heads["rows"]} <= set(range(1, len(heads["rows"]) + 1))
    if "swin" not in life:  # inside its windows, edges are cut by hand
        edges = json.loads(said("effect", run, given, "--over", "edges", "--verify", "2", "--controls", "2", "--json"))
        assert edges["rows"] and all(0 < row["weight"] <= 1.0001 for row in edges["rows"])

    jumok.save(jumok.load(run), copy)
    assert said("run", str(copy), "--json", "--", given) == answer
    again = json.loads(said("effect", str(copy), given, "--json"))
    assert again["rows"] == heads["rows"]


def layer(run: str, given: str) -> str:
    """The last attention, which for an encoder-decoder looks across."""
    heads = json.loads(said("look", run, given, "--json"))["heads"]
    return str(heads[-1]["layer"])


def test_huggingface_takes_what_it_knows(data: Path, tmp_path: Path) -> None:
    """And logits stay the same on the way there and back."""
    run = str(tmp_path / "run")
    fields = {**SHORT, **LIVES["text"][2]}
    changes = [f"--set={name}={json.dumps(value)}" for name, value in fields.items()]
    said("train", "text", "--out", run, *changes, "--data", str(data / "book.txt"))
    loaded = jumok.load(run)
    jumok.save(loaded, tmp_path / "there", "huggingface")
    tokens = torch.tensor([loaded.tokenizer.encode("In year")])
    back = jumok.load(tmp_path / "there").model
    assert torch.equal(back(tokens).logits, loaded.model(tokens).logits)
