"""The Python code of a run: executed, it gives the numbers that the session answered."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from page_client import PageClient

import jumok
from jumok.attention import mask as masks
from jumok.lens import Ablate, KnockOut, Remask, Scale
from jumok.lens.edits.edit_base import Edit
from jumok.web.answers.python_code import write_edit
from jumok.web.session import Session, Start
from transformers_folders import write_folder

HOSTILE_TEXT = 'the "cat" \'sat\'\\; \n""" # the {cat} \u2028 주목'


def execute(code: str) -> tuple[dict[str, Any], str]:
    """Run a program, and return its variables and what it printed."""
    printed = io.StringIO()
    variables: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<page>", "exec"), variables)
    return variables, printed.getvalue()


def check_code(model: str, text: str, edits: list[Edit], selection: dict[str, int], generate: int = 0) -> str:
    """Compare the numbers that the code of a run computes with those of the session; return the code."""
    session = Session(Start(model, text))
    try:
        client = PageClient(session)
        fields = {"model": model, "text": text, "edits": [edit.to_json() for edit in edits], "generate": generate}
        run = client.ask("run", **fields)
        code = client.ask("code", run=run["run"], selection=selection)["code"]
        variables, printed = execute(code)
        for name in ("clean", "edited") if edits else ("clean",):
            shares = variables[name].logits[0, -1].double().softmax(-1)
            for candidate in run[name][-1]["candidates"]:
                assert candidate["probability"] == pytest.approx(float(shares[candidate["id"]]), abs=1e-6)
            weight = client.ask_floats(
                "line", run=run["run"], show=name, site=selection["site"], head=selection["head"],
                query=selection["query"],
            )[selection["key"]]  # fmt: skip
            line = next(line for line in printed.splitlines() if line.startswith(f"{name} weight:"))
            assert float(line.partition(":")[2]) == pytest.approx(float(weight), abs=1e-6)
            assert f"{name}: {run[name][-1]['candidates'][0]['probability']:.6f}"[:-1] in printed
        assert ("edited" in variables) == bool(edits)
    finally:
        session.close()
    return code


def test_code_of_tiny() -> None:
    edits = [
        KnockOut(layer=1, head=0, query=(15, 16), key=3),
        Ablate(layer=0, head=1, by="mean"),
        Scale(temperature=1.5),
        Remask(layer=0, head=0, mask=masks.causal & masks.window(5) | masks.prefix(2)),
    ]
    code = check_code("tiny", "the cat sat; the cat", edits, {"site": 1, "head": 0, "query": 16, "key": 2})
    assert "KnockOut(layer=1, head=0, query=(15, 16), key=3)" in code
    assert "from jumok.attention.mask import causal, prefix, window" in code


def test_code_without_edits() -> None:
    code = check_code("tiny", "the cat", [], {"site": 0, "head": 0, "query": 3, "key": 1})
    assert "edit" not in code


def test_code_of_a_hostile_text() -> None:
    edits = [Ablate(layer=0, head=1)]
    check_code("tiny", HOSTILE_TEXT, edits, {"site": 0, "head": 0, "query": 30, "key": 20})


def test_code_of_a_long_text() -> None:
    code = check_code("tiny", "the cat; " * 40, [Remask()], {"site": 1, "head": 1, "query": 300, "key": 299})
    assert "last=1" in code


def test_code_of_a_generation() -> None:
    edits = [Scale(layer=1, temperature=3.0)]
    selection = {"site": 1, "head": 0, "query": 23, "key": 21}
    code = check_code("tiny", "the cat sat; the cat", edits, selection, generate=5)
    assert "lens.generate(text, edits=edits, limit=5)" in code


def test_code_of_the_translator() -> None:
    edits = [Ablate(layer="decoder.1.cross", head=1), KnockOut(layer="encoder.0.attention", query=3, key=(0, 1))]
    check_code("translator", "나는 매일 학교에 간다", edits, {"site": 3, "head": 1, "query": 2, "key": 4})


@pytest.mark.parametrize("name", ["opt", "bart"])
def test_code_of_a_transformers_model(name: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / name, name)
    layer: int | str = 1 if name == "opt" else "encoder.layers.1.self_attn"
    edits = [Ablate(layer=layer, head=2), KnockOut(layer=layer, head=0, query=3, key=0)]
    check_code(str(folder), "the cat sat on the mat", edits, {"site": 1, "head": 0, "query": 3, "key": 1})


def test_code_of_a_model_object_names_what_to_fill_in() -> None:
    loaded = jumok.load("tiny")
    session = Session(Start(loaded.model, "the cat", tokenizer=loaded.tokenizer))
    client = PageClient(session)
    name = client.ask("hello")["model"]
    run = client.ask("run", model=name, text="the cat", edits=[])
    code = client.ask("code", run=run["run"], selection=None)["code"]
    session.close()
    assert "model = ...  # your model" in code and "tokenizer = ...  # its tokenizer" in code
    filled = code.replace("model = ...", "model = jumok.load('tiny').model")
    filled = filled.replace("tokenizer = ...", "tokenizer = jumok.load('tiny').tokenizer")
    variables, _ = execute(filled)
    shares = variables["clean"].logits[0, -1].softmax(-1)
    best = run["clean"][-1]["candidates"][0]
    assert float(shares[best["id"]]) == pytest.approx(best["probability"], abs=1e-6)


@pytest.mark.parametrize(
    "edit",
    [
        Ablate(),
        Ablate(layer=-1, head=[2, 0], by="resample", seed=5),
        Ablate(layer="decoder.0.cross", part="mlp"),
        KnockOut(layer=0, query=range(3), key=1, batch=2),
        Scale(head=1, temperature=0.25),
        Remask(),
        Remask(mask=~masks.edge(query=1, key=(2, 3)) & masks.global_at([0, 5])),
    ],
    ids=str,
)
def test_edits_as_python(edit: Edit) -> None:
    from jumok import lens

    names = {**vars(lens), **{name: getattr(masks, name) for name in ("edge", "global_at")}}
    rebuilt = eval(write_edit(edit), names)
    assert rebuilt.to_json() == edit.to_json()
