"""Check that classifiers pool only real tokens, learn, save and load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.errors import ArgumentError, CheckpointError
from jumok.models.bert import BERTConfig
from jumok.models.classifier import Classifier, ClassifierConfig, sentiment_config
from jumok.models.long import LongConfig
from parity import perturb_parameters

SMALL = {"vocabulary": 50, "length": 20, "width": 24, "layers": 2, "heads": 4, "hidden": 40}
ENCODERS: dict[str, Any] = {
    "bert": BERTConfig(**SMALL),
    "roberta": BERTConfig(**SMALL, segments=1, offset=2, padding_id=1),
    "longformer": LongConfig(**SMALL, window=3),
    "bigbird": LongConfig(**SMALL, mixing="bigbird", window=2, random=2, block=2),
    "window": LongConfig(**SMALL, mixing="window", window=9),
    "blocks": LongConfig(**SMALL, mixing="blocks", window=8),
    "performer": LongConfig(**SMALL, mixing="performer", features=32),
}


def build_classifier(encoder: str, pool: str, **fields: Any) -> Classifier:
    torch.manual_seed(0)
    model: Classifier = perturb_parameters(
        Classifier(ClassifierConfig(encoder=ENCODERS[encoder], pool=pool, classes=3, **fields))
    )
    return model


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("pool", ["mean", "first"])
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_does_not_change_the_output(encoder: str, pool: str, side: str) -> None:
    model = build_classifier(encoder, pool)
    tokens = torch.randint(2, 50, (2, 11))
    token_mask = torch.ones(2, 11).bool()
    token_mask[1, slice(0, 4) if side == "left" else slice(7, 11)] = False
    changed = torch.where(token_mask, tokens, (tokens + 11) % 50)
    first, second = model(tokens, token_mask=token_mask).logits, model(changed, token_mask=token_mask).logits
    assert first.shape == (2, 3) and torch.equal(first, second)
    assert torch.allclose(first[1:], model(tokens[1:, token_mask[1]]).logits, atol=2e-4)
    # it would have changed if padding were counted
    assert not torch.allclose(model(tokens).logits[1], model(changed).logits[1], atol=1e-3)


@torch.no_grad()
def test_pooled_vector_is_the_mean_or_the_first() -> None:
    tokens = torch.randint(50, (2, 7))
    token_mask = torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 0, 0]]).bool()
    for pool in ("mean", "first"):
        model = build_classifier("bert", pool)
        output = model(tokens, token_mask=token_mask)
        for row in (0, 1):
            vectors = output.hidden[row, token_mask[row]]
            pooled = vectors[0] if pool == "first" else sum(vectors) / len(vectors)
            expected = model.output.weight @ pooled + model.output.bias
            assert torch.allclose(output.logits[row], expected, atol=1e-5)
        everything = torch.ones(2, 7).bool()
        assert torch.allclose(model(tokens).logits, model(tokens, token_mask=everything).logits, atol=1e-5)
        assert model(tokens, token_mask=~everything).logits.isfinite().all()


def test_sentiment_config_has_the_documented_sizes() -> None:
    config = sentiment_config()
    assert (config.encoder.width, config.encoder.layers, config.pool, config.classes) == (256, 4, "mean", 3)
    assert sentiment_config(vocabulary=500).encoder == config.encoder.replace(vocabulary=500)
    assert (config.encoder.hidden, config.head_hidden) == (2048, 128)
    model = Classifier(sentiment_config(vocabulary=500))
    assert model.inner is not None and model.inner.weight.shape == (128, 256) and model.output.weight.shape == (3, 128)
    assert model.eval()(torch.randint(500, (2, 7))).logits.shape == (2, 3)
    assert model.output.weight.std().item() == pytest.approx(0.02, rel=0.2) and not model.output.bias.any()


@torch.no_grad()
def test_head_with_an_inner_layer(tmp_path: Path) -> None:
    model = build_classifier("bert", "mean", head_hidden=7, dropout=0.5)
    tokens = torch.randint(50, (2, 9))
    output = model(tokens)
    reference = torch.nn.Sequential(
        torch.nn.Linear(24, 7), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(7, 3)
    ).eval()
    assert model.inner is not None
    reference[0].load_state_dict(model.inner.state_dict())
    reference[3].load_state_dict(model.output.state_dict())
    assert torch.allclose(output.logits, reference(output.hidden.mean(1)), atol=1e-6)
    jumok.save(model, tmp_path / "own", format="jumok")
    assert torch.equal(jumok.load(tmp_path / "own").model(tokens).logits, output.logits)
    with pytest.raises(CheckpointError, match="Hugging Face has no model like this classifier"):
        jumok.save(model, tmp_path / "hf", format="huggingface")


def test_classifier_learns_whether_a_token_is_present() -> None:
    torch.manual_seed(0)
    model = Classifier(ClassifierConfig(encoder=BERTConfig(**{**SMALL, "segments": 0}), classes=2))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)

    def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        tokens, answers = torch.randint(2, 50, (64, 9)), torch.arange(64) % 2
        tokens[answers == 1, torch.randint(6, (32,))] = 1
        token_mask = torch.arange(9) < torch.randint(6, 10, (64, 1))
        tokens[~token_mask] = 1  # padding looks like the answer and must be ignored
        return tokens, token_mask, answers

    for _ in range(60):
        tokens, token_mask, answers = batch()
        loss = torch.nn.functional.cross_entropy(model(tokens, token_mask=token_mask).logits, answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens, token_mask, answers = batch()
    assert (model.eval()(tokens, token_mask=token_mask).logits.argmax(-1) == answers).float().mean() > 0.95


@pytest.mark.parametrize("encoder", ENCODERS)
@torch.no_grad()
def test_saved_model_loads_with_equal_outputs(encoder: str, tmp_path: Path) -> None:
    model = build_classifier(encoder, "mean")
    jumok.save(model, tmp_path / "own")
    config_json = json.loads((tmp_path / "own" / "config.json").read_text())
    assert config_json["family"] == "classifier" and config_json["encoder"]["family"] == ENCODERS[encoder].family
    loaded = jumok.load(tmp_path / "own")
    assert loaded.config == model.config and loaded.family == "classifier"
    tokens = torch.randint(50, (2, 7))
    assert torch.equal(loaded.model(tokens).logits, model(tokens).logits)


def test_weights_backends_and_checkpointing_reach_the_encoder() -> None:
    tokens = torch.randint(50, (2, 7))

    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        model = build_classifier("bert", "mean")
        model.use_backend(backend)
        model.checkpointing = checkpointing
        assert model.encoder.checkpointing is checkpointing
        model(tokens).logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for first, second in zip(gradients("explicit", False), gradients("sdpa", True), strict=True):
        assert torch.allclose(first, second, atol=1e-5)
    model = build_classifier("bert", "mean")
    assert [list(layer.shape) for layer in model(tokens, weights=True).weights] == [[2, 4, 7, 7]] * 2
    assert model(tokens).weights is None
    assert model.encoder.blocks[1].attention.site == "encoder.blocks.1.attention"


@pytest.mark.parametrize(
    ("encoder", "message"),
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
def test_invalid_encoders_are_refused(encoder: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ClassifierConfig.from_json({"encoder": encoder})


def test_nested_config_reads_back() -> None:
    config = ClassifierConfig(encoder=ENCODERS["bigbird"], pool="first", classes=5)
    assert ClassifierConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert config.replace(classes=2).encoder == config.encoder
    assert config.replace(encoder=ENCODERS["bert"]).encoder == ENCODERS["bert"]
