"""jumok export: transformers loads what it writes without a remark, and computes the same logits."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

import jumok
from jumok.checkpoint.huggingface import DIALECTS, find_dialect_for
from jumok.cli import cli
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import CheckpointError
from jumok.models import (
    GPT,
    BERTConfig,
    GPTConfig,
    Model,
    Numeric,
    NumericConfig,
    RNNSeq2Seq,
    RNNSeq2SeqConfig,
    llama_config,
)
from jumok.models.bert import BERT
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.models.classifier import Classifier, ClassifierConfig
from jumok.models.long import LongConfig
from jumok.models.swin import Swin, SwinConfig
from jumok.models.t5 import T5, T5Config
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.models.vit import ViT, ViTConfig
from parity import assert_parity, perturb_parameters

SPECIAL_TOKENS = {"pad": "<pad>", "unknown": "<unk>"}
TOKENIZER = Tokenizer.train(["the cat sat on the mat"] * 9, 270, SPECIAL_TOKENS)
SIZES: dict[str, Any] = {"vocabulary": TOKENIZER.vocabulary, "width": 24, "heads": 3, "hidden": 40, "layers": 2}
LABELS = ["bad", "so-so", "good"]


def build_encoder(**fields: Any) -> BERTConfig:
    return BERTConfig.from_json({**SIZES, "length": 30, "segments": 0, **fields})


def build_classifier(pool: str = "mean", **fields: Any) -> Model:
    torch.manual_seed(4)
    return perturb_parameters(Classifier(ClassifierConfig(encoder=build_encoder(**fields), pool=pool, classes=3)))


@contextmanager
def collect_log() -> Iterator[list[str]]:
    """Collect everything that transformers logs."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def load_silently(loader: Any, folder: Path) -> Any:
    """Load a folder with transformers, and assert that it reports nothing."""
    with collect_log() as lines:
        theirs, report = loader.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert lines == []
    return theirs.eval()


def export(*arguments: str | Path) -> dict[str, Any]:
    outcome = CliRunner().invoke(cli, ["export", *map(str, arguments), "--json"], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    document: dict[str, Any] = json.loads(outcome.stdout)
    return document


@pytest.mark.parametrize("pool", ["mean", "first"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"activation": "relu"},
        {"segments": 2, "hidden": 96},
        {"offset": 3, "padding_id": 2, "segments": 1, "epsilon": 1e-5},
    ],
)
def test_classifier_becomes_a_sequence_classifier(tmp_path: Path, pool: str, fields: dict[str, Any]) -> None:
    model = build_classifier(pool, **fields)
    jumok.save(model, tmp_path / "run", tokenizer=TOKENIZER, labels=LABELS)
    document = export(tmp_path / "run", tmp_path / "theirs", "--format", "huggingface")
    assert document["architecture"] == "XLMForSequenceClassification" and "tokenizer.json" in document["files"]
    assert bool(document["restrictions"]) == (pool == "mean")

    theirs = load_silently(transformers.AutoModelForSequenceClassification, tmp_path / "theirs")
    assert theirs.config.id2label == dict(enumerate(LABELS))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    again = jumok.load(tmp_path / "theirs")
    assert again.labels == tuple(LABELS)
    for text in ("the cat", "mat", "sat on the mat the cat sat"):
        encoded = tokenizer(text, return_tensors="pt")
        assert encoded["input_ids"][0].tolist() == TOKENIZER.encode(text)
        with torch.no_grad():
            logits = model(encoded["input_ids"]).logits
            assert_parity(theirs(**encoded).logits, logits)
            assert_parity(theirs(encoded["input_ids"]).logits, logits)
            assert_parity(again.model(encoded["input_ids"]).logits, logits)


def test_pipeline_names_the_classes(tmp_path: Path) -> None:
    jumok.save(build_classifier(), tmp_path / "run", tokenizer=TOKENIZER, labels=LABELS)
    export(tmp_path / "run", tmp_path / "theirs")
    rows = transformers.pipeline("text-classification", str(tmp_path / "theirs"), top_k=None)(["the cat", "on the mat"])
    for text, row in zip(("the cat", "on the mat"), rows, strict=True):
        expected = {share["name"]: share["share"] for share in jumok.run(tmp_path / "run", text)}
        assert {share["label"]: share["score"] for share in row} == pytest.approx(expected, abs=1e-5)


def build_chat_model(config: GPTConfig, end: str) -> tuple[GPT, Tokenizer]:
    """Return a model that writes the next letters, ends its turn after "d", and goes on with "a"."""
    tokenizer = Tokenizer.for_characters("abcdef").with_special_tokens(["<end>", "<turn>"])
    turn = tokenizer.encode("<turn>")[0]
    tokenizer = Tokenizer(tokenizer._inner, {"end": end}, "{{ messages[0]['content'] }}", [turn])
    model = GPT(config.replace(vocabulary=tokenizer.vocabulary, width=12, heads=3, hidden=12, layers=1, tied=False))
    following = dict(zip(tokenizer.encode("abcd<turn>"), tokenizer.encode("bcd<turn>a"), strict=True))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(float("norm" in name and name.endswith("weight")))  # the residual is the embedding
        model.embedding.weight.fill_diagonal_(1)
        for token, next_token in following.items():
            model.output.weight[next_token, token] = 1
    return model, tokenizer


