"""Texts for models of transformers: tokenizers of both libraries, labels of both sides, metrics of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import jumok
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.data.tokenizers.transformers_tokenizer import TransformersTokenizer, open_tokenizer
from jumok.errors import ArgumentError
from jumok.lens.effects.metrics import LogProbability
from jumok.models.gpt import GPT, GPTConfig
from transformers_folders import build_model, build_tokenizer, write_folder

TEXT = "the cat sat on the mat"
IDS = [0, 4, 5, 6, 7, 4, 8, 2]
LABELS = ["<s>", "the", "cat", "sat", "on", "the", "mat", "</s>"]


@pytest.mark.parametrize("kind", ["transformers", "own", "folder", "library"])
def test_every_kind_of_tokenizer_reads_a_text(kind: str, tmp_path: Path) -> None:
    theirs = build_tokenizer()
    theirs.save_pretrained(tmp_path)
    tokenizers: dict[str, Any] = {
        "transformers": theirs,
        "own": Tokenizer.load(tmp_path),
        "folder": tmp_path,
        "library": theirs.backend_tokenizer,
    }
    model = build_model("opt")
    with jumok.Lens(model, tokenizer=tokenizers[kind]) as lens:
        capture = lens.run(TEXT, logits=True)
    assert capture.labels == LABELS
    torch.testing.assert_close(capture.output.logits, model(torch.tensor([IDS])).logits, rtol=0, atol=1e-5)


def test_model_of_jumok_takes_a_tokenizer_too() -> None:
    model = GPT(GPTConfig(vocabulary=256, width=16, layers=1, heads=2, hidden=16, length=32))
    with jumok.Lens(model, tokenizer=Tokenizer.for_bytes()) as lens:
        assert lens.run("주a").labels == ["주₁", "주₂", "주₃", "a"]


def test_given_tokenizer_is_not_changed() -> None:
    tokenizer = build_tokenizer().backend_tokenizer
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    assert open_tokenizer(tokenizer).encode(TEXT) == IDS
    assert tokenizer.truncation["max_length"] == 3 and tokenizer.padding["length"] == 9


def test_tokenizer_written_in_python_is_adapted() -> None:
    theirs = hf.ByT5Tokenizer()
    tokenizer = open_tokenizer(theirs)
    assert isinstance(tokenizer, TransformersTokenizer)
    ids = theirs("a 주")["input_ids"]
    assert tokenizer.encode("a 주") == ids and tokenizer.end == ids[-1] and tokenizer.unknown == 2
    assert tokenizer.encode("a 주", special=False) == ids[:-1]
    assert tokenizer.decode(ids, special=False) == "a 주"
    assert not tokenizer.contains_id(10**6) and tokenizer.id_to_token(10**6) == "<id 1000000>"
    config = hf.OPTConfig(vocab_size=400, hidden_size=16, word_embed_proj_dim=16, ffn_dim=16, num_hidden_layers=1,
                          num_attention_heads=2)  # fmt: skip
    with jumok.Lens(hf.OPTForCausalLM(config), tokenizer=theirs) as lens:
        assert lens.run("a 주").labels == ["a", "␣", "주₁", "주₂", "주₃", "</s>"]


def test_tokenizer_whose_class_adds_steps_is_not_converted() -> None:
    class Shouting(hf.PreTrainedTokenizerFast):  # type: ignore[misc]
        def encode(self, text: str, **settings: Any) -> Any:
            return super().encode(text.replace("cat", "dog"), **settings)

    tokenizer = Shouting(tokenizer_object=build_tokenizer().backend_tokenizer)
    assert open_tokenizer(tokenizer).encode("cat", special=False) == [10]


@pytest.mark.parametrize("tokenizer", [3, b"bytes", object()])
def test_other_tokenizers_are_refused(tokenizer: object) -> None:
    with pytest.raises(ArgumentError, match="tokenizer must be a Tokenizer of Jumok, a tokenizer of transformers"):
        jumok.Lens(build_model("opt"), tokenizer=tokenizer)


def test_text_without_tokenizer_names_the_argument() -> None:
    with jumok.Lens(build_model("opt")) as lens, pytest.raises(ArgumentError, match="with tokenizer="):
        lens.run(TEXT)


@pytest.mark.parametrize(
    ("name", "decoder_ids", "decoder_labels"),
    [
        # BART starts with </s>, and then reads the tokens of the target without the last one
        ("bart", [2, 0, 9, 10], ["</s>", "<s>", "a", "dog"]),
        # mBART moves the last token of the target, elsewhere the language, to the front
        ("mbart", [2, 0, 9, 10], ["</s>", "<s>", "a", "dog"]),
    ],
)
def test_source_and_target_text_of_an_encoder_decoder(
    name: str, decoder_ids: list[int], decoder_labels: list[str]
) -> None:
    model = build_model(name)
    with jumok.Lens(model, tokenizer=build_tokenizer()) as lens:
        capture = lens.run(TEXT, "a dog", logits=True)
    expected = model(input_ids=torch.tensor([IDS]), decoder_input_ids=torch.tensor([decoder_ids])).logits
    torch.testing.assert_close(capture.output.logits, expected, rtol=0, atol=1e-5)
    assert (capture.labels, capture.target_labels) == (LABELS, decoder_labels)


def test_target_without_an_end_token_loses_no_word() -> None:
    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    with jumok.Lens(build_model("bart"), tokenizer=tokenizer) as lens:
        assert lens.run("the cat", "a dog").target_labels == ["</s>", "a", "dog"]


def test_source_without_a_target_is_refused() -> None:
    with jumok.Lens(build_model("bart"), tokenizer=build_tokenizer()) as lens:
        with pytest.raises(ArgumentError, match=r"reads a source and a target; give both texts"):
            lens.run(TEXT)
        assert lens.run(TEXT, decoder_input_ids=torch.tensor([[2, 9]])).target_labels == ["</s>", "a"]


def test_tensors_by_name_are_labelled() -> None:
    inputs = {"input_ids": torch.tensor([IDS]), "decoder_input_ids": torch.tensor([[2, 9]])}
    with jumok.Lens(build_model("bart"), tokenizer=build_tokenizer()) as lens:
        capture = lens.run(**inputs)
        assert (capture.labels, capture.target_labels) == (LABELS, ["</s>", "a"])
        # two tensors are the arguments of transformers: tokens and a mask
        capture = lens.run(torch.tensor([IDS]), torch.ones(1, len(IDS), dtype=torch.long))
        assert capture.labels == LABELS


def test_two_texts_for_one_sequence_are_refused() -> None:
    with (
        jumok.Lens(build_model("electra"), tokenizer=build_tokenizer()) as lens,
        pytest.raises(ArgumentError, match=r"ElectraForPreTraining reads one text, not 2 inputs.*tokenizer\(first"),
    ):
        lens.run("the cat", "a dog")


def test_metrics_resolve_texts_with_the_tokenizer() -> None:
    model, tokenizer = build_model("opt"), build_tokenizer()
    effects = jumok.effect(model, "the cat", metric=LogProbability("sat"), tokenizer=tokenizer)
    logits = model(torch.tensor([[0, 4, 5, 2]])).logits
    assert effects.clean == pytest.approx(logits[0, -1].log_softmax(-1)[6].item(), abs=1e-5)
    with pytest.raises(ArgumentError, match="'elephant' is unknown to this model's tokenizer"):
        jumok.effect(model, "the cat", metric=LogProbability("elephant"), tokenizer=tokenizer)
    with pytest.raises(ArgumentError, match=r"needs a tokenizer: .* pass tokenizer="):
        jumok.effect(model, [4, 5], metric=LogProbability("sat"))


def test_effect_on_a_pair_of_texts() -> None:
    model = build_model("bart")
    effects = jumok.effect(model, TEXT, "a dog", metric=LogProbability("sat"), tokenizer=build_tokenizer())
    logits = model(input_ids=torch.tensor([IDS]), decoder_input_ids=torch.tensor([[2, 0, 9, 10]])).logits
    assert effects.clean == pytest.approx(logits[0, -1].log_softmax(-1)[6].item(), abs=1e-5)
    assert len(effects) == 24


def test_token_scores_of_electra_are_not_classes() -> None:
    model = build_model("electra")
    effects = jumok.effect(model, "the cat", tokenizer=build_tokenizer())
    assert str(effects.metric) == "number at position -1"
    assert effects.clean == pytest.approx(model(torch.tensor([[0, 4, 5, 2]])).logits[0, -1].item(), abs=1e-5)


def test_lens_opens_a_folder_with_its_tokenizer(tmp_path: Path) -> None:
    with jumok.Lens(write_folder(tmp_path / "opt", "opt")) as lens:
        assert lens.run(TEXT).labels == LABELS
