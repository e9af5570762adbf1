"""Train the GPT of a person's file for a minute, draw the losses of all steps, and turn it into a model of Jumok."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from jumok.checkpoint import save
from jumok.checkpoint.manifest import MANIFEST_FILE
from jumok.data.datasets.korean.sentences import make_sentence_pairs
from jumok.data.datasets.text_corpora import read_shakespeare
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.files import write_atomically
from jumok.models import GPT, GPTConfig
from jumok.reporting import Progress

from .exercise import CHILD, describe_failure
from .gpt_steps import FEED_FORWARD, TEXTS

SIZES = {"width": 64, "heads": 4, "layers": 4, "context": 64}
SETTINGS = {"steps": 1_500, "batch": 16, "learning_rate": 2e-3, "evaluations": 20}
SENTENCES, CHARACTERS = 20_000, 500_000
Curves = dict[str, list[tuple[float, float]]]  # pairs of step and loss, by exercise


@dataclass(frozen=True)
class TrainedFile:
    """A person's GPT after its training.

    Attributes:
        losses: The last held-out loss of every exercise that was trained on this text so far, in nats per character.
        picture: The losses of all steps that were trained so far on this text.
        folder: The model as a folder of Jumok, from step 7 on; None before.
    """

    losses: dict[str, float]
    picture: Path
    folder: Path | None


def train_file(path: Path, step: int, text: str, language: str, progress: Progress | None = None) -> TrainedFile:
    """Train the class ``GPT`` of a file on a text, by characters, and write the losses, a picture and the model."""
    training, held_out = read_texts(text)
    tokenizer = Tokenizer.for_characters(training + held_out)
    sizes = {"vocabulary": tokenizer.vocabulary, **SIZES}
    with tempfile.TemporaryDirectory() as folder:
        parameters_file = Path(folder) / "parameters.safetensors"
        request = {
            "kind": "train",
            "file": str(path.resolve()),
            "sizes": sizes,
            "parameters_file": str(parameters_file),
            "training": tokenizer.encode(training, special=False),
            "held_out": tokenizer.encode(held_out, special=False),
            **SETTINGS,
        }
        outcome = _run_training(request, progress)
        if "error" in outcome:
            raise ArgumentError(f"{path.name} failed: {describe_failure(outcome).english}")
        model_folder = None
        if step >= FEED_FORWARD:
            model = convert_parameters(load_file(parameters_file), sizes)
            model_folder = path.with_name(f"{path.stem}-{text}")
            if (model_folder / MANIFEST_FILE).exists():  # of an earlier training
                shutil.rmtree(model_folder)
            save(model, model_folder, tokenizer=tokenizer)
    curves = _store_curve(path, step, text, outcome["losses"])
    picture = draw_curves(curves, text, language, path.with_name(f"{path.stem}-{text}.png"))
    return TrainedFile({name: curve[-1][1] for name, curve in curves.items()}, picture, model_folder)


def read_texts(text: str) -> tuple[str, str]:
    """Return the text to train on and the held-out text."""
    if text == "shakespeare":
        return "".join(read_shakespeare("train"))[:CHARACTERS], "".join(read_shakespeare("held-out"))[:CHARACTERS]
    training = make_sentence_pairs(SENTENCES, "train", level="simple")
    held_out = make_sentence_pairs(SENTENCES // 10, "held-out", level="simple")
    return "\n".join(pair.korean for pair in training), "\n".join(pair.korean for pair in held_out)


def convert_parameters(parameters: Mapping[str, Tensor], sizes: Mapping[str, int]) -> GPT:
    """Return a GPT of Jumok with the parameters of a person's GPT of step 7 or 8."""
    config = GPTConfig(
        vocabulary=sizes["vocabulary"],
        length=sizes["context"],
        width=sizes["width"],
        layers=sizes["layers"],
        heads=sizes["heads"],
        hidden=4 * sizes["width"],
        activation="gelu",
        attention_bias=False,
        tied=False,
    )
    converted = {"positions.table.weight": parameters["positions.weight"]}
    for name, tensor in parameters.items():
        if ".heads." not in name and name != "positions.weight":
            for old, new in (("feed_forward.0", "feedforward.inner"), ("feed_forward.2", "feedforward.outer")):
                name = name.replace(old, new)
            converted[name.replace("feed_forward_norm", "feedforward_norm")] = tensor
    for block in range(sizes["layers"]):
        heads = f"blocks.{block}.attention.heads"
        converted[f"blocks.{block}.attention.projection.joined.weight"] = torch.cat(
            [
                parameters[f"{heads}.{head}.{part}.weight"]
                for part in ("query", "key", "value")
                for head in range(sizes["heads"])
            ]
        )
    model = GPT(config)
    model.load_state_dict(converted)
    return model.eval()


def draw_curves(curves: Curves, text: str, language: str, target: Path) -> Path:
    """Draw the losses of the exercises over the steps of the training."""
    names, title = TEXTS.select("steps", language), TEXTS(f"texts.{text}").select(language)
    labels = TEXTS.select("curve", language, text=title)
    series = {names[name]: curve for name, curve in curves.items()}
    return save_line_plot(series, target, title=labels["title"], across=labels["across"], vertical=labels["vertical"])


def _run_training(request: Mapping[str, Any], progress: Progress | None) -> dict[str, Any]:
    with subprocess.Popen(
        [sys.executable, str(CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(json.dumps(request))
        process.stdin.close()
        last_line = ""
        for line in process.stderr:
            if line.startswith('{"step"'):
                if progress is not None:
                    progress(json.loads(line)["step"], request["steps"])
            else:
                last_line = line.strip()
        outcome = process.stdout.read()
    result: dict[str, Any] = json.loads(outcome) if outcome else {"error": last_line or "it ended without a result"}
    return result


def _store_curve(path: Path, step: int, text: str, losses: list[list[float]]) -> Curves:
    """Add the losses to those of the other steps, which are stored beside the file, and return all of them."""
    stored = path.with_name(f"{path.stem}-losses.json")
    curves = json.loads(stored.read_text("utf-8")) if stored.exists() else {}
    curves.setdefault(text, {})[f"gpt-{step}"] = losses
    write_atomically(stored, json.dumps(curves))
    return {name: [(x, y) for x, y in curves[text][name]] for name in sorted(curves[text])}