@pytest.mark.parametrize("end", ["<turn>", "<end>"])
@pytest.mark.parametrize("config", [llama_config(), GPTConfig()], ids=["llama", "gpt2"])
def test_pipeline_of_a_chat_model_stops_where_ours_does(tmp_path: Path, config: GPTConfig, end: str) -> None:
    model, tokenizer = build_chat_model(config, end)
    jumok.save(model, tmp_path / "theirs", "huggingface", tokenizer)
    chat = [{"role": "user", "content": "b"}]
    pipeline = transformers.pipeline("text-generation", str(tmp_path / "theirs"))
    answer = pipeline(chat, max_new_tokens=9, do_sample=False)[0]["generated_text"][-1]["content"]
    assert answer == "cd" == jumok.run(tmp_path / "theirs", "b", chat=True, limit=9).removesuffix("<turn>")
    ends = tokenizer.encode(end)[0] if end == "<turn>" else tokenizer.encode("<end><turn>")
    for name in ("config.json", "generation_config.json"):
        assert json.loads((tmp_path / "theirs" / name).read_text())["eos_token_id"] == ends
    assert json.loads((tmp_path / "theirs/tokenizer_config.json").read_text())["eos_token"] == end


def test_padded_batches_are_right_or_refused(tmp_path: Path) -> None:
    texts = ["the cat", "sat on the mat the cat"]
    for pool in ("first", "mean"):
        model = build_classifier(pool)
        jumok.save(jumok.checkpoint.Loaded(model, TOKENIZER), tmp_path / pool, "huggingface")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / pool)
        if pool == "mean":  # transformers would average the padding
            with pytest.raises(ValueError, match="padding token"):
                tokenizer(texts, padding=True)
            continue
        encoded = tokenizer(texts, padding=True, return_tensors="pt")
        theirs = load_silently(transformers.AutoModelForSequenceClassification, tmp_path / pool)
        with torch.no_grad():
            expected = torch.cat([model(torch.tensor([TOKENIZER.encode(text)])).logits for text in texts])
            assert_parity(theirs(**encoded).logits, expected)


