"""The lens: weights equal to the explicit formula, edits do what they say, and a closed lens leaves nothing behind."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

import jumok
from jumok import attend
from jumok.attention import mask, score
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Edit, KnockOut, Lens, Patch, Remask, Scale
from jumok.lens.capture import captured_attention
from jumok.lens.capture.recorder import Recorder
from jumok.models.bert import BERT, BERTConfig
from jumok.models.gpt import GPT, GPTConfig, llama_config
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.t5 import T5, T5Config
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.models.vit import ViT, ViTConfig

SMALL = {"width": 24, "layers": 2, "heads": 4, "hidden": 32}
TOKENS = torch.randint(1, 40, (2, 11), generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(1, 40, (2, 7), generator=torch.Generator().manual_seed(1))


def build_model(family: Any, config: Any, factor: int = 4) -> Any:
    """A model with larger parameters than a new one, so that its heads attend to some keys more than to others."""
    torch.manual_seed(3)
    model = family(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(factor)
    return model


def build_gpt(**fields: Any) -> GPT:
    return build_model(GPT, GPTConfig(vocabulary=40, length=16, **{**SMALL, **fields}))


MODELS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "gpt": (build_gpt, (TOKENS,), {}),
    "llama, grouped, window": (
        lambda: build_model(GPT, llama_config(vocabulary=40, length=16, groups=2, window=4, **SMALL)),
        (TOKENS,),
        {},
    ),
    "bert, padded": (
        lambda: build_model(BERT, BERTConfig(vocabulary=40, length=16, **SMALL)),
        (TOKENS,),
        {"token_mask": torch.arange(11) < torch.tensor([[11], [6]])},
    ),
    "t5": (
        lambda: build_model(T5, T5Config(vocabulary=40, width=24, layers=2, decoder_layers=2, heads=4, hidden=32), 2),
        (TOKENS, TARGETS),
        {},
    ),
    "transformer": (
        lambda: build_model(Transformer, TransformerConfig(vocabulary=40, length=16, **SMALL), 2),
        (TOKENS, TARGETS),
        {},
    ),
    "vit": (
        lambda: build_model(ViT, ViTConfig(image=(8, 8), patch=(4, 4), channels=1, **SMALL)),
        (torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(2)),),
        {},
    ),
}


def flatten_weights(weights: Any) -> list[Tensor]:
    """The weights that the model itself returns, in the order of its sites."""
    if isinstance(weights, dict):
        decoder_layers = zip(weights["decoder"], weights["cross"], strict=True)
        return [*weights["encoder"], *(table for layer in decoder_layers for table in layer)]
    return list(weights)


@pytest.mark.parametrize("name", MODELS)
def test_weights_equal_the_explicit_formula(name: str) -> None:
    build, inputs, settings = MODELS[name]
    model = build()
    with torch.no_grad():
        expected = flatten_weights(model(*inputs, **settings, weights=True).weights)
    with Lens(model) as lens:
        capture = lens.run(*inputs, **settings)
    assert len(capture.sites.names) == len(expected)
    for site, table in zip(capture.sites.names, expected, strict=True):
        (call,) = capture.attention(site).calls
        query, key = call.query.double(), call.key.double()
        positions = {"query_positions": call.query_positions, "key_positions": call.key_positions}
        _, exact = attend(query, key, key, mask=call.mask, bias=call.bias, score=call.score, weights=True, **positions)
        for batch in range(2):
            for head in range(capture.heads(site)):
                weights = capture.weights(site, head, batch)
                assert (weights - exact[batch, head]).abs().max() < 1e-6
                assert (weights - table[batch, head]).abs().max() < 1e-5, "up to the rounding of float32"
                tile = capture.tile(site, head, slice(2, 5), slice(1, 4), batch)
                assert torch.equal(tile, weights[2:5, 1:4])
                assert torch.equal(capture.row(site, head, 3, batch), weights[3])


def test_long_rows_are_computed_from_the_log_sum_exp(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_gpt()
    with Lens(model) as lens:
        capture, fresh_capture = lens.run(TOKENS), lens.run(TOKENS)
    full_rows = capture.weights(1, 2)
    monkeypatch.setattr(captured_attention, "FULL_ROW_KEYS", 0)
    from_logsumexp = fresh_capture.weights(1, 2)  # a capture caches the last map that it computed
    assert (from_logsumexp - full_rows).abs().max() < 2e-6
    assert not torch.equal(from_logsumexp, full_rows), "computed in another way"


def test_a_recurrent_decoder_has_one_row_for_each_step() -> None:
    config = RNNSeq2SeqConfig(vocabulary=40, embedding_width=8, width=12, attention="bahdanau")
    model = build_model(RNNSeq2Seq, config)
    with torch.no_grad():
        expected = model(TOKENS, TARGETS, weights=True).weights["cross"][-1]
    with Lens(model) as lens:
        capture = lens.run(TOKENS, TARGETS)
    (site,) = capture.sites.names
    assert (capture.weights(site, 0, 1) - expected[1, 0]).abs().max() < 1e-6


def test_decoding_steps_are_joined_into_one_map() -> None:
    from jumok.attention.cache import Cache
    from jumok.tap import listen

    model = build_gpt()
    with Lens(model) as lens:
        capture = lens.run(TOKENS)
    cache, recorder = Cache(), Recorder()
    with torch.no_grad(), listen(recorder):
        for position in range(11):
            model(TOKENS[:, position : position + 1], cache=cache)
    site = capture.sites.names[1]
    weights = recorder.attentions[site].tile(1, 3, slice(None), slice(None))
    assert (weights - capture.weights(1, 3, 1)).abs().max() < 1e-6


def test_an_overview_pools_the_map() -> None:
    model = build_gpt()
    with Lens(model) as lens:
        capture = lens.run(TOKENS)
    exact = capture.weights(0, 1)
    assert torch.allclose(capture.overview(0, 1, 64).mean, exact, atol=1e-6)
    pooled = capture.overview(0, 1, 4)
    ends = [0, 2, 5, 8, 11]
    for row in range(4):
        for column in range(4):
            cell = exact[ends[row] : ends[row + 1], ends[column] : ends[column + 1]]
            assert pooled.mean[row, column] == pytest.approx(float(cell.mean()), abs=1e-6)
            assert pooled.largest[row, column] == pytest.approx(float(cell.max()), abs=1e-6)


def test_top_returns_the_largest_weights_of_any_head() -> None:
    model = build_gpt()
    with Lens(model) as lens:
        capture = lens.run(TOKENS)
    rows = [capture.weights(layer, head)[9] for layer in range(2) for head in range(4)]
    largest = torch.stack(rows).amax(0)
    attended = capture.top(9, 3)
    assert [source.key for source in attended] == largest.topk(3).indices.tolist()
    assert [source.weight for source in attended] == pytest.approx(largest.topk(3).values.tolist())
    assert all(source.key <= 9 for source in attended), "a causal model attends to no later key"
    assert all(source.layer in capture.sites.names for source in attended)


# edits


def compute_logits(model: Any, *edits: Edit, **settings: Any) -> Tensor:
    with Lens(model) as lens:
        return lens.run(TOKENS, edits=edits, logits=True, **settings).logits


def test_a_lens_without_edits_changes_no_bit() -> None:
    model = build_gpt()
    with torch.no_grad():
        assert torch.equal(compute_logits(model), model(TOKENS).logits)


@pytest.mark.parametrize("grouped", [False, True])
def test_ablating_a_head_equals_zeroing_its_output_projection(grouped: bool) -> None:
    model = build_model(GPT, llama_config(vocabulary=40, length=16, groups=2, **SMALL)) if grouped else build_gpt()
    ablated = compute_logits(model, Ablate(layer=1, head=2))
    with torch.no_grad():
        model.blocks[1].attention.output.weight[:, 12:18] = 0
        assert torch.allclose(ablated, model(TOKENS).logits, atol=1e-5)


def test_ablating_an_attention_or_mlp_equals_zeroing_its_last_layer() -> None:
    for part, name in (("attention", "attention.output"), ("mlp", "feedforward.outer")):
        model = build_gpt()
        ablated = compute_logits(model, Ablate(layer=0, part=part))
        with torch.no_grad():
            for parameter in model.blocks[0].get_submodule(name).parameters():
                parameter.zero_()
            assert torch.allclose(ablated, model(TOKENS).logits, atol=1e-5)


def test_a_target_vocabulary_may_be_larger_than_the_source_vocabulary() -> None:
    config = TransformerConfig(vocabulary=10, target_vocabulary=30, shared=False, length=16, **SMALL)
    with Lens(build_model(Transformer, config)) as lens:
        assert lens.run([1, 2, 3], [25, 29]).weights("decoder.0.cross", 0).shape == (2, 3)
        with pytest.raises(ArgumentError, match="token 30 does not exist; the model has 30 tokens"):
            lens.run([1, 2, 3], [25, 30])


# The runtime type checker of these tests would report these mistakes first, so a process without it tries them.
MISTAKES_PROGRAM = """
import torch
import jumok
from jumok.errors import ArgumentError
from jumok.lens import classify_heads, profile_heads, sample_repeated_tokens
from jumok.lens.effects.metrics import LogProbability
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

