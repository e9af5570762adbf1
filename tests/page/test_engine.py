"""The engine of the page computes what Python computes: 200 random inputs with edits of each model, in Chromium."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from engine_page import PACKAGE, add_model, open_engine_page
from engine_reference import (
    PREDICTED,
    Reference,
    compute_references,
    generate_references,
    read_reference,
    save_small_models,
)
from playwright.sync_api import Browser, Page
from torch import Tensor

import jumok
from jumok.generate.quantize import quantize_rows
from jumok.generate.sampling import Sampling
from jumok.models.gpt import GPTConfig
from jumok.models.transformer import TransformerConfig
from jumok.reporting import choose_language
from jumok.web.model_pack import pack_model

pytestmark = pytest.mark.xdist_group("page")

CASES, GENERATED, NEW_TOKENS = 200, 6, 8  # of each model that comes with the package
LOGITS, WEIGHTS = 1e-4, 1e-5  # largest differences


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """The page of the engine."""
    opened = open_engine_page(browser)
    yield opened
    opened.close()


def run_engine(page: Page, name: str, cases: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Tensor]:
    """Return the engine's answers to the cases of a model, and all numbers that it computed."""
    script = Path(__file__).with_name("engine_cases.js").read_text(encoding="utf-8")
    result = page.evaluate(script, {"name": name, "cases": cases, "predicted": PREDICTED})
    numbers = np.frombuffer(base64.b64decode(result["numbers"]), dtype=np.float32)
    return result["answers"], torch.from_numpy(numbers.copy())


def check_engine(page: Page, name: str, references: list[Reference]) -> None:
    """Compare the engine with what Python computes."""
    answers, numbers = run_engine(page, name, [reference.case for reference in references])
    begin = 0

    def compare(kind: str, expected: Tensor, limit: float) -> Tensor:
        nonlocal begin
        computed = numbers[begin : begin + expected.numel()].view(expected.shape)
        begin += expected.numel()
        difference = float((computed - expected).abs().max())
        assert difference <= limit, (kind, difference, reference.case)
        return computed

    for reference, answer in zip(references, answers, strict=True):
        assert ("error" in answer) == (reference.error is not None), (reference, answer)
        assert answer.get("tokens") == reference.tokens, reference.case
        assert answer.get("target") == reference.target, reference.case
        if "text" in reference.case:  # other errors may name arguments of Python
            assert answer.get("error") == reference.error
        if reference.logits is None:
            continue
        logits = compare("logits", reference.logits, LOGITS)
        assert torch.equal(logits.argmax(-1), reference.logits.argmax(-1)), reference.case
        for weights in reference.weights:
            compare("weights", weights, WEIGHTS)
    assert begin == len(numbers)


@pytest.mark.parametrize("name", ["tiny", "korean", "translator"])
def test_a_model_of_the_package(page: Page, name: str) -> None:
    rng = random.Random(name)
    with jumok.Lens(name) as lens:
        references = compute_references(lens, CASES, rng) + generate_references(lens, GENERATED, NEW_TOKENS, rng)
    refused = sum(reference.error is not None for reference in references)
    assert refused < len(references) / 4
    check_engine(page, name, references)


TEXTS = {
    "tiny": ["the cat sat; the cat", "주목\n", ""],
    "korean": ["옛날 옛적에 토끼가", "지우는 🐰 학교에  갔다.", "가" * 300],
    "translator": ["나는 책을 읽는다", "She went to school!", "그는 우산을 umbrela 샀다", "xyzzy", "", "  "],
}


@pytest.mark.parametrize("language", ["en", "ko"])
def test_texts_are_read_and_answered(page: Page, language: Literal["en", "ko"]) -> None:
    choose_language(language)
    try:
        for name, texts in TEXTS.items():
            references = [read_reference(jumok.load(name), text, language) for text in texts]
            check_engine(page, name, references)
    finally:
        choose_language(None)


#: fields that decide which parameters there are, which the engine sees in the file
FIELDS_OF_PARAMETERS = {
    *("attention_bias", "output_bias", "feedforward_bias", "query_key_norm", "output_norm"),
    *("final_norm", "shared"),
}
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 2.5, "top_k": 6},
    {"top_p": 0.9, "temperature": 3.0},
    {"top_k": 9, "top_p": 0.7},
    {"top_k": 1},
)
DRAW_TOKENS = """async ({ tokens, temperature, top_k: topK, top_p: topP, seeds }) => {
  const model = await openModel("tiny");
  const draw = (seed) => {
    const sampling = { temperature, topK, topP, seed };
    return engine.generate(model, { source: tokens }, { limit: 1, sampling }).next().value.token;
  };
  return Array.from({ length: seeds }, (_, seed) => draw(seed));
}"""


def test_tokens_are_drawn_by_their_probabilities(page: Page) -> None:
    tiny, seeds = jumok.load("tiny"), 300
    tokens = tiny.require_tokenizer().encode("It was ")
    with torch.no_grad():
        logits = tiny.model(torch.tensor([tokens])).logits[:, -1]
    for settings in SETTINGS:
        expected = Sampling(**settings).filter_logits(logits, [tokens])[0].softmax(-1)
        drawn = page.evaluate(DRAW_TOKENS, {"tokens": tokens, "seeds": seeds, **settings})
        shares = torch.bincount(torch.tensor(drawn), minlength=len(expected)) / seeds
        assert not shares[expected == 0].any(), settings
        deviation = (expected * (1 - expected) / seeds).sqrt()
        assert bool(((shares - expected).abs() <= 4 * deviation + 2 / seeds).all()), settings
        assert drawn[:9] == page.evaluate(DRAW_TOKENS, {"tokens": tokens, "seeds": 9, **settings})


def test_every_option_of_the_families(page: Page, tmp_path: Path) -> None:
    rng = random.Random(0)
    for folder in save_small_models(tmp_path):
        with jumok.Lens(jumok.load(folder)) as lens:
            references = compute_references(lens, 18, rng) + generate_references(lens, 2, NEW_TOKENS, rng)
        add_model(page, folder)
        check_engine(page, folder.name, references)


def test_matrices_of_8_bits(page: Page, tmp_path: Path) -> None:
    loaded = jumok.load("translator")
    content = gzip.decompress(base64.b64decode(pack_model(loaded, quantize_rows)))
    head = int.from_bytes(content[:4], "little")
    folder = Path(shutil.copytree(PACKAGE / "checkpoint" / "translator", tmp_path / "rounded"))
    (folder / "model.safetensors").write_bytes(content[4 + head :])
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            if parameter.ndim == 2:
                integers, scales = quantize_rows(parameter)
                parameter.copy_(integers * scales[:, None])
    with jumok.Lens(loaded) as lens:
        references = compute_references(lens, 2, random.Random(0))
    add_model(page, folder)
    check_engine(page, folder.name, references)


def test_the_engine_knows_every_field_of_the_configs() -> None:
    """A field that it does not read would make another model of a file."""
    source = (Path(__file__).parents[2] / "page" / "src" / "engine" / "types.ts").read_text(encoding="utf-8")
    fields = set(re.findall(r"^  (\w+): ", source, re.MULTILINE)) | FIELDS_OF_PARAMETERS | {"pad", "dropout"}
    for config in (GPTConfig, TransformerConfig):
        assert {field.name for field in dataclasses.fields(config)} <= fields
