"""Compare BERT, RoBERTa and DistilBERT with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    DistilBertModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaModel,
)

import jumok
from jumok.errors import ArgumentError, CheckpointError, ShapeError
from jumok.models import Model
from jumok.models.bert import BERT, BERTConfig, simple_transformer_config
from parity import assert_parity, check_round_trip

SIZES = {
    "vocab_size": 97, "max_position_embeddings": 29, "hidden_size": 30, "num_hidden_layers": 3,
    "num_attention_heads": 5, "intermediate_size": 53,
}  # fmt: skip
DISTILLED = {
    "vocab_size": 97, "max_position_embeddings": 29, "dim": 30, "n_layers": 3, "n_heads": 5, "hidden_dim": 53,
}  # fmt: skip

CASES: dict[str, Any] = {
    "bert": lambda: BertModel(BertConfig(**SIZES)),
    "bert without pooler, relu": lambda: BertModel(
        BertConfig(**SIZES, hidden_act="relu", layer_norm_eps=1e-5), add_pooling_layer=False
    ),
    "bert mlm tied": lambda: BertForMaskedLM(BertConfig(**SIZES, type_vocab_size=3)),
    "bert mlm untied, gelu_new": lambda: BertForMaskedLM(
        BertConfig(**SIZES, tie_word_embeddings=False, hidden_act="gelu_new")
    ),
    "roberta": lambda: RobertaModel(RobertaConfig(**SIZES, type_vocab_size=1)),
    "roberta mlm tied": lambda: RobertaForMaskedLM(RobertaConfig(**SIZES, type_vocab_size=1)),
    "roberta mlm untied, relu, padding 4": lambda: RobertaForMaskedLM(
        RobertaConfig(**SIZES, tie_word_embeddings=False, hidden_act="relu", pad_token_id=4, layer_norm_eps=1e-5)
    ),
    "distilbert": lambda: DistilBertModel(DistilBertConfig(**DISTILLED)),
    "distilbert mlm tied": lambda: DistilBertForMaskedLM(DistilBertConfig(**DISTILLED, sinusoidal_pos_embds=True)),
    "distilbert mlm untied, relu": lambda: DistilBertForMaskedLM(
        DistilBertConfig(**DISTILLED, tie_word_embeddings=False, activation="relu")
    ),
    "bert classes": lambda: BertForSequenceClassification(BertConfig(**SIZES)),
    "bert 5 classes, several": lambda: BertForSequenceClassification(
        BertConfig(**SIZES, num_labels=5, problem_type="multi_label_classification", hidden_act="relu")
    ),
    "roberta 3 classes": lambda: RobertaForSequenceClassification(
        RobertaConfig(**SIZES, num_labels=3, type_vocab_size=1, hidden_act="relu")
    ),
    "distilbert 4 classes": lambda: DistilBertForSequenceClassification(DistilBertConfig(**DISTILLED, num_labels=4)),
    "distilbert 1 number": lambda: DistilBertForSequenceClassification(
        DistilBertConfig(**DISTILLED, num_labels=1, problem_type="regression")
    ),
}
CLASSES = [name for name in CASES if "class" in name or "number" in name]

LENGTH = 11
TOKEN_MASKS = {
    "none": None,
    "right": [[1] * LENGTH, [1] * 7 + [0] * 4],
    "left": [[1] * LENGTH, [0] * 4 + [1] * 7],
}


@pytest.mark.parametrize("side", TOKEN_MASKS)
@pytest.mark.parametrize("name", CASES)
def test_outputs_equal_transformers(name: str, side: str, tmp_path: Path) -> None:
    reference = CASES[name]()
    tokens = torch.randint(5, 97, (2, LENGTH))
    if "roberta" in name:
        tokens[0, 3] = reference.config.pad_token_id  # a real padding token in the middle has no position
    settings: dict[str, Any] = {}
    token_mask = None if TOKEN_MASKS[side] is None else torch.tensor(TOKEN_MASKS[side]).bool()
    if token_mask is not None:
        tokens[~token_mask] = reference.config.pad_token_id
        settings["attention_mask"] = token_mask.long()
        if "roberta" not in name:  # RoBERTa counts real tokens; the others would count padding on the left
            settings["position_ids"] = (token_mask.long().cumsum(-1) - 1).clamp_min(0)
    segments = None
    if name.startswith("bert"):
        segments = settings["token_type_ids"] = torch.randint(reference.config.type_vocab_size, (2, LENGTH))

    def check(ours: Model, reference: Any) -> None:
        actual, expected = ours(tokens, token_mask=token_mask, segments=segments), reference(tokens, **settings)
        if name in CLASSES:
            assert_parity(actual.logits, compute_reference_logits(reference, tokens, token_mask, settings))
            actual, expected = ours(tokens).logits, reference(tokens).logits
        elif "mlm" in name:
            assert_parity(actual.logits, expected.logits, token_mask)
            actual, expected = ours(tokens).logits, reference(tokens).logits
        else:
            assert actual.logits is None
            assert_parity(actual.hidden, expected.last_hidden_state, token_mask)
            actual, expected = ours(tokens).hidden, reference(tokens).last_hidden_state
        assert_parity(actual, expected)  # without a mask nothing is masked: padding tokens are ordinary tokens

    check_round_trip(reference, tmp_path, check)


def compute_reference_logits(
    reference: Any, tokens: torch.Tensor, token_mask: torch.Tensor | None, settings: dict[str, Any]
) -> torch.Tensor:
    """Return the logits of each text without its padding on the left: transformers would read the first token."""
    if token_mask is None or token_mask[:, 0].all():
        return reference(tokens, **settings).logits
    rows = []
    for row, row_mask in enumerate(token_mask):
        row_settings = {name: first[row : row + 1, row_mask] for name, first in settings.items()}
        rows.append(reference(tokens[row : row + 1, row_mask], **row_settings).logits)
    return torch.cat(rows)


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({}, "one"),
        ({"problem_type": "single_label_classification"}, "one"),
        ({"problem_type": "multi_label_classification"}, "several"),
        ({"problem_type": "regression"}, "number"),
        ({"num_labels": 1}, "several"),
    ],
)
def test_problem_type_is_read_and_written(change: dict[str, Any], answer: str, tmp_path: Path) -> None:
    reference = BertForSequenceClassification(BertConfig(**SIZES, **change))
    reference.save_pretrained(tmp_path / "made")
    loaded = jumok.load(tmp_path / "made")
    assert (loaded.config.head, loaded.config.answer) == ("classes", answer)
    assert loaded.config.classes == change.get("num_labels", 2)
    jumok.save(loaded.model, tmp_path / "again", format="huggingface")
    again = BertForSequenceClassification.from_pretrained(tmp_path / "again").config
    assert again.num_labels == loaded.config.classes
    assert jumok.load(tmp_path / "again").config == loaded.config
    assert again.problem_type == change.get("problem_type", again.problem_type)


def test_architecture_decides_the_head(tmp_path: Path) -> None:
    reference = BertForPreTraining(BertConfig(**SIZES)).eval()  # it has a second head, which is ignored
    reference.save_pretrained(tmp_path / "both")
    tokens = torch.randint(97, (1, 6))
    with torch.no_grad():
        assert_parity(jumok.load(tmp_path / "both").model(tokens).logits, reference(tokens).prediction_logits)
    BertForTokenClassification(BertConfig(**SIZES)).save_pretrained(tmp_path / "classes")
    with pytest.raises(CheckpointError, match="match no parameter of this model: classifier"):
        jumok.load(tmp_path / "classes")
    BertForSequenceClassification(BertConfig(**SIZES)).save_pretrained(tmp_path / "texts")
    file = tmp_path / "texts" / "config.json"
    config_json = json.loads(file.read_text())
    file.write_text(json.dumps({**config_json, "problem_type": "evil"}))
    with pytest.raises(CheckpointError, match="problem_type = 'evil'; supported: single_label"):
        jumok.load(tmp_path / "texts")
    file.write_text(json.dumps({**config_json, "id2label": {str(index): "x" for index in range(3)}}))
    with pytest.raises(CheckpointError, match=r"classifier.weight give \[2, 30\], but by its config"):
        jumok.load(tmp_path / "texts")


def test_old_names_of_norms_load(tmp_path: Path) -> None:
    """Files converted from the first BERT use gamma and beta, and store the position ids."""
    reference = BertForMaskedLM(BertConfig(**SIZES)).eval()
    reference.save_pretrained(tmp_path / "old")
    file = tmp_path / "old" / "model.safetensors"
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(file).items()
    }
    assert any(name.endswith("gamma") for name in renamed)
    save_file({**renamed, "bert.embeddings.position_ids": torch.arange(29)[None]}, file, {"format": "pt"})
    tokens = torch.randint(97, (1, 6))
    with torch.no_grad():
        assert_parity(jumok.load(tmp_path / "old").model(tokens).logits, reference(tokens).logits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"is_decoder": True}, "is_decoder = 'True'; only False"),
        ({"position_embedding_type": "relative_key"}, "'relative_key'; only 'absolute'"),
        ({"hidden_act": "mish"}, "activation of the bert config must be one of relu"),
        ({"type_vocab_size": "two"}, "type_vocab_size in config.json must be an integer, not 'two'"),
        ({"hidden_size": 31}, "width 31 cannot be split evenly into 5 heads"),
    ],
)
def test_unsupported_configs_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    BertModel(BertConfig(**SIZES)).save_pretrained(tmp_path / "made")
    file = tmp_path / "made" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises((CheckpointError, ArgumentError), match=message):
        jumok.load(tmp_path / "made")


SMALL = {"vocabulary": 50, "length": 20, "width": 24, "layers": 2, "heads": 4, "hidden": 40}
CONFIGS = {
    "bert": BERTConfig(**SMALL, head="mlm"),
    "roberta": BERTConfig(**SMALL, segments=1, offset=2, padding_id=1, head="mlm", tied=False),
    "distilbert": BERTConfig(**SMALL, segments=0, head="mlm"),
}
CLASSIFIER = BERTConfig(**SMALL, head="classes", head_activation="tanh", classes=3)


def build_token_mask(side: str) -> torch.Tensor:
    token_mask = torch.ones(2, 9).bool()
    token_mask[1, slice(0, 3) if side == "left" else slice(6, 9)] = False
    return token_mask


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_the_output(name: str, side: str) -> None:
    model = BERT(CONFIGS[name]).eval()
    tokens, token_mask = torch.randint(2, 50, (2, 9)), build_token_mask(side)
    other = torch.where(token_mask, tokens, (tokens + 11) % 50)
    with torch.no_grad():
        first, second = model(tokens, token_mask=token_mask).logits, model(other, token_mask=token_mask).logits
        unpadded = model(tokens[1:, token_mask[1]]).logits
    assert torch.equal(first[token_mask], second[token_mask])
    assert torch.allclose(first[1, token_mask[1]], unpadded[0], atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_class_logits(side: str) -> None:
    model = BERT(CLASSIFIER).eval()
    tokens, token_mask = torch.randint(2, 50, (2, 9)), build_token_mask(side)
    other = torch.where(token_mask, tokens, (tokens + 11) % 50)
    with torch.no_grad():
        first, second = model(tokens, token_mask=token_mask).logits, model(other, token_mask=token_mask).logits
        assert torch.allclose(first[1:], model(tokens[1:, token_mask[1]]).logits, atol=1e-5)
    assert torch.equal(first, second) and list(first.shape) == [2, 3]


def test_every_token_depends_on_all_tokens_and_segments() -> None:
    model = BERT(CONFIGS["bert"]).eval()
    tokens = torch.randint(50, (1, 9))
    other = tokens.clone()
    other[0, 8] = (other[0, 8] + 1) % 50
    segments = torch.tensor([[0] * 5 + [1] * 4])
    with torch.no_grad():
        first, second, third = model(tokens).hidden, model(other).hidden, model(tokens, segments=segments).hidden
        assert torch.equal(model(tokens, segments=torch.zeros_like(segments)).hidden, first)
    assert ((first - second).abs().amax(-1) > 0).all() and ((first - third).abs().amax(-1) > 0).all()


def test_weights_of_every_layer_are_returned() -> None:
    model = BERT(CONFIGS["bert"]).eval()
    token_mask = build_token_mask("left")
    output = model(torch.randint(50, (2, 9)), token_mask=token_mask, weights=True)
    assert [list(layer.shape) for layer in output.weights] == [[2, 4, 9, 9]] * 2
    assert torch.allclose(output.weights[1].sum(-1), torch.ones(2, 4, 9), atol=1e-6)
    assert not output.weights[0][1, :, :, :3].any()
    assert model(torch.randint(50, (2, 9))).weights is None


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_backends_and_checkpointing_give_the_same_gradients(backend: str) -> None:
    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = BERT(CONFIGS["bert"])
        model.use_backend(backend)
        model.checkpointing = checkpointing
        tokens = torch.arange(18).view(2, 9)
        model(tokens, token_mask=build_token_mask("right")).logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for first, second in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert torch.allclose(first, second, atol=1e-6)


def test_dropout_applies_only_in_training() -> None:
    model = BERT(CONFIGS["bert"].replace(dropout=0.5))
    tokens = torch.randint(50, (2, 9))
    assert not torch.equal(model.train()(tokens).hidden, model(tokens).hidden)
    assert torch.equal(model.eval()(tokens).hidden, model(tokens).hidden)


def test_parameter_counts_are_the_published_ones() -> None:
    # the encoders of the papers, without poolers (768 x 768 + 768)
    published = {
        "bert": (BERTConfig(), 109_482_240 - 590_592),
        "roberta": (
            BERTConfig(vocabulary=50265, segments=1, offset=2, padding_id=1),
            124_645_632 - 590_592,
        ),
        "distilbert": (BERTConfig(layers=6, segments=0), 66_362_880),
        "minilm": (BERTConfig(width=384, layers=6, hidden=1536), 22_713_216 - 147_840),
    }
    for name, (config, count) in published.items():
        with torch.device("meta"):
            assert BERT(config).parameter_count == count, name


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 5}, "width 24 cannot be split evenly into 5 heads"),
        ({"head": "nsp"}, "head of the bert config must be one of none, mlm, classes, not 'nsp'"),
        ({"head": "mlm", "head_activation": "tanh"}, "is only for the head"),
        ({"padding_id": 1}, "with a padding_id the offset must be at least 1"),
        ({"segment": 2}, "did you mean 'segments'"),
    ],
)
def test_invalid_configs_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        BERTConfig.from_json({**SMALL, **fields})


@pytest.mark.parametrize(
    ("name", "length", "settings", "message"),
    [
        ("bert", 21, {}, "position 20 is outside the 20 positions"),
        ("roberta", 21, {}, "position 22 is outside the"),
        ("bert", 9, {"token_mask": torch.ones(2, 8).bool()}, r"token_mask is \[2, 8\], but the tokens are \[2, 9\]"),
        ("bert", 9, {"segments": torch.ones(2, 8).long()}, r"segments are \[2, 8\], but the tokens are \[2, 9\]"),
        ("bert", 9, {"segments": torch.full((2, 9), 2)}, "segment 2 is out of range: this model has 0 to 1"),
        ("distilbert", 9, {"segments": torch.zeros(2, 9).long()}, "this model has no segment embedding"),
    ],
)
def test_invalid_inputs_are_refused(name: str, length: int, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=message):
        BERT(CONFIGS[name])(torch.full((2, length), 7), **settings)


def test_model_without_an_equivalent_saves_only_in_our_format(tmp_path: Path) -> None:
    model = BERT(CONFIGS["distilbert"].replace(epsilon=1e-5)).eval()
    with pytest.raises(CheckpointError, match='the format "jumok" can store it'):
        jumok.save(model, tmp_path / "theirs", format="huggingface")
    for config in (CLASSIFIER.replace(head_activation="relu"), CLASSIFIER.replace(segments=0)):
        with pytest.raises(CheckpointError, match='the format "jumok" can store it'):
            jumok.save(BERT(config), tmp_path / "theirs", format="huggingface")
    jumok.save(model, tmp_path / "own")
    tokens = torch.randint(50, (1, 9))
    assert torch.equal(jumok.load(tmp_path / "own").model(tokens).logits, model(tokens).logits)


class PlainEncoder(torch.nn.Module):
    """The encoder of tutorials: embeddings, post-norm blocks with attentions without biases, and a norm."""

    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.positions = torch.nn.Embedding(length, width)
        self.maps = torch.nn.ModuleList(
            torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(4)) for _ in range(layers)
        )
        self.inner = torch.nn.ModuleList(torch.nn.Linear(width, hidden) for _ in range(layers))
        self.outer = torch.nn.ModuleList(torch.nn.Linear(hidden, width) for _ in range(layers))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2 * layers + 1))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        hidden, weights = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]], []
        for layer, (q_map, k_map, v_map, output) in enumerate(self.maps):
            q, k, v = (
                linear(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2) for linear in (q_map, k_map, v_map)
            )
            weights.append((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1))
            mixed = (weights[-1] @ v).transpose(1, 2).flatten(2)
            hidden = self.norms[2 * layer](hidden + output(mixed))
            hidden = self.norms[2 * layer + 1](hidden + self.outer[layer](self.inner[layer](hidden).relu()))
        return self.norms[-1](hidden), weights


@torch.no_grad()
def test_simple_transformer_equals_the_plain_module_and_returns_all_weights(tmp_path: Path) -> None:
    sizes = {"vocabulary": 29, "length": 23, "width": 15, "heads": 3, "layers": 2, "hidden": 31}
    torch.manual_seed(3)
    plain, ours = PlainEncoder(**sizes).eval(), BERT(simple_transformer_config(**sizes)).eval()
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    pairs = [(ours.embedding, plain.embedding), (ours.norm, plain.norms[-1])]
    for layer, block in enumerate(ours.blocks):
        q_map, k_map, v_map, output = plain.maps[layer]
        block.attention.projection.joined.weight.copy_(torch.cat([q_map.weight, k_map.weight, v_map.weight]))
        block.attention.output.weight.copy_(output.weight)
        pairs += [(block.attention_norm, plain.norms[2 * layer]), (block.feedforward_norm, plain.norms[2 * layer + 1])]
        pairs += [(block.feedforward.inner, plain.inner[layer]), (block.feedforward.outer, plain.outer[layer])]
    for module, reference in pairs:
        module.load_state_dict(reference.state_dict())
    next(ours.positions.parameters()).copy_(plain.positions.weight)
    assert ours.parameter_count == sum(parameter.numel() for parameter in plain.parameters())

    tokens = torch.randint(29, (2, 7))
    expected, layer_weights = plain(tokens)
    output = ours(tokens, weights=True)
    assert torch.allclose(output.hidden, expected, atol=1e-5)
    assert len(output.weights) == 2
    for weights, reference in zip(output.weights, layer_weights, strict=True):
        assert weights.shape == (2, 3, 7, 7) and torch.allclose(weights, reference, atol=1e-6)

    jumok.save(ours, tmp_path / "own", format="jumok")
    assert torch.equal(jumok.load(tmp_path / "own").model(tokens).hidden, ours(tokens).hidden)
    for fields in ({"final_norm": False}, {"attention_bias": True}):
        with pytest.raises(CheckpointError, match="Hugging Face has no model like this bert"):
            jumok.save(BERT(simple_transformer_config(**sizes, **fields)), tmp_path / "hf", format="huggingface")


def test_simple_transformer_has_the_documented_number_of_parameters() -> None:
    with torch.device("meta"):
        model, headed = (BERT(simple_transformer_config(head=head)) for head in ("none", "mlm"))
    assert model.parameter_count == 26_583_040
    blocks = 6 * (4 * 512 * 512 + 2 * 512 * 2048 + 2048 + 512 + 4 * 512)
    assert model.parameter_count == 10_000 * 512 + 5_000 * 512 + blocks + 2 * 512
    assert headed.parameter_count == 26_583_040 + 512 * 512 + 512 + 2 * 512 + 10_000, "the tied head for masked tokens"