tiny = jumok.load("tiny")
gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=16)).eval()
encoder = BertModel(BertConfig(num_hidden_layers=1, num_attention_heads=2, hidden_size=8, intermediate_size=8)).eval()
with jumok.Lens(tiny) as lens, jumok.Lens(gpt2) as other, jumok.Lens(encoder) as bert:
    assert lens.run("the cat", keep="output").activations, "keep may be a single word"
    effects = jumok.effect(tiny, "the cat", layers=1)
    assert len(effects.rows) == 2
    assert repr(effects).startswith("<Effects of 2 heads on the log-probability of token"), effects
    capture = lens.run("the cat")
    assert repr(capture) == "<Capture of 7 positions: 4 heads of 2 attentions>", capture
    assert repr(lens) == "<Lens on GPT, open>", lens
    assert other.run(torch.tensor([1, 2, 3])).weights(0, 0).shape == (3, 3), "a row of tokens is one text"
    for mistake, message in (
        (lambda: capture.weights(0, 2), "has 2 heads, counted from 0 (-1 is the last); 2 is not one of them"),
        (lambda: capture.weights(0, -3), "has 2 heads, counted from 0 (-1 is the last); -3 is not one of them"),
        (lambda: capture.weights(-3), "there are 2 layers, counted from 0 (-1 is the last)"),
        (lambda: capture.row(0, 0, -8), "has 7 queries, counted from 0 (-1 is the last); -8 is not one of them"),
        (lambda: capture.weights(0.5, 0), "a layer is a number or a name, not 0.5"),
        (lambda: capture.weights(True, 0), "a layer is a number or a name, not True"),
        (lambda: capture.top("M"), "has 7 queries, counted from 0 (-1 is the last); 'M' is not one of them"),
        (lambda: jumok.effect(tiny, "the cat", metric="loss"), "is not a metric; use a value of"),
        (lambda: jumok.effect(tiny, "the cat", metric=LogProbability), "is not a metric; use a value of"),
        (lambda: jumok.effect(tiny, ""), "the text is empty"),
        (lambda: jumok.effect(tiny, ["the", "cat"]), "reads one text at a time"),
        (lambda: classify_heads(capture, "the cat"), "give the ids that the capture read"),
        (lambda: profile_heads(capture, 1, 0), "needs an open lens, a capture made by it"),
        (lambda: capture.logits, "this capture has no logits; request them"),
        (lambda: lens.run(), "lens.run needs an input"),
        (lambda: lens.run("the cat", reuse="clean"), "reuse must be a capture: lens.run(..., reusable=True)"),
        (lambda: jumok.effect(tiny, "the cat", layers=[]), "layers is empty"),
        (lambda: jumok.effect(tiny, "the cat", over="edges", by="mean"), "applies only to heads, not to edges"),
        (lambda: jumok.effect(tiny, "the cat", over="edges", controls=0), "controls must be at least 1, not 0"),
        (lambda: jumok.effect(tiny, "the cat").top(-1), "count must be at least 1, not -1"),
        (lambda: sample_repeated_tokens(0), "vocabulary and length must be at least 1"),
        (lambda: classify_heads(capture, torch.zeros(2, 7)), "one text at a time, not 2"),
        (lambda: lens.run("the cat", edits=jumok.Ablate(0, 9)), "has 2 heads, counted from 0 (-1 is the last); 9"),
        (lambda: jumok.Remask(0, mask=torch.ones(2, 2)), "mask.given(table)"),
        (lambda: jumok.effect(tiny, "x", metric=LogProbability("주")), "is 3 tokens"),
        (lambda: other.run(list(range(20))), "GPT2LMHeadModel reads at most 16 positions"),
        (lambda: bert.run([1, 2], logits=True).logits, "this model has no logits"),
        (lambda: other.run([1, 99]), "token 99 does not exist; the model has 20 tokens, counted from 0"),
        (lambda: other.run({"input_ids": torch.tensor([[1]])}), "by name: lens.run(**inputs)"),
    ):
        try:
            mistake()
        except ArgumentError as error:
            assert message in str(error), error
        else:
            raise AssertionError(message)
