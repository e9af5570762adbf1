"""Edits from JSON and inputs of a lens are checked field by field; each mistake is one sentence that names it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import jumok
from jumok.attention import mask
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Edit, KnockOut, Remask, Scale

WRONG: list[tuple[Any, str]] = [
    ([], "an edit in JSON is an object"),
    ({}, "unknown edit None; choose one of Ablate"),
    ({"edit": ["Ablate"]}, "unknown edit .*; choose one of"),
    ({"edit": "x" * 10**6}, "unknown edit .*; choose one of"),
    ({"edit": "Ablate", "x" * 10**6: 1}, "Ablate has no field"),
    ({"edit": "Ablate", "layer": [1]}, "layer must be an integer, the name of a site, or None"),
    ({"edit": "Ablate", "layer": 1.0}, "layer must be an integer"),
    ({"edit": "Ablate", "layer": True}, "layer must be an integer"),
    ({"edit": "Ablate", "layer": {"a": 1}}, "layer must be an integer"),
    ({"edit": "Ablate", "seed": "z"}, "seed must be an integer"),
    ({"edit": "Ablate", "seed": 1.5}, "seed must be an integer"),
    ({"edit": "Ablate", "seed": 2**64}, "seed must be an integer"),
    ({"edit": "Ablate", "seed": -1}, "seed must be an integer"),
    ({"edit": "Ablate", "head": 1.7}, "head must be an integer"),
    ({"edit": "Ablate", "head": [0, 1.7]}, "head must be an integer"),
    ({"edit": "Ablate", "head": [True]}, "head must be an integer"),
    ({"edit": "Ablate", "head": "1"}, "head must be an integer"),
    ({"edit": "Ablate", "head": ["1"]}, "head must be an integer"),
    ({"edit": "Ablate", "head": {"0": 1}}, "head must be an integer"),
    ({"edit": "Ablate", "head": [[0]]}, "head must be an integer"),
    ({"edit": "Ablate", "head": [None]}, "head must be an integer"),
    ({"edit": "Ablate", "head": [-(10**400), 2]}, "head is counted from 0"),
    ({"edit": "KnockOut", "query": [-1, 2]}, "query is counted from 0"),
    ({"edit": "Ablate", "head": 10**400}, "head is counted from 0"),
    ({"edit": "Ablate", "head": []}, "head is empty"),
    ({"edit": "Ablate", "part": 1}, "part must be one of attention, mlp"),
    ({"edit": "Ablate", "part": ["mlp"]}, "part must be one of"),
    ({"edit": "Ablate", "by": "x" * 10**6}, "by must be one of zero, mean, resample"),
    ({"edit": "Ablate", "source": 5}, "source must be a capture"),
    ({"edit": "Ablate", "source": "no such run"}, "needs the capture 'no such run'"),
    ({"edit": "KnockOut", "query": 0.5}, "query must be an integer"),
    ({"edit": "KnockOut", "key": [float("nan")]}, "key must be an integer"),
    ({"edit": "KnockOut", "batch": "all"}, "batch must be an integer"),
    ({"edit": "Patch", "positions": 1.0, "source": None}, "positions must be an integer"),
    ({"edit": "Patch"}, "a Patch needs another capture"),
    ({"edit": "Scale", "temperature": 0}, "temperature must be a finite number of at least 1e-06, not 0"),
    ({"edit": "Scale", "temperature": 1e-300}, "temperature must be a finite number of at least 1e-06, not 1e-300"),
    ({"edit": "Scale", "temperature": "2"}, "temperature must be a finite number"),
    ({"edit": "Scale", "temperature": float("nan")}, "temperature must be a finite number"),
    ({"edit": "Scale", "temperature": float("inf")}, "temperature must be a finite number"),
    ({"edit": "Scale", "temperature": True}, "temperature must be a finite number"),
    ({"edit": "Scale", "temperature": 10**400}, "temperature must be a finite number"),
    ({"edit": "Remask", "mask": [[True]]}, "mask must be a mask"),
    ({"edit": "Remask", "mask": 1}, "mask must be a mask"),
    ({"edit": "Remask", "mask": "__import__('os')"}, "mask|unknown"),
]


@pytest.mark.parametrize(("fields", "words"), WRONG)
def test_wrong_field_of_an_edit_is_named(fields: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words) as refused:
        Edit.from_json(fields)
    assert len(str(refused.value)) < 500


def test_edits_are_equal_after_json() -> None:
    edits = [
        Ablate(layer=1, head=[2, 0], by="resample", seed=7),
        KnockOut(layer="decoder.3.cross", query=3, key=range(2)),
        KnockOut(head=iter([1, 0])),
        Scale(temperature=2),
        Remask(mask=mask.causal & mask.window(3)),
    ]
    for edit in edits:
        assert Edit.from_json(json.loads(json.dumps(edit.to_json()))).to_json() == edit.to_json()
    assert edits[2].head == (0, 1)


INPUTS: list[tuple[Any, str]] = [
    (torch.tensor([[True, False]]), "reads token ids, integers .* not bool"),
    (torch.tensor([[1.0, 2.0]]), "reads token ids, integers .* not float32"),
    (torch.tensor([[1, 2]], dtype=torch.uint8), "reads token ids, integers .* not uint8"),
    (torch.zeros(1, 2, dtype=torch.complex64), "reads token ids, integers .* not complex64"),
    (torch.zeros(1, 0, dtype=torch.long), "at least one token"),
    (torch.tensor(3), "reads token ids"),
    (torch.zeros(1, 3, dtype=torch.long, device="meta"), "meta device, so it has no numbers"),
    (torch.zeros(1, 3, dtype=torch.long).to_sparse(), "sparse, nested or quantized"),
    (torch.tensor([[0, 10**6]]), "token 1000000 does not exist"),
    (torch.tensor([[-1]]), "token -1 does not exist"),
    ([True, False], "a list must hold the token ids"),
    ([1.5], "a list must hold the token ids"),
    ([10**30], "larger than any vocabulary"),
    (None, "not a NoneType"),
    (torch.tensor([[1.0, 2.0]]).numpy(), "integers, not float32"),
]


@pytest.fixture(scope="module")
def lenses() -> dict[str, jumok.Lens]:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}
    gpt2 = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    return {"own": jumok.Lens(jumok.load("tiny")), "transformers": jumok.Lens(gpt2)}


@pytest.mark.parametrize("name", ["own", "transformers"])
@pytest.mark.parametrize(("model_input", "words"), INPUTS)
def test_input_that_is_not_tokens_is_one_sentence(
    lenses: dict[str, jumok.Lens], name: str, model_input: Any, words: str
) -> None:
    with lenses[name] as lens, pytest.raises(ArgumentError, match=words):
        lens.run(model_input)
