"""Edits are read as they are written in Python; what is written by the page is read back."""

from __future__ import annotations

import pytest

from jumok.attention.mask import causal, edge, window
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Edit, KnockOut, Remask, Scale
from jumok.lens.edits.edit_text import parse_edit
from jumok.web.answers.python_code import write_edit

EDITS = [
    Ablate(layer=0, head=(1, 2), by="resample", seed=7),
    Ablate(layer=-1, part="mlp"),
    KnockOut(layer="decoder.0.cross", query=5, key=range(4, 9)),
    Scale(head=1, temperature=0.25),
    Remask(layer=1, mask=(causal & window(8)) | ~edge(query=3, key=[1, 2])),
    Remask(),
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: type(edit).__name__)
def test_what_is_written_is_read_back(edit: Edit) -> None:
    assert parse_edit(f" {write_edit(edit)} ").to_json() == edit.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ablate",
        "Ablate(0)",
        "Ablate(**{})",
        "Ablate(layer=open('x'))",
        "x.Ablate()",
        "Ablate(head=range('a'))",
        "(" * 9999,
    ],
)
def test_what_is_no_edit_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"is not an edit; write it as in Python: Ablate\(layer=0, head=1\)"):
        parse_edit(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Cut(layer=0)", "unknown edit 'Cut'"),
        ("Ablate(heads=1)", "has no field 'heads'"),
        ("Remask(mask=causal & nothing)", "nothing"),
        ("Patch(layer=0, source='clean')", "needs the capture 'clean'"),
    ],
)
def test_wrong_fields_are_named(text: str, sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        parse_edit(text)
