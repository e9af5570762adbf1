"""Models whose embedding has more rows than the tokenizer has tokens: the extra ids are shown as <id N>."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import jumok
from jumok.cli import cli
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models import GPT, BERTConfig, GPTConfig
from jumok.models.bert import BERT
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.tasks.labelled_input import prepare_input

TOKENIZER = Tokenizer.train(["the cat sat on the mat [MASK]"] * 9, 270, {"mask": "[MASK]", "pad": "[PAD]"})
EXTRA = TOKENIZER.vocabulary + 2  # an id that the tokenizer does not know
SIZES = {"vocabulary": TOKENIZER.vocabulary + 5, "length": 40, "width": 12, "layers": 1, "heads": 2, "hidden": 16}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a GPT, a translator and a BERT that always answer with the extra id."""
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    gpt = GPT(GPTConfig.from_json({**SIZES, "tied": False}))
    translator = Transformer(TransformerConfig.from_json({**SIZES, "output_bias": True, "end": 1}))
    bert = BERT(BERTConfig.from_json({**SIZES, "head": "mlm"}))
    with torch.no_grad():
        gpt.norm.weight.zero_()
        gpt.norm.bias.fill_(1.0)
        assert gpt.output is not None and translator.output_bias is not None
        gpt.output.weight[EXTRA] = 5.0
        translator.output_bias[EXTRA] = 99.0
        bert.head.bias[EXTRA] = 99.0
    for name, model in (("gpt", gpt), ("translator", translator), ("bert", bert)):
        jumok.save(model, root / name, tokenizer=TOKENIZER)
    return root


def jumok_command(*arguments: str) -> str:
    outcome = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_run_writes_the_number_of_an_unknown_id(folders: Path) -> None:
    for name in ("gpt", "translator"):
        assert jumok.run(folders / name, "the cat", limit=3) == f"<id {EXTRA}>" * 3
        assert jumok.run(folders / name, "the cat", limit=3, beams=2).startswith(f"<id {EXTRA}>")
    assert jumok_command("run", str(folders / "gpt"), "the cat", "--limit", "2") == f"<id {EXTRA}>" * 2 + "\n"
    filled = jumok.run(folders / "bert", "the [MASK] sat")
    assert filled[0][0]["token"] == f"<id {EXTRA}>"


def test_inputs_of_a_lens_are_labelled_with_the_number(folders: Path) -> None:
    loaded = jumok.load(folders / "translator")
    labelled = prepare_input(loaded, "the cat", limit=2)
    assert labelled.target == ["<start>", f"<id {EXTRA}>", f"<id {EXTRA}>"]
    with jumok.Lens(jumok.load(folders / "gpt")) as lens:
        capture = lens.run(torch.tensor([[1, EXTRA, 5]]))
    assert capture.labels is not None and capture.labels[1] == f"<id {EXTRA}>"


@pytest.mark.parametrize("name", ["gpt", "translator", "bert"])
def test_look_and_effect_show_the_number(folders: Path, name: str) -> None:
    text = "the [MASK] sat" if name == "bert" else "the cat sat"
    for command in ("look", "effect"):
        shown = jumok_command(command, str(folders / name), text)
        document = json.loads(jumok_command(command, str(folders / name), text, "--json"))
        if name == "translator" or command == "effect":
            assert f"<id {EXTRA}>" in shown
        if name == "translator":
            assert document["target"][1] == f"<id {EXTRA}>"
