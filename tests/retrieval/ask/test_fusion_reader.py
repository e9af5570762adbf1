"""The reader of a Fusion-in-Decoder: cutting a passage equals leaving it out, and equals knock-outs of the lens."""

from __future__ import annotations

import pytest
import torch

import jumok
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.passage_tokens import encode_passages
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.models import GPT, GPTConfig
from jumok.models.fusion import Fusion, FusionConfig
from jumok.tasks.ask import FusionReader, create_reader

QUESTION = "Where does Ada live?"
PASSAGES = ("Ada lives in Rome.", "Bo has a dog.", "The sea is calm today.")
SEPARATOR, START, END = 3, 1, 2


@pytest.fixture
def reader() -> FusionReader:
    torch.manual_seed(2)
    config = FusionConfig(
        vocabulary=256,
        width=24,
        layers=2,
        decoder_layers=2,
        heads=3,
        hidden=40,
        separator=SEPARATOR,
        start=START,
        end=END,
    )
    model = Fusion(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter *= 2.0
    chosen = create_reader(Loaded(model, Tokenizer.for_bytes()))
    assert isinstance(chosen, FusionReader)
    return chosen


def test_cutting_a_passage_equals_leaving_it_out(reader: FusionReader) -> None:
    reading = reader.read(QUESTION, PASSAGES, 6)
    for index, scores in enumerate(reader.score_cuts(reading)):
        remaining = [text for number, text in enumerate(PASSAGES) if number != index]
        expected = reader.score(QUESTION, remaining, reading.token_ids).log_probabilities
        assert scores == pytest.approx(expected, abs=1e-5)
        assert reader.read(QUESTION, PASSAGES, 6, [index]).token_ids == reader.read(QUESTION, remaining, 6).token_ids
    changes = [
        max(abs(a - b) for a, b in zip(s, reading.log_probabilities, strict=True)) for s in reader.score_cuts(reading)
    ]
    assert max(changes) > 1e-3, "a cut changes something"


def test_scores_equal_those_of_reading(reader: FusionReader) -> None:
    reading = reader.read(QUESTION, PASSAGES, 6)
    scored = reader.score(QUESTION, PASSAGES, reading.token_ids)
    assert scored.log_probabilities == pytest.approx(reading.log_probabilities, abs=1e-5)


def test_attention_equals_that_of_the_lens(reader: FusionReader) -> None:
    reading = reader.read(QUESTION, PASSAGES, 6)
    token_lists = encode_passages(reader.tokenizer, SEPARATOR, QUESTION, PASSAGES)
    source = torch.tensor([[token for tokens in token_lists for token in tokens]])
    with jumok.Lens(reader.model) as lens:
        capture = lens.run(source, torch.tensor([[START, *reading.token_ids[:-1]]]))
    sites = [site for site in capture.sites.names if site.endswith("cross")]
    weights = torch.stack([capture.weights(site) for site in sites]).double().mean((0, 1, 2))
    start, expected = 0, []
    for tokens in token_lists:
        expected.append(float(weights[start : start + len(tokens)].sum()))
        start += len(tokens)
    assert reader.measure_attention(reading) == pytest.approx(expected, abs=1e-6)
    assert sum(expected) == pytest.approx(1.0, abs=1e-5)


def test_another_family_is_refused() -> None:
    model = GPT(GPTConfig(vocabulary=256, length=16, width=8, layers=1, heads=2))
    with pytest.raises(ArgumentError, match="does not read passages apart; train one: jumok train reader"):
        FusionReader(Loaded(model, Tokenizer.for_bytes()))