print("ok")
"""


def test_mistakes_raise_clear_errors_without_the_type_checker() -> None:
    done = subprocess.run([sys.executable, "-c", MISTAKES_PROGRAM], capture_output=True, text=True, check=False)
    assert done.stdout == "ok\n", done.stderr[-1500:]


def test_knocking_out_an_edge_renormalises_its_row() -> None:
    model = build_gpt()
    with Lens(model) as lens:
        clean = lens.run(TOKENS)
        edited = lens.run(TOKENS, edits=[KnockOut(layer=0, head=1, query=9, key=2)])
    expected = clean.weights(0, 1).clone()
    expected[9, 2] = 0
    expected[9] /= expected[9].sum()
    assert torch.allclose(edited.weights(0, 1), expected, atol=1e-6)
    assert torch.equal(edited.weights(0, 0), clean.weights(0, 0)), "other heads are unchanged"


def test_rectangles_rows_and_columns_are_knocked_out() -> None:
    model = build_gpt()
    with Lens(model) as lens:
        edits = [KnockOut(layer=0, query=(4, 5), key=(1, 2)), KnockOut(layer=1, head=3, key=0)]
        edited = lens.run(TOKENS, edits=edits)
        empty_row = lens.run(TOKENS, edits=[KnockOut(layer=0, head=0, query=3)])
    for head in range(4):
        assert not edited.weights(0, head)[4:6, 1:3].any() and edited.weights(0, head)[6, 1:3].all()
    assert not edited.weights(1, 3)[:, 0].any() and edited.weights(1, 2)[1:, 0].all()
    assert not empty_row.weights(0, 0)[3].any(), "a row without any key has weights 0"


def test_scale_divides_the_scores() -> None:
    model = build_gpt()
    with Lens(model) as lens:
        clean = lens.run(TOKENS)
        scaled = lens.run(TOKENS, edits=[Scale(layer=0, head=2, temperature=3.0)])
    call = clean.attention(0).calls[0]
    scores = (call.query[0, 2] @ call.key[0, 2].T / 6**0.5 / 3).masked_fill(torch.ones(11, 11).triu(1) > 0, -torch.inf)
    assert torch.allclose(scaled.weights(0, 2), scores.softmax(-1), atol=1e-6)
    assert torch.equal(scaled.weights(0, 1), clean.weights(0, 1))


@pytest.mark.parametrize("head", [None, 2])
def test_scale_divides_scores_with_parameters_of_each_head(head: int | None) -> None:
    model = build_gpt()
    torch.manual_seed(5)
    model.blocks[0].attention.score = score.General(6, 6, heads=4)
    with Lens(model) as lens:
        scaled = lens.run(TOKENS, edits=[Scale(layer=0, head=head, temperature=3.0)])
    call = scaled.attention(0).calls[0]
    matrix = model.blocks[0].attention.score.matrix[2]
    scores = (call.query[0, 2] @ matrix @ call.key[0, 2].T / 3).masked_fill(torch.ones(11, 11).triu(1) > 0, -torch.inf)
    torch.testing.assert_close(scaled.weights(0, 2), scores.softmax(-1).detach())


def test_remask_replaces_the_mask() -> None:
    model = build_gpt()
    with Lens(model) as lens:
        unmasked = lens.run(TOKENS, edits=[Remask()])
        windowed = lens.run(TOKENS, edits=[Remask(layer=0, head=1, mask=mask.causal & mask.window(2))])
    assert unmasked.weights(1, 0).triu(1).any(), "without a mask there is weight on later keys"
    assert not windowed.weights(0, 1).tril(-2).any() and windowed.weights(0, 0).tril(-2).any()
    assert torch.allclose(windowed.weights(0, 1).sum(-1), torch.ones(11))


def test_patch_copies_outputs_of_another_capture() -> None:
    model = build_gpt()
    other_tokens = TOKENS.flip(0)
    with Lens(model) as lens:
        source = lens.run(other_tokens, keep=("output",), name="other")
        clean = lens.run(TOKENS, keep=("output",))
        patch = Patch(layer=0, head=2, positions=(3, 4), source=source)
        patched = lens.run(TOKENS, edits=[patch], keep=("output",))
    site = "blocks.0.attention.output"
    assert torch.equal(patched.activations[site][:, 2, 3:5], source.activations[site][:, 2, 3:5])
    assert torch.equal(patched.activations[site][:, 2, 5:], clean.activations[site][:, 2, 5:])
    fields = patched.edits[0].to_json()
    assert fields["source"] == "other" and Edit.from_json(fields, {"other": source}) == patched.edits[0]


def test_edits_compose_and_equal_edits_give_equal_logits() -> None:
    edits = [KnockOut(layer=0, query=5, key=1), Ablate(layer=1, head=0, by="mean"), Scale(layer=1, temperature=0.5)]
    again = [Edit.from_json(edit.to_json()) for edit in edits]
    assert again == edits
    model = build_gpt()
    edited = compute_logits(model, *edits)
    assert torch.equal(edited, compute_logits(model, *again))
    assert not torch.equal(edited, compute_logits(model, *edits[:2]))
    assert not torch.equal(edited, compute_logits(model, *edits[1:]))


def test_heads_and_bias_sum_to_the_output_of_the_attention() -> None:
    model = build_gpt()
    with Lens(model) as lens:
        capture = lens.run(TOKENS, keep=("output", "block_output"))
    for layer in range(2):
        output = model.blocks[layer].attention.output
        heads = capture.activations[f"blocks.{layer}.attention.output"]
        parts = [heads[:, head] @ output.weight[:, 6 * head : 6 * head + 6].T for head in range(4)]
        expected = capture.activations[f"blocks.{layer}.attention.block_output"]
        assert torch.allclose(sum(parts) + output.bias, expected, atol=1e-5)


@pytest.mark.parametrize("family", ["gpt", "transformers' GPT-2"])
def test_negative_heads_count_from_the_end(family: str) -> None:
    model: Any = build_gpt()
    if family != "gpt":
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(3)
        sizes = {"n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 40, "n_positions": 16}
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    with Lens(model) as lens:
        source = lens.run(TOKENS.flip(1), keep="output")
        for build_edit in (
            lambda head: Ablate(-1, head),
            lambda head: Ablate(0, head, by="mean"),
            lambda head: KnockOut(head=head, key=2),
            lambda head: Patch(-2, head, source=source),
            lambda head: Scale(None, head, temperature=0.1),
            lambda head: Remask(1, head, mask=mask.causal & mask.window(2)),
        ):
            for negative, positive in ((-1, 3), (-4, 0), ([-1, 0, 3], [0, 3])):
                edited, expected = (
                    lens.run(TOKENS, edits=build_edit(head), logits=True).logits for head in (negative, positive)
                )
                assert torch.equal(edited, expected), build_edit(negative)
            assert not torch.equal(edited, lens.run(TOKENS, edits=build_edit(1), logits=True).logits)
    assert Edit.from_json(Ablate(-1, -1).to_json()) == Ablate(-1, -1)


def test_numpy_arrays_of_integers_are_tokens() -> None:
    model = build_gpt()
    with Lens(model) as lens:
        expected = lens.run(TOKENS, logits=True).logits
        for dtype in ("int64", "int32", "uint8"):
            assert torch.equal(lens.run(TOKENS.numpy().astype(dtype), logits=True).logits, expected)
        one_text = TOKENS[0].numpy()
        assert torch.equal(lens.run(one_text, logits=True).logits[0], lens.run(list(one_text), logits=True).logits[0])
        for array, message in (
            (TOKENS.numpy() / 2, "a numpy array must hold token ids, which are integers, not float64"),
            (TOKENS.numpy() > 2, "integers, not bool"),
            (TOKENS.numpy().astype("uint64") + 2**63, "larger than any vocabulary"),
            (TOKENS.numpy() + 100, "does not exist; the model has 40 tokens"),
        ):
            with pytest.raises(ArgumentError, match=message):
                lens.run(array)


# mistakes of users


@pytest.mark.parametrize(
    ("build_edit", "message"),
    [
        (lambda: Ablate(layer=7, head=0), "there are 2 layers"),
        (lambda: Ablate(layer=0, head=9), "has 4 heads"),
        (lambda: Ablate(layer="decoder.3", head=0), "there is no attention 'decoder.3'"),
        (lambda: Ablate(layer=0, head=-5), "blocks.0.attention has 4 heads, counted from 0 .*; -5 is not one of them"),
        (lambda: Remask(layer=-1, head=-5), "blocks.1.attention has 4 heads.*; -5 is not one of them"),
        (lambda: Ablate(layer=0, by="half"), "zero, mean, resample"),
        (lambda: Ablate(layer=0, head=1, part="mlp"), "an MLP has no heads"),
        (lambda: KnockOut(layer=0, head=4), "blocks.0.attention has 4 heads.*; 4 is not one of them"),
        (lambda: KnockOut(layer=0, query=[]), "empty"),
        (lambda: KnockOut(layer=0, query=99, key=4), "has no query at 99"),
        (lambda: KnockOut(key=11), "has no key at 11"),
        (lambda: Scale(layer=0, temperature=0), "at least 1e-06"),
        (lambda: Scale(layer=0, head=4, temperature=2.0), "blocks.0.attention has 4 heads.*; 4 is not one"),
        (lambda: Patch(layer=0), "needs another capture"),
        (lambda: Edit.from_json({"edit": "Destroy"}), "Ablate, KnockOut, Patch, Scale, Remask"),
        (lambda: Edit.from_json({"edit": "Ablate", "heads": 1}), "has no field 'heads'"),
    ],
)
def test_invalid_edits_raise(build_edit: Any, message: str) -> None:
    with pytest.raises((ArgumentError, jumok.errors.ShapeError), match=message):
        compute_logits(build_gpt(), build_edit())


def test_a_text_needs_a_tokenizer() -> None:
    tiny = jumok.load("tiny")
    with Lens(tiny) as lens:
        assert torch.equal(lens.run("주목").weights(1, 0), lens.run(tiny.tokenizer.encode("주목")).weights(1, 0))
    with Lens(build_gpt()) as lens:
        for text, message in (("text", "needs a tokenizer"), ([], "at least one"), ([1.5], "integers")):
            with pytest.raises(ArgumentError, match=message):
                lens.run(text)
        edited = lens.run(TOKENS, edits=Ablate(layer=0, head=1))
        assert edited.edits == (Ablate(layer=0, head=1),)
        not_edits: Any = ["x"]
        with pytest.raises((ArgumentError, TypeCheckError), match="'x'"):  # the tests' type checker may come first
            lens.run(TOKENS, edits=not_edits)


def test_a_closed_lens_raises() -> None:
    lens = Lens(build_gpt())
    with pytest.raises(ArgumentError, match="the lens is closed"):
        lens.run(TOKENS)
    with lens:
        capture = lens.run(TOKENS)
        with pytest.raises(ArgumentError, match="already open"):
            lens.__enter__()
    with pytest.raises(ArgumentError, match="has no logits"):
        _ = capture.logits
    with pytest.raises(ArgumentError, match="3 stacks"), Lens(MODELS["t5"][0]()) as other:
        other.run(TOKENS, TARGETS).weights(0, 0)


def count_tensors() -> int:
    """The number of tensors that Python's garbage collector tracks."""
    return sum(type(tracked) is Tensor for tracked in gc.get_objects())