PARTS = {**SIZES, "length": 30}
MODELS: dict[str, tuple[Any, str]] = {
    "pegasus": (
        lambda: Transformer(TransformerConfig.from_json({**PARTS, "layout": "halves", "order": "pre"})),
        "AutoModelForSeq2SeqLM",
    ),
    "pegasus with bias": (
        lambda: Transformer(
            TransformerConfig.from_json({**PARTS, "layout": "halves", "order": "pre", "output_bias": True})
        ),
        "AutoModelForSeq2SeqLM",
    ),
    "marian": (
        lambda: Transformer(TransformerConfig.from_json({**PARTS, "layout": "halves", "order": "post"})),
        "AutoModelForSeq2SeqLM",
    ),
    "t5": (
        lambda: T5(T5Config.from_json(SIZES)),
        "AutoModelForSeq2SeqLM",
    ),
    "gpt2": (lambda: GPT(GPTConfig.from_json(PARTS)), "AutoModelForCausalLM"),
    "llama": (lambda: GPT(llama_config(**PARTS, tied=False)), "AutoModelForCausalLM"),
    "masked bert": (lambda: BERT(build_encoder(segments=2, head="mlm")), "AutoModelForMaskedLM"),
    "masked distilbert": (lambda: BERT(build_encoder(head="mlm")), "AutoModelForMaskedLM"),
    "bert classes": (
        lambda: BERT(build_encoder(segments=2, head="classes", head_activation="tanh", classes=3)),
        "AutoModelForSequenceClassification",
    ),
    "vit": (
        lambda: ViT(ViTConfig.from_json({"image": [8, 8], "patch": [4, 4], "width": 24, "heads": 3, "hidden": 40,
                                         "layers": 2, "head": "classes", "classes": 3})),
        "AutoModelForImageClassification",
    ),
    "swin": (
        lambda: Swin(SwinConfig.from_json({"image": [16, 16], "patch": [2, 2], "width": 12, "depths": [2, 2],
                                           "heads": [2, 4], "window": 4, "head": "classes", "classes": 3})),
        "AutoModelForImageClassification",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_transformers_loads_every_family_without_a_remark(tmp_path: Path, name: str) -> None:
    build, loader = MODELS[name]
    torch.manual_seed(4)
    model = perturb_parameters(build())
    loaded = jumok.checkpoint.Loaded(model, TOKENIZER if model.reads == "text" else None)
    jumok.save(loaded, tmp_path / "run")
    export(tmp_path / "run", tmp_path / "theirs")
    theirs = load_silently(getattr(transformers, loader), tmp_path / "theirs")
    with torch.no_grad():
        if model.reads == "image":
            image = torch.randn(2, 3, *model.image_size)
            assert_parity(theirs(image).logits, model(image).logits)
            return
        encoded = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")("the cat sat", return_tensors="pt")
        assert set(encoded) == {"input_ids", "attention_mask"}
        target = torch.tensor([[0, 7, 20, 9]])
        inputs = {"decoder_input_ids": target} if model.is_encoder_decoder else {}
        arguments = (encoded["input_ids"], target) if model.is_encoder_decoder else (encoded["input_ids"],)
        assert_parity(theirs(**encoded, **inputs).logits, model(*arguments).logits)


@pytest.mark.parametrize("base", [{}, {"scaled_embedding": True}, {"query_key_norm": True}], ids=str)
@pytest.mark.parametrize("build", [GPTConfig, llama_config])
def test_every_switch_of_a_gpt_is_written_or_refused(build: Any, base: dict[str, bool]) -> None:
    """What a dialect neither writes nor refuses would be lost without a word."""
    config = build(**base)
    for field in fields(GPTConfig):
        if field.metadata["kind"] is not bool or field.name == "fixed_length":  # which decides only when to stop
            continue
        written = []
        for value in (False, True):
            switched = config.replace(**{field.name: value})
            with contextlib.suppress(CheckpointError):
                written.append(find_dialect_for(switched).to_hf_config(switched))
        assert len(written) < 2 or written[0] != written[1], field.name


@pytest.mark.parametrize(
    "build",
    [
        lambda: Captioner(CaptionerConfig.from_json({"image": [8, 8], "patch": [4, 4], **SIZES})),
        lambda: Numeric(NumericConfig()),
        lambda: RNNSeq2Seq(RNNSeq2SeqConfig(vocabulary=20, embedding_width=8, width=12)),
        lambda: Classifier(ClassifierConfig(encoder=LongConfig.from_json({**SIZES, "length": 32}), classes=3)),
        lambda: build_classifier(activation="silu"),
        lambda: build_classifier(hidden=97),
    ],
)
def test_a_model_without_an_equivalent_is_refused(tmp_path: Path, build: Any) -> None:
    jumok.save(build(), tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=r'Hugging Face has no model like this .*; the format "jumok" can store it'
    ):
        CliRunner().invoke(
            cli,
            ["export", str(tmp_path / "run"), str(tmp_path / "theirs")],
            catch_exceptions=False,
            standalone_mode=False,
        )
    assert not (tmp_path / "theirs").exists()
    document = export(tmp_path / "run", tmp_path / "ours", "--format", "jumok")
    assert document["architecture"] is None and "config.json" in document["files"]
    jumok.load(tmp_path / "ours")


def test_export_says_how_to_load_the_folder(tmp_path: Path) -> None:
    jumok.save(build_classifier(), tmp_path / "run", tokenizer=TOKENIZER)
    outcome = CliRunner().invoke(cli, ["export", str(tmp_path / "run"), str(tmp_path / "theirs")])
    assert f"transformers.XLMForSequenceClassification.from_pretrained('{tmp_path / 'theirs'}')" in outcome.stdout
    assert "give it one text at a time" in outcome.stderr and outcome.exit_code == 0
    with pytest.raises(CheckpointError, match="exists"):
        jumok.save(build_classifier(), tmp_path / "theirs", format="huggingface")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["XLMWithLMHeadModel"]}, "not a classifier"),
        ({"n_langs": 2}, "n_langs"),
        ({"summary_type": "last"}, "summary_type 'last'"),
        ({"summary_activation": "tanh"}, "summary_activation"),
        ({"emb_dim": "x"}, "emb_dim"),
        ({"n_layers": 10**9}, "layers"),
    ],
)
def test_other_xlm_models_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    jumok.save(build_classifier(), tmp_path / "theirs", format="huggingface")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(jumok.JumokError, match=message):
        jumok.load(tmp_path / "theirs")
    assert DIALECTS["xlm"].can_express(build_encoder()) is False


def test_parts_that_do_not_join_are_named(tmp_path: Path) -> None:
    jumok.save(GPT(llama_config(vocabulary=11, width=12, heads=3, hidden=12, layers=1)), tmp_path / "m", "huggingface")
    path = tmp_path / "m/model.safetensors"
    tensors = load_file(path)
    name = "model.layers.0.self_attn.k_proj.weight"
    save_file({**tensors, name: tensors[name][:, :7].contiguous()}, path)
    with pytest.raises(CheckpointError, match=r"k_proj.weight \[12, 7\].* cannot be joined to 'blocks.0"):
        jumok.load(tmp_path / "m")
