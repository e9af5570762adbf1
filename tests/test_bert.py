"""BERT, RoBERTa and DistilBERT against transformers."""

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
from jumok.models.bert import BERT, BERTConfig
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
REAL = {
    "none": None,
    "right": [[1] * LENGTH, [1] * 7 + [0] * 4],
    "left": [[1] * LENGTH, [0] * 4 + [1] * 7],
}


@pytest.mark.parametrize("side", REAL)
@pytest.mark.parametrize("name", CASES)
def test_it_is_transformers(name: str, side: str, tmp_path: Path) -> None:
    theirs = CASES[name]()
    tokens = torch.randint(5, 97, (2, LENGTH))
    if "roberta" in name:
        tokens[0, 3] = theirs.config.pad_token_id  # in the middle, and real: it takes no position
    settings: dict[str, Any] = {}
    real = None if REAL[side] is None else torch.tensor(REAL[side]).bool()
    if real is not None:
        tokens[~real] = theirs.config.pad_token_id
        settings["attention_mask"] = real.long()
        if "roberta" not in name:  # which counts by itself; the others would count padding on the left
            settings["position_ids"] = (real.long().cumsum(-1) - 1).clamp_min(0)
    segments = None
    if name.startswith("bert"):
        segments = settings["token_type_ids"] = torch.randint(theirs.config.type_vocab_size, (2, LENGTH))

    def check(ours: Model, theirs: Any) -> None:
        found, wanted = ours(tokens, token_mask=real, segments=segments), theirs(tokens, **settings)
        if name in CLASSES:
            assert_parity(found.logits, their_logits(theirs, tokens, real, settings))
            found, wanted = ours(tokens).logits, theirs(tokens).logits
        elif "mlm" in name:
            assert_parity(found.logits, wanted.logits, real)
            found, wanted = ours(tokens).logits, theirs(tokens).logits
        else:
            assert found.logits is None
            assert_parity(found.hidden, wanted.last_hidden_state, real)
            found, wanted = ours(tokens).hidden, theirs(tokens).last_hidden_state
        assert_parity(found, wanted)  # nothing told, nothing masked: padding tokens are tokens

    check_round_trip(theirs, tmp_path, check)


def their_logits(
    theirs: Any, tokens: torch.Tensor, real: torch.Tensor | None, settings: dict[str, Any]
) -> torch.Tensor:
    """Of a text alone where padding stands before it: they would read the first token, which is padding."""
    if real is None or real[:, 0].all():
        return theirs(tokens, **settings).logits
    rows = []
    for row, kept in enumerate(real):
        alone = {name: one[row : row + 1, kept] for name, one in settings.items()}
        rows.append(theirs(tokens[row : row + 1, kept], **alone).logits)
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
def test_what_the_classes_are_is_read_and_written(change: dict[str, Any], answer: str, tmp_path: Path) -> None:
    theirs = BertForSequenceClassification(BertConfig(**SIZES, **change))
    theirs.save_pretrained(tmp_path / "made")
    loaded = jumok.load(tmp_path / "made")
    assert (loaded.config.head, loaded.config.answer) == ("classes", answer)
    assert loaded.config.classes == change.get("num_labels", 2)
    jumok.save(loaded.model, tmp_path / "again", format="huggingface")
    again = BertForSequenceClassification.from_pretrained(tmp_path / "again").config
    assert again.num_labels == loaded.config.classes
    assert jumok.load(tmp_path / "again").config == loaded.config
    assert again.problem_type == change.get("problem_type", again.problem_type)


