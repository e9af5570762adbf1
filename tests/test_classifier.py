"""Classifiers: what stands for a text is made of its real tokens alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.errors import ArgumentError
from jumok.models.bert import BERTConfig
from jumok.models.classifier import Classifier, ClassifierConfig, sentiment_config
from jumok.models.long import LongConfig
from parity import perturb_parameters

SMALL = {"vocabulary": 50, "length": 20, "width": 24, "layers": 2, "heads": 4, "hidden": 40}
ENCODERS: dict[str, Any] = {
    "bert": BERTConfig(**SMALL),
    "roberta": BERTConfig(**SMALL, segments=1, offset=2, padding_id=1),
    "longformer": LongConfig(**SMALL, window=3),
    "bigbird": LongConfig(**SMALL, mixing="bigbird", window=2, random=2),
    "performer": LongConfig(**SMALL, mixing="performer", features=32),
}


def made(encoder: str, pool: str, **fields: Any) -> Classifier:
    torch.manual_seed(0)
    model: Classifier = perturb_parameters(
        Classifier(ClassifierConfig(encoder=ENCODERS[encoder], pool=pool, classes=3, **fields))
    )
    return model


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("pool", ["mean", "first"])
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_nothing_moves_when_the_padding_changes(encoder: str, pool: str, side: str) -> None:
    # B9: the document's mean counted padding
    model = made(encoder, pool)
    tokens = torch.randint(2, 50, (2, 11))
    real = torch.ones(2, 11).bool()
    real[1, slice(0, 4) if side == "left" else slice(7, 11)] = False
    other = torch.where(real, tokens, (tokens + 11) % 50)
    one, two = model(tokens, token_mask=real).logits, model(other, token_mask=real).logits
    assert one.shape == (2, 3) and torch.equal(one, two)
    assert torch.allclose(one[1:], model(tokens[1:, real[1]]).logits, atol=2e-4)
    # and it would have moved, had padding been counted
    assert not torch.allclose(model(tokens).logits[1], model(other).logits[1], atol=1e-3)


@torch.no_grad()
def test_the_pooled_vector_is_the_mean_or_the_first() -> None:
    tokens = torch.randint(50, (2, 7))
    real = torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 0, 0]]).bool()
    for pool in ("mean", "first"):
        model = made("bert", pool)
        output = model(tokens, token_mask=real)
        for row in (0, 1):
            vectors = output.hidden[row, real[row]]
            pooled = vectors[0] if pool == "first" else sum(vectors) / len(vectors)
            wanted = model.output.weight @ pooled + model.output.bias
            assert torch.allclose(output.logits[row], wanted, atol=1e-5)
        everything = torch.ones(2, 7).bool()
        assert torch.allclose(model(tokens).logits, model(tokens, token_mask=everything).logits, atol=1e-5)
        assert model(tokens, token_mask=~everything).logits.isfinite().all()


def test_the_sentiment_classifier_is_the_documents() -> None:
    # B9: width 256, 4 layers, mean over tokens, 3 classes
    config = sentiment_config()
    assert (config.encoder.width, config.encoder.layers, config.pool, config.classes) == (256, 4, "mean", 3)
    assert sentiment_config(vocabulary=500).encoder == config.encoder.replace(vocabulary=500)
    model = Classifier(sentiment_config(vocabulary=500))
    assert model.eval()(torch.randint(500, (2, 7))).logits.shape == (2, 3)
    assert model.output.weight.std().item() == pytest.approx(0.02, rel=0.2) and not model.output.bias.any()


def test_it_learns_whether_a_token_is_there() -> None:
    torch.manual_seed(0)
    model = Classifier(ClassifierConfig(encoder=BERTConfig(**{**SMALL, "segments": 0}), classes=2))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)

    def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        tokens, answers = torch.randint(2, 50, (64, 9)), torch.arange(64) % 2
        tokens[answers == 1, torch.randint(6, (32,))] = 1
        real = torch.arange(9) < torch.randint(6, 10, (64, 1))
        tokens[~real] = 1  # padding looks like the answer, and must not be taken for it
        return tokens, real, answers

    for _ in range(60):
        tokens, real, answers = batch()
        loss = torch.nn.functional.cross_entropy(model(tokens, token_mask=real).logits, answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens, real, answers = batch()
    assert (model.eval()(tokens, token_mask=real).logits.argmax(-1) == answers).float().mean() > 0.95


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_it_is_saved_and_loaded(encoder: str, tmp_path: Path) -> None:
    model = made(encoder, "mean")
    jumok.save(model, tmp_path / "own")
    told = json.loads((tmp_path / "own" / "config.json").read_text())
    assert told["family"] == "classifier" and told["encoder"]["family"] == ENCODERS[encoder].family
    loaded = jumok.load(tmp_path / "own")
    assert loaded.config == model.config and loaded.family == "classifier"
    tokens = torch.randint(50, (2, 7))
    assert torch.equal(loaded.model(tokens).logits, model(tokens).logits)


def test_weights_backends_and_checkpointing_are_the_encoders() -> None:
    tokens = torch.randint(50, (2, 7))

    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        model = made("bert", "mean")
        model.use_backend(backend)
        model.checkpointing = checkpointing
        assert model.encoder.checkpointing is checkpointing
        model(tokens).logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for one, two in zip(gradients("explicit", False), gradients("sdpa", True), strict=True):
        assert torch.allclose(one, two, atol=1e-5)
    model = made("bert", "mean")
    assert [list(one.shape) for one in model(tokens, weights=True).weights] == [[2, 4, 7, 7]] * 2
    assert model(tokens).weights is None
    assert model.encoder.blocks[1].attention.site == "encoder.blocks.1.attention"


@pytest.mark.parametrize(
    ("encoder", "says"),
    [
        (BERTConfig(**SMALL, head="mlm"), "needs an encoder with head \"none\", not 'mlm'"),
        ({"family": "gpt"}, "encoder of the classifier config must be a config of the family bert or long"),
        ({"width": 5}, "must be a config of the family bert or long"),
        ({"family": ["bert"]}, "must be a config of the family bert or long"),
        (None, "must be a config of the family bert or long, not None"),
        ({"family": "bert", "widht": 5}, "the bert config has no field 'widht'; did you mean 'width'"),
        ({"family": "long", "heads": 0}, "heads of the long config must be from 1"),
    ],
)
def test_a_bad_encoder_is_refused_in_a_sentence(encoder: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        ClassifierConfig.from_json({"encoder": encoder})


def test_a_config_within_a_config_reads_back() -> None:
    config = ClassifierConfig(encoder=ENCODERS["bigbird"], pool="first", classes=5)
    assert ClassifierConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert config.replace(classes=2).encoder == config.encoder
    assert config.replace(encoder=ENCODERS["bert"]).encoder == ENCODERS["bert"]
