"""Labels follow the side of an attention: target words for the decoder, source words for the encoder, whatever their
number. In these tests source and target have the same length."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import jumok
from jumok.cli import cli
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.lens.sites import Sites
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.transformer import Transformer, TransformerConfig

SOURCE_LETTERS, TARGET_LETTERS = "abcd", "efgh"
LETTERS = Tokenizer.for_characters(SOURCE_LETTERS + TARGET_LETTERS)


def build_transformer() -> Any:
    torch.manual_seed(0)
    config = TransformerConfig(vocabulary=9, length=16, width=8, layers=2, heads=2, hidden=16, start=0, end=8)
    return Transformer(config).eval()


def build_rnn() -> Any:
    torch.manual_seed(1)
    return RNNSeq2Seq(RNNSeq2SeqConfig(vocabulary=9, embedding_width=8, width=8, start=0, end=8)).eval()


@pytest.fixture(params=[build_transformer, build_rnn], ids=["transformer", "rnn"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    jumok.save(request.param(), tmp_path / "model", tokenizer=LETTERS)
    return tmp_path / "model"


def list_expected(site: str) -> tuple[list[str], list[str]]:
    """The labels of the queries and the keys, by what the name of a site says."""
    source, target = list(SOURCE_LETTERS), list(TARGET_LETTERS)
    if "cross" in site:
        return target, source
    return (target, target) if site.startswith("decoder") else (source, source)


def read_drawn_labels(path: Path) -> list[str]:
    """The labels of a figure: first those of the keys, then those of the queries."""
    return [text for text in re.findall("<!-- (.*?) -->", path.read_text(encoding="utf-8")) if text in "abcdefgh"]


def test_pictures_have_the_words_of_their_side(folder: Path, tmp_path: Path) -> None:
    with jumok.Lens(jumok.load(folder)) as lens:
        source, target = (torch.tensor([LETTERS.encode(letters)]) for letters in (SOURCE_LETTERS, TARGET_LETTERS))
        captures = [
            lens.run(source, target),
            lens.run(source, target, labels=(list(SOURCE_LETTERS), list(TARGET_LETTERS))),
        ]
    for capture in captures:
        for site in capture.sites.names:
            queries, keys = list_expected(site)
            assert capture.label_axes(site) == (queries, keys)
            drawn = read_drawn_labels(capture.plot(site, 0).save(tmp_path / "map.svg"))
            assert drawn == [*keys, *queries]


def test_one_list_labels_only_the_source(tmp_path: Path) -> None:
    with jumok.Lens(build_transformer()) as lens:
        source, target = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[4, 5, 6, 7]])
        capture = lens.run(source, target, labels=list(SOURCE_LETTERS))
        assert capture.label_axes("encoder.0.attention")[0] == list(SOURCE_LETTERS)
        assert capture.label_axes("decoder.0.attention") == (list("0123"), list("0123"))
        assert capture.label_axes("decoder.1.cross") == (list("0123"), list(SOURCE_LETTERS))
        assert read_drawn_labels(capture.plot("decoder.0.attention", 0).save(tmp_path / "a.svg")) == []
        with pytest.raises(ArgumentError, match="there are 3 labels for 4 positions of the target"):
            lens.run(source, target, labels=(list("abcd"), list("efg")))
    with jumok.Lens("tiny") as lens, pytest.raises(ArgumentError, match="give labels as one list"):
        lens.run("ab", labels=(["a", "b"], ["c", "d"]))


def test_look_names_the_side_of_every_token(folder: Path) -> None:
    process = CliRunner().invoke(cli, ["look", str(folder), "abcd", "--limit", "3", "--json"], catch_exceptions=False)
    shown = json.loads(process.stdout)
    assert len(shown["source"]) == len(shown["target"]) == 4
    labels = {"source": shown["source"], "target": shown["target"]}
    for row in shown["tokens"]:
        assert row["label"] == labels[row["side"]][row["token"]]
        for source in row["sources"]:
            assert source["label"] == labels[source["side"]][source["key"]]
            if "cross" in str(source["layer"]):
                assert (row["side"], source["side"]) == ("target", "source")


def test_look_prints_the_tokens_of_each_side_under_its_name(folder: Path) -> None:
    arguments = ["look", str(folder), "abcd", "--limit", "3"]
    lines = CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout.splitlines()
    target = lines.index(" target:")
    assert lines[target + 1].startswith("  <start>[0] <- ") and len(lines[target + 1 :]) == 4
    if " source:" in lines:  # the encoder of an RNN has no attention
        assert [line[:6] for line in lines[target - 4 : target]] == ["  a[0]", "  b[1]", "  c[2]", "  d[3]"]
    assert " source:" not in CliRunner().invoke(cli, ["look", "abcd"], catch_exceptions=False).stdout.splitlines()


def test_edges_are_printed_with_the_words_of_their_side(folder: Path) -> None:
    arguments = ["effect", str(folder), "abcd", "--limit", "3", "--over", "edges", "--verify", "0", "--rows", "500"]
    shown = CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout
    fields = json.loads(CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False).stdout)
    target = "|".join(map(re.escape, dict.fromkeys(fields["target"])))
    is_rnn = isinstance(fields["rows"][0]["layer"], int)  # its only attention is a cross-attention
    crosses = [line for line in shown.splitlines() if "<-" in line and (is_rnn or "cross" in line)]
    assert len(crosses) > 8
    for line in crosses:
        assert re.search(rf"({target})\[\d\] <- [abcd]\[\d\]", line), line


def test_an_equal_key_and_label_on_the_other_side_is_listed_too() -> None:
    """A decoder may attend to the letter a at 1 in its own text, and to the letter a at 1 in the source."""
    from jumok.lens.describe.table_rows import build_table_rows
    from jumok.tasks.labelled_input import LabelledInput

    tokens = torch.tensor([[0, 0, 0]])
    with jumok.Lens(build_transformer()) as lens:
        capture = lens.run(tokens, tokens)
    labelled = LabelledInput((tokens, tokens), list("aaa"), list("aaa"))
    rows = build_table_rows(capture, labelled, capture.sites.names, top=6).tokens
    assert [row["side"] for row in rows] == ["source"] * 3 + ["target"] * 3
    assert {(source["side"], source["key"]) for source in rows[-1]["sources"]} == {
        (side, key) for side in ("source", "target") for key in range(3)
    }


def test_top_keeps_keys_of_the_source_and_of_the_target_apart() -> None:
    tokens = torch.tensor([[0, 0, 0]])
    with jumok.Lens(build_transformer()) as lens:
        capture = lens.run(tokens, tokens)
    attended = capture.top(-1, k=6)
    assert all(key.layer.startswith("decoder") for key in attended), "the query is the last position of the target"
    assert sorted((key.layer.endswith("cross"), key.key) for key in attended) == [
        (is_cross, key) for is_cross in (False, True) for key in range(3)
    ]
    assert {key.layer for key in capture.top(0, layer="encoder.1")} == {"encoder.1.attention"}


def test_a_caption_has_image_regions_and_words(tmp_path: Path) -> None:
    torch.manual_seed(2)
    config = CaptionerConfig(
        vocabulary=9,
        length=8,
        width=8,
        layers=1,
        decoder_layers=1,
        heads=2,
        source="patches",
        image=(4, 4),
        patch=(2, 2),
        start=0,
        end=8,
    )
    jumok.save(Captioner(config), tmp_path / "model", tokenizer=LETTERS)
    from PIL import Image

    Image.new("RGB", (4, 4), "red").save(tmp_path / "image.png")
    arguments = ["look", str(tmp_path / "model"), str(tmp_path / "image.png"), "--limit", "3", "--json"]
    shown = json.loads(CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout)
    assert {row["label"] for row in shown["tokens"] if row["side"] == "source"} == {"1,1", "1,2", "2,1", "2,2"}
    assert [row["label"] for row in shown["tokens"] if row["side"] == "target"] == shown["target"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["blocks.0.attention"], ["ss"]),
        (["model.decoder.layers.0.self_attn"], ["ss"]),  # OPT: a decoder alone reads one text
        (["encoder.0.attention", "decoder.0.attention", "decoder.0.cross"], ["ss", "tt", "ts"]),
        (["reader.0.look", "writer.0.look", "writer.0.cross", "writer.1.look"], ["ss", "tt", "ts", "tt"]),
        (["cross"], ["ts"]),
        (["lower.0.attention", "attention", "cross"], ["ss", "ss", "ts"]),
        (
            [
                "encoder.block.0.layer.0.SelfAttention",
                "decoder.block.0.layer.0.SelfAttention",
                "decoder.block.0.layer.1.EncDecAttention",
            ],
            ["ss", "tt", "ts"],
        ),
        (
            [
                "model.encoder.layers.0.self_attn",
                "model.decoder.layers.0.self_attn",
                "model.decoder.layers.0.encoder_attn",
            ],
            ["ss", "tt", "ts"],
        ),
        (
            [
                "encoder.encoder.layer.0.attention.attention",
                "decoder.bert.encoder.layer.0.attention.self",
                "decoder.bert.encoder.layer.0.crossattention.self",
            ],
            ["ss", "tt", "ts"],
        ),
    ],
)
def test_sides_follow_from_the_names_of_the_modules(names: list[str], expected: list[str]) -> None:
    sites = Sites(names)
    sides = [sites.get_sides(name) for name in names]
    assert [side.queries[0] + side.keys[0] for side in sides] == expected


def test_one_list_of_labels_for_separate_inputs_raises() -> None:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**small, "vocab_size": 20, "max_position_embeddings": 8, "projection_dim": 8},
        vision_config={**small, "image_size": 4, "patch_size": 2, "projection_dim": 8},
        projection_dim=8,
    )
    inputs = {"input_ids": torch.tensor([[1, 2, 3, 4, 5]]), "pixel_values": torch.zeros(1, 3, 4, 4)}
    with jumok.Lens(transformers.CLIPModel(config).eval()) as lens:
        assert lens.run(**inputs).labels is None
        # five tokens, and four patches with the class token
        with pytest.raises(ArgumentError, match="read separate inputs, so one list of labels could belong to any"):
            lens.run(**inputs, labels=list("abcde"))


def test_the_text_of_a_target_is_read_behind_the_start_token() -> None:
    translator = jumok.load("translator")
    assert translator.tokenizer is not None
    with jumok.Lens(translator) as lens:
        capture = lens.run("나는 매일 학교에 간다", "I go to school every day", logits=True)
    assert capture.target_labels == ["<s>", "I", "go", "to", "school", "every", "day"]
    # each row predicts the next word, as it did in training
    assert translator.tokenizer.decode(capture.logits[0].argmax(-1).tolist()) == "I go to school every day </s>"