def test_a_closed_lens_leaves_nothing_behind() -> None:
    from jumok import tap

    model = build_gpt()
    for _ in range(50):
        with Lens(model) as lens:
            lens.run(TOKENS)
    gc.collect()
    before = count_tensors()
    for _ in range(1000):
        with Lens(model) as lens:
            lens.run(TOKENS)
    gc.collect()
    assert count_tensors() == before
    assert not tap.has_listeners() and not any(module._forward_hooks for module in model.modules())


def test_a_capture_stores_only_queries_keys_and_log_sum_exps() -> None:
    """Values are not stored, even where one matrix product computes them together with queries and keys."""
    with Lens(build_gpt()) as lens:
        capture = lens.run(TOKENS)
    expected = sum(
        tensor.nbytes
        for attention in capture.attentions.values()
        for call in attention.calls
        for tensor in (call.query, call.key, call.logsumexp)
        if tensor is not None
    )
    assert capture.bytes == expected == 2 * 2 * 4 * 11 * (6 + 6 + 1) * 4


def test_positions_are_labelled_by_the_tokenizer_and_wrong_labels_raise() -> None:
    with Lens(jumok.load("tiny")) as lens:
        assert lens.run("가 b").labels == ["가₁", "가₂", "가₃", "␣", "b"]
        assert lens.run(list(b"ab"), labels=["x", "y"]).labels == ["x", "y"]
        with pytest.raises(ArgumentError, match="there are 3 labels for 2 positions"):
            lens.run(list(b"ab"), labels=["x", "y", "z"])


def test_unsupported_models_raise() -> None:
    with pytest.raises(ArgumentError, match="does not support Linear"):
        Lens(torch.nn.Linear(2, 2))
