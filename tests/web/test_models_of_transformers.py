"""Models of transformers in a session: compared with the attentions and logits that they return themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from page_client import PageClient

from jumok import tap
from jumok.checkpoint.transformers_folder import LoadedTransformers
from jumok.data.tokenizers.transformers_tokenizer import open_tokenizer
from jumok.tasks.labelled_input import prepare_input
from jumok.web.session import Session, Start
from transformers_folders import build_model, build_tokenizer, write_folder

TEXT = "the cat sat on the mat"


def read_map(client: PageClient, run: dict[str, Any], site: int, head: int) -> numpy.ndarray:
    shape = run["sites"][site]["queries"], run["sites"][site]["keys"]
    numbers = client.ask_floats(
        "values", run=run["run"], show="clean", site=site, head=head, rows=[0, shape[0]], columns=[0, shape[1]]
    )
    return numbers.reshape(shape)


@pytest.mark.parametrize("name", ["opt", "gpt_neox", "gemma"])
def test_maps_and_predictions_are_those_of_the_model(name) -> None:
    model, tokenizer = build_model(name), build_tokenizer()
    session = Session(Start(model, TEXT, tokenizer=tokenizer))
    client = PageClient(session)
    run = client.ask("run", model=type(model).__name__, text=TEXT, edits=[])
    shown = read_map(client, run, 1, 2)
    session.close()

    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**tokenizer(TEXT, return_tensors="pt"), output_attentions=True)
    numpy.testing.assert_allclose(shown, output.attentions[1][0, 2].numpy(), atol=1e-5)
    best = output.logits[0, -1].softmax(-1).topk(5)
    candidates = run["clean"][-1]["candidates"]
    assert [candidate["id"] for candidate in candidates] == best.indices.tolist()
    assert [candidate["probability"] for candidate in candidates] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert run["model"]["is_editable"] and run["model"]["has_tokenizer"]


def test_encoder_decoder(tmp_path) -> None:
    folder = write_folder(tmp_path / "bart", "bart")
    session = Session(Start(str(folder), TEXT))
    client = PageClient(session)
    run = client.ask("run", model=str(folder), text=TEXT, edits=[], generate=5)
    cross = next(index for index, site in enumerate(run["sites"]) if "cross" in site["stack_title"])
    shown = read_map(client, run, cross, 3)
    session.close()
    assert shown.shape == (len(run["target"]), len(run["source"])) and run["generated"] == 1
    numpy.testing.assert_allclose(shown.sum(-1), 1, atol=1e-5)


def test_model_that_returns_only_maps(tmp_path) -> None:
    folder = write_folder(tmp_path / "reformer", "reformer")
    session = Session(Start(str(folder), TEXT))
    client = PageClient(session)
    try:
        run = client.ask("run", model=str(folder), text=TEXT, edits=[])
        assert not run["model"]["is_editable"] and run["model"]["reason"]
        stored = read_map(client, run, 0, 1)
        tile = {"run": run["run"], "show": "clean", "site": 0, "head": 1, "level": 0, "row": 0, "column": 0}
        client.ask("tiles", **tile, skip_first=True)
        numpy.testing.assert_array_equal(read_map(client, run, 0, 1), stored)  # the table itself is not changed
        edit = {"edit": "Ablate", "layer": 0, "head": 0}
        assert client.fail("run", model=str(folder), text=TEXT, edits=[edit]).reason == "invalid"
        failure = client.fail("steps", run=run["run"], show="clean", site=0, head=0, query=1)
        assert failure.reason == "invalid" and "returned these maps itself" in str(failure)
    finally:
        session.close()


def test_model_is_as_before_between_asks() -> None:
    model = build_model("opt").train()
    implementation = model.config._attn_implementation
    session = Session(Start(model, TEXT, tokenizer=build_tokenizer()))
    client = PageClient(session)
    for _ in range(5):
        run = client.ask("run", model="OPTForCausalLM", text=TEXT, edits=[{"edit": "Ablate", "layer": 0, "head": 1}])
        client.ask("kinds", run=run["run"])
        client.ask("effect", run=run["run"], over="heads")
        assert model.training and model.config._attn_implementation == implementation
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        assert tap._open_count == 0
    session.close()


def test_inputs_are_on_the_device_of_the_model() -> None:
    model = build_model("opt").to("meta")  # a device without numbers, as there may be no GPU
    loaded = LoadedTransformers(model, open_tokenizer(build_tokenizer()), Path())
    assert prepare_input(loaded, TEXT, literal=True).inputs[0].device.type == "meta"


def test_model_without_tokenizer_says_so() -> None:
    session = Session(Start(build_model("opt"), TEXT))
    failure = PageClient(session).fail("run", model="OPTForCausalLM", text=TEXT, edits=[])
    session.close()
    assert failure.reason == "invalid" and "tokenizer" in str(failure)


def test_module_that_the_lens_does_not_support() -> None:
    session = Session(Start(torch.nn.Linear(2, 3), TEXT))
    failure = PageClient(session).fail("run", model="Linear", text=TEXT, edits=[])
    session.close()
    assert failure.reason == "invalid" and "Linear" in str(failure)
