"""Every family of Jumok in a session: all asks answer, or refuse with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import soundfile
import torch
from page_client import PageClient
from PIL import Image

from jumok.checkpoint import Loaded
from jumok.data.images.preparation import Preparation
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models.registry import get_family
from jumok.web.session import Session, Start
from models.test_models import SMALL

WITHOUT_STREAM = ("rnn_seq2seq", "swin")  # no blocks; layers with other positions
WITHOUT_STEPS = ("rnn_seq2seq",)  # additive scores


def build_start(name: str, folder: Path) -> Start:
    """Return a small model with random parameters, and an input for it."""
    family = get_family(name)
    fields = {**SMALL[name]}
    if "vocabulary" in fields:
        fields["vocabulary"] = 256
    if "encoder" in fields:
        fields["encoder"] = {**fields["encoder"], "vocabulary": 256}
    model = family(family.config_class.from_json(fields)).eval()
    text, preparation = "ab ba", None
    if model.reads == "image":
        assert model.image_size is not None and model.image_channels is not None
        preparation = Preparation(
            model.image_size, mean=(0.5,) * model.image_channels, std=(0.5,) * model.image_channels
        )
        text = str(folder / "noise.png")
        Image.effect_noise((40, 30), 80).save(text)
    speech_tokens = None
    if model.reads == "audio":
        text = str(folder / "noise.wav")
        soundfile.write(text, numpy.random.default_rng(1).normal(0, 0.1, 3200), 16_000)
        speech_tokens = SpeechTokens(start=model.start_token, end=model.end_token)
    if model.reads == "numbers":
        text = "10 20 30"
    if name == "fusion":
        text = "ab? | ba | ab"
    tokenizer = Tokenizer.for_bytes() if model.reads != "numbers" else None
    return Start(Loaded(model, tokenizer, preparation, None, speech_tokens), text)


@pytest.mark.parametrize("name", [name for name in SMALL if name != "captioner"])
def test_all_asks_of_a_family(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    session = Session(build_start(name, tmp_path))
    client = PageClient(session)
    hello = client.ask("hello")
    text = hello["text"] or None
    run: dict[str, Any] = client.ask("run", model=hello["model"], text=text, edits=[])
    layer = run["sites"][-1]["layer"]
    edits = [{"edit": "Ablate", "layer": layer, "head": 0}]
    run = client.ask("run", model=hello["model"], text=text, edits=edits)
    number, sites = run["run"], run["sites"]
    assert len(run["clean"]) == len(run["edited"]) and run["model"]["parameters"] > 0
    for site, description in enumerate(sites):
        end = [min(8, description["queries"]), min(8, description["keys"])]
        weights = client.ask_floats(
            "values", run=number, show="edited", site=site, head=0, rows=[0, end[0]], columns=[0, end[1]]
        )
        assert len(weights) == end[0] * end[1] and (weights >= 0).all()
        client.ask("thumbnails", run=number, show="edited", site=site, size=16)
        tile = {"run": number, "site": site, "head": 0, "level": 0, "row": 0, "column": 0}
        client.ask("tiles", **tile, show="difference")
        steps = {"run": number, "show": "clean", "site": site, "head": 0, "query": 0}
        if name in WITHOUT_STEPS:
            assert client.fail("steps", **steps).reason == "invalid"
        else:
            assert client.ask("steps", **steps)["difference"] < 1e-5
    client.ask("token", run=number, show="clean", sequence="source", position=1)
    for sequence in ("source", "target") if run["target"] else ("source",):
        shown = client.ask("layers", run=number, show="edited", sequence=sequence, position=1)
        assert (not shown["layers"]) == (name in WITHOUT_STREAM) and shown["heads"] > 0
    assert len(client.ask("kinds", run=number)["heads"]) == run["model"]["heads"]
    assert len(client.ask("effect", run=number, over="heads")["rows"]) == run["model"]["heads"]
    code = client.ask("code", run=number, selection={"site": 0, "head": 0, "query": 1, "key": 0})["code"]
    compile(code, "<page>", "exec")
    session.close()