def test_the_folder_says_which_head(tmp_path: Path) -> None:
    theirs = BertForPreTraining(BertConfig(**SIZES)).eval()  # a second head is there too, and is left out
    theirs.save_pretrained(tmp_path / "both")
    tokens = torch.randint(97, (1, 6))
    with torch.no_grad():
        assert_parity(jumok.load(tmp_path / "both").model(tokens).logits, theirs(tokens).prediction_logits)
    BertForTokenClassification(BertConfig(**SIZES)).save_pretrained(tmp_path / "classes")
    with pytest.raises(CheckpointError, match="does not have: classifier"):
        jumok.load(tmp_path / "classes")
    BertForSequenceClassification(BertConfig(**SIZES)).save_pretrained(tmp_path / "texts")
    file = tmp_path / "texts" / "config.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "problem_type": "evil"}))
    with pytest.raises(CheckpointError, match="problem_type = 'evil'; supported are single_label"):
        jumok.load(tmp_path / "texts")
    file.write_text(json.dumps({**told, "id2label": {str(place): "x" for place in range(3)}}))
    with pytest.raises(CheckpointError, match=r"classifier.weight give \[2, 30\], but by its config"):
        jumok.load(tmp_path / "texts")


def test_old_names_of_norms_load(tmp_path: Path) -> None:
    """Files converted from the first BERT's say gamma and beta, and hold the positions' numbers."""
    theirs = BertForMaskedLM(BertConfig(**SIZES)).eval()
    theirs.save_pretrained(tmp_path / "old")
    file = tmp_path / "old" / "model.safetensors"
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(file).items()
    }
    assert any(name.endswith("gamma") for name in renamed)
    save_file({**renamed, "bert.embeddings.position_ids": torch.arange(29)[None]}, file, {"format": "pt"})
    tokens = torch.randint(97, (1, 6))
    with torch.no_grad():
        assert_parity(jumok.load(tmp_path / "old").model(tokens).logits, theirs(tokens).logits)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"is_decoder": True}, "is_decoder = 'True'; only False"),
        ({"position_embedding_type": "relative_key"}, "'relative_key'; only 'absolute'"),
        ({"hidden_act": "mish"}, "activation of the bert config must be one of relu"),
        ({"type_vocab_size": "two"}, "type_vocab_size in config.json must be an integer, not 'two'"),
        ({"hidden_size": 31}, "width 31 does not divide into 5 heads"),
    ],
)
def test_what_is_not_supported_is_refused_in_a_sentence(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    BertModel(BertConfig(**SIZES)).save_pretrained(tmp_path / "made")
    file = tmp_path / "made" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises((CheckpointError, ArgumentError), match=says):
        jumok.load(tmp_path / "made")


SMALL = {"vocabulary": 50, "length": 20, "width": 24, "layers": 2, "heads": 4, "hidden": 40}
CONFIGS = {
    "bert": BERTConfig(**SMALL, head="mlm"),
    "roberta": BERTConfig(**SMALL, segments=1, offset=2, padding_id=1, head="mlm", tied=False),
    "distilbert": BERTConfig(**SMALL, segments=0, head="mlm"),
}
CLASSIFIER = BERTConfig(**SMALL, head="classes", head_activation="tanh", classes=3)


def real_tokens(side: str) -> torch.Tensor:
    real = torch.ones(2, 9).bool()
    real[1, slice(0, 3) if side == "left" else slice(6, 9)] = False
    return real


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_nothing_moves_when_the_padding_changes(name: str, side: str) -> None:
    model = BERT(CONFIGS[name]).eval()
    tokens, real = torch.randint(2, 50, (2, 9)), real_tokens(side)
    other = torch.where(real, tokens, (tokens + 11) % 50)
    with torch.no_grad():
        one, two = model(tokens, token_mask=real).logits, model(other, token_mask=real).logits
        alone = model(tokens[1:, real[1]]).logits
    assert torch.equal(one[real], two[real])
    assert torch.allclose(one[1, real[1]], alone[0], atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_no_class_moves_when_the_padding_changes(side: str) -> None:
    model = BERT(CLASSIFIER).eval()
    tokens, real = torch.randint(2, 50, (2, 9)), real_tokens(side)
    other = torch.where(real, tokens, (tokens + 11) % 50)
    with torch.no_grad():
        one, two = model(tokens, token_mask=real).logits, model(other, token_mask=real).logits
        assert torch.allclose(one[1:], model(tokens[1:, real[1]]).logits, atol=1e-5)
    assert torch.equal(one, two) and list(one.shape) == [2, 3]


def test_every_token_sees_every_other_and_the_segments() -> None:
    model = BERT(CONFIGS["bert"]).eval()
    tokens = torch.randint(50, (1, 9))
    other = tokens.clone()
    other[0, 8] = (other[0, 8] + 1) % 50
    segments = torch.tensor([[0] * 5 + [1] * 4])
    with torch.no_grad():
        one, two, three = model(tokens).hidden, model(other).hidden, model(tokens, segments=segments).hidden
        assert torch.equal(model(tokens, segments=torch.zeros_like(segments)).hidden, one)
    assert ((one - two).abs().amax(-1) > 0).all() and ((one - three).abs().amax(-1) > 0).all()


def test_every_layers_weights() -> None:
    model = BERT(CONFIGS["bert"]).eval()
    real = real_tokens("left")
    output = model(torch.randint(50, (2, 9)), token_mask=real, weights=True)
    assert [list(one.shape) for one in output.weights] == [[2, 4, 9, 9]] * 2
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
        model(tokens, token_mask=real_tokens("right")).logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for one, two in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert torch.allclose(one, two, atol=1e-6)


def test_dropout_drops_while_training_alone() -> None:
    model = BERT(CONFIGS["bert"].replace(dropout=0.5))
    tokens = torch.randint(50, (2, 9))
    assert not torch.equal(model.train()(tokens).hidden, model(tokens).hidden)
    assert torch.equal(model.eval()(tokens).hidden, model(tokens).hidden)


def test_the_published_numbers_of_parameters() -> None:
    # the papers' encoders, poolers (768 x 768 + 768) left out
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
    ("fields", "says"),
    [
        ({"heads": 5}, "width 24 does not divide into 5 heads"),
        ({"head": "nsp"}, "head of the bert config must be one of none, mlm, classes, not 'nsp'"),
        ({"head": "mlm", "head_activation": "tanh"}, "is only for the head"),
        ({"padding_id": 1}, "with a padding_id the offset must be at least 1"),
        ({"segment": 2}, "did you mean 'segments'"),
    ],
)
def test_a_bad_config_is_refused_in_a_sentence(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        BERTConfig.from_json({**SMALL, **fields})


@pytest.mark.parametrize(
    ("name", "length", "settings", "says"),
    [
        ("bert", 21, {}, "position 20 is outside the 20 positions"),
        ("roberta", 21, {}, "position 22 is outside"),
        ("bert", 9, {"token_mask": torch.ones(2, 8).bool()}, r"token_mask is \[2, 8\], but the tokens are \[2, 9\]"),
        ("bert", 9, {"segments": torch.ones(2, 8).long()}, r"segments are \[2, 8\], but the tokens are \[2, 9\]"),
        ("bert", 9, {"segments": torch.full((2, 9), 2)}, "segment 2 is out of range: this model has 0 to 1"),
        ("distilbert", 9, {"segments": torch.zeros(2, 9).long()}, "this model has no segments"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(name: str, length: int, settings: dict[str, Any], says: str) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=says):
        BERT(CONFIGS[name])(torch.full((2, length), 7), **settings)


def test_what_transformers_has_no_model_for_is_saved_in_our_format_alone(tmp_path: Path) -> None:
    model = BERT(CONFIGS["distilbert"].replace(epsilon=1e-5)).eval()
    with pytest.raises(CheckpointError, match="save it with format='jumok'"):
        jumok.save(model, tmp_path / "theirs", format="huggingface")
    for wrong in (CLASSIFIER.replace(head_activation="relu"), CLASSIFIER.replace(segments=0)):
        with pytest.raises(CheckpointError, match="save it with format='jumok'"):
            jumok.save(BERT(wrong), tmp_path / "theirs", format="huggingface")
    jumok.save(model, tmp_path / "own")
    tokens = torch.randint(50, (1, 9))
    assert torch.equal(jumok.load(tmp_path / "own").model(tokens).logits, model(tokens).logits)
