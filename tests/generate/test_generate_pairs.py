"""Answers of encoder-decoders compared with transformers' generate, token for token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_generate import cut_after_end
from transformers import MarianConfig, MarianMTModel, T5Config, T5ForConditionalGeneration

import jumok
from jumok.generate import beam_search, generate
from jumok.models import Model
from parity import perturb_parameters

SOURCES = [[5, 9, 11, 2, 40], [7, 8], [12, 30, 31]]


def build_theirs(name: str) -> Any:
    torch.manual_seed(3)
    if name == "t5":
        return T5ForConditionalGeneration(
            T5Config(
                vocab_size=61,
                d_model=24,
                d_kv=7,
                num_heads=3,
                d_ff=40,
                num_layers=2,
                decoder_start_token_id=0,
                eos_token_id=1,
                pad_token_id=0,
            )
        )
    return MarianMTModel(
        MarianConfig(
            vocab_size=61,
            d_model=24,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=40,
            decoder_ffn_dim=40,
            max_position_embeddings=64,
            decoder_start_token_id=60,
            eos_token_id=0,
            pad_token_id=60,
            forced_eos_token_id=None,
        )
    )


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Model, Any]]:
    models = {}
    for name in ("t5", "marian"):
        theirs = perturb_parameters(build_theirs(name))
        folder: Path = tmp_path_factory.mktemp(name)
        theirs.save_pretrained(folder)
        models[name] = (jumok.load(folder).model, theirs)
    return models


def generate_answers(theirs: Any, **settings: Any) -> list[list[int]]:
    longest = max(len(source) for source in SOURCES)
    pad = theirs.config.pad_token_id
    tokens = torch.tensor([source + [pad] * (longest - len(source)) for source in SOURCES])
    attention_mask = torch.tensor([[1] * len(source) + [0] * (longest - len(source)) for source in SOURCES])
    output = theirs.generate(tokens, attention_mask=attention_mask, do_sample=False, max_new_tokens=12, **settings)
    return output[:, 1:].tolist()


@pytest.mark.parametrize("name", ["t5", "marian"])
@pytest.mark.parametrize("end", [1, 17])
def test_greedy_answers_match_transformers(pairs: Any, name: str, end: int) -> None:
    ours, theirs = pairs[name]
    expected = generate_answers(theirs, eos_token_id=end)
    assert generate(ours, SOURCES, limit=12, ends=(end,)) == [cut_after_end(row, end) for row in expected]


def test_recurrent_model_generates_what_teacher_forcing_predicts() -> None:
    from jumok.models import RNNSeq2Seq, RNNSeq2SeqConfig

    torch.manual_seed(0)
    for attention in ("bahdanau", "luong_general", "none"):
        model = RNNSeq2Seq(
            RNNSeq2SeqConfig(vocabulary=61, embedding_width=8, width=12, attention=attention, start=1, end=2, pad=0)
        ).eval()
        model.initialise()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        generated = generate(model, SOURCES, limit=6)
        for source, answer in zip(SOURCES, generated, strict=True):
            with torch.no_grad():
                forced = model(torch.tensor([source]), torch.tensor([[1, *answer[:-1]]])).logits
            assert forced.argmax(-1)[0].tolist() == answer
        assert beam_search(model, SOURCES, beams=1, limit=6) == generated
        assert len(beam_search(model, SOURCES, beams=3, limit=6)) == 3


def test_beam_search_ends_if_every_token_is_an_end() -> None:
    from jumok.models import GPT, GPTConfig

    model = GPT(GPTConfig(vocabulary=3, length=20, width=8, layers=1, heads=2, hidden=8)).eval()
    assert len(beam_search(model, [[0, 1]], beams=2, limit=5, ends=(0, 1, 2))[0]) == 1


@pytest.mark.parametrize("name", ["t5", "marian"])
@pytest.mark.parametrize(("beams", "penalty", "end"), [(3, 1.0, 1), (4, 0.6, 17), (2, 2.0, 1)])
def test_beam_search_matches_transformers(pairs: Any, name: str, beams: int, penalty: float, end: int) -> None:
    ours, theirs = pairs[name]
    expected = generate_answers(theirs, eos_token_id=end, num_beams=beams, length_penalty=penalty, early_stopping=False)
    texts = beam_search(ours, SOURCES, beams=beams, limit=12, length_penalty=penalty, ends=(end,))
    assert texts == [cut_after_end(row, end) for row in expected]
