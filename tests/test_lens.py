"""The lens: weights equal to the explicit formula, edits that do what they say, nothing left behind."""

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
from jumok.attention import mask
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Edit, KnockOut, Lens, Patch, Remask, Scale
from jumok.lens.capture import recorder
from jumok.models.bert import BERT, BERTConfig
from jumok.models.gpt import GPT, GPTConfig, llama_config
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.t5 import T5, T5Config
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.models.vit import ViT, ViTConfig

SMALL = {"width": 24, "layers": 2, "heads": 4, "hidden": 32}
TOKENS = torch.randint(1, 40, (2, 11), generator=torch.Generator().manual_seed(0))
OTHERS = torch.randint(1, 40, (2, 7), generator=torch.Generator().manual_seed(1))


def drawn(kind: Any, config: Any, factor: int = 4) -> Any:
    """A model whose heads look somewhere: larger parameters than a fresh one has."""
    torch.manual_seed(3)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(factor)
    return model


def gpt(**fields: Any) -> GPT:
    return drawn(GPT, GPTConfig(vocabulary=40, length=16, **{**SMALL, **fields}))


MODELS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "gpt": (gpt, (TOKENS,), {}),
    "llama, grouped, window": (
        lambda: drawn(GPT, llama_config(vocabulary=40, length=16, groups=2, window=4, **SMALL)),
        (TOKENS,),
        {},
    ),
    "bert, padded": (
        lambda: drawn(BERT, BERTConfig(vocabulary=40, length=16, **SMALL)),
        (TOKENS,),
        {"padding": torch.arange(11) < torch.tensor([[11], [6]])},
    ),
    "t5": (
        lambda: drawn(T5, T5Config(vocabulary=40, width=24, layers=2, decoder_layers=2, heads=4, hidden=32), 2),
        (TOKENS, OTHERS),
        {},
    ),
    "transformer": (
        lambda: drawn(Transformer, TransformerConfig(vocabulary=40, length=16, **SMALL), 2),
        (TOKENS, OTHERS),
        {},
    ),
    "vit": (
        lambda: drawn(ViT, ViTConfig(image=(8, 8), patch=(4, 4), channels=1, **SMALL)),
        (torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(2)),),
        {},
    ),
}


def flat(weights: Any) -> list[Tensor]:
    """The model's own weights, in the order of its sites."""
    if isinstance(weights, dict):
        own, cross = weights["decoder"], weights["cross"]
        return [*weights["encoder"], *(one for pair in zip(own, cross, strict=True) for one in pair)]
    return list(weights)


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_is_that_of_the_explicit_formula(name: str) -> None:
    make, inputs, settings = MODELS[name]
    model = make()
    with torch.no_grad():
        wanted = flat(model(*inputs, **settings, weights=True).weights)
    with Lens(model) as lens:
        run = lens.run(*inputs, **settings)
    assert len(run.sites.names) == len(wanted)
    for site, table in zip(run.sites.names, wanted, strict=True):
        (call,) = run.attention(site).calls
        query, key = call.query.double(), call.key.double()
        places = {"query_positions": call.query_positions, "key_positions": call.key_positions}
        _, exact = attend(query, key, key, mask=call.mask, bias=call.bias, score=call.score, weights=True, **places)
        for batch in range(2):
            for head in range(run.heads(site)):
                found = run.weights(site, head, batch)
                assert (found - exact[batch, head]).abs().max() < 1e-6
                assert (found - table[batch, head]).abs().max() < 1e-5, "float32's own last bits"
                part = run.tile(site, head, slice(2, 5), slice(1, 4), batch)
                assert torch.equal(part, found[2:5, 1:4])
                assert torch.equal(run.row(site, head, 3, batch), found[3])


def test_long_rows_are_made_from_the_log_sum_exp(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt()
    with Lens(model) as lens:
        run = lens.run(TOKENS)
    whole = run.weights(1, 2)
    monkeypatch.setattr(recorder, "WHOLE", 0)
    assert (run.weights(1, 2) - whole).abs().max() < 2e-6


def test_a_recurrent_model_has_a_row_for_each_step() -> None:
    config = RNNSeq2SeqConfig(vocabulary=40, embedding_width=8, width=12, attention="bahdanau")
    model = drawn(RNNSeq2Seq, config)
    with torch.no_grad():
        wanted = model(TOKENS, OTHERS, weights=True).weights["cross"][-1]
    with Lens(model) as lens:
        run = lens.run(TOKENS, OTHERS)
    (site,) = run.sites.names
    assert (run.weights(site, 0, 1) - wanted[1, 0]).abs().max() < 1e-6


def test_decoding_step_by_step_is_one_map() -> None:
    from jumok.attention.cache import Cache

    model = gpt()
    with Lens(model) as lens:
        whole = lens.run(TOKENS)
        cache = Cache()
        from jumok.tap import listen

        heard = recorder.Recorder()
        with torch.no_grad(), listen(heard):
            for place in range(11):
                model(TOKENS[:, place : place + 1], cache=cache)
    site = whole.sites.names[1]
    found = heard.attentions[site].tile(1, 3, slice(None), slice(None))
    assert (found - whole.weights(1, 3, 1)).abs().max() < 1e-6


def test_an_overview_is_the_map_made_small() -> None:
    model = gpt()
    with Lens(model) as lens:
        run = lens.run(TOKENS)
    exact = run.weights(0, 1)
    assert torch.allclose(run.overview(0, 1, 64).mean, exact, atol=1e-6)
    small = run.overview(0, 1, 4)
    ends = [0, 2, 5, 8, 11]
    for row in range(4):
        for column in range(4):
            cell = exact[ends[row] : ends[row + 1], ends[column] : ends[column + 1]]
            assert small.mean[row, column] == pytest.approx(float(cell.mean()), abs=1e-6)
            assert small.largest[row, column] == pytest.approx(float(cell.max()), abs=1e-6)


def test_top_sources_are_the_largest_weights_of_any_head() -> None:
    model = gpt()
    with Lens(model) as lens:
        run = lens.run(TOKENS)
    tables = [run.weights(layer, head)[9] for layer in range(2) for head in range(4)]
    best = torch.stack(tables).amax(0)
    found = run.top(9, 3)
    assert [one.key for one in found] == best.topk(3).indices.tolist()
    assert [one.weight for one in found] == pytest.approx(best.topk(3).values.tolist())
    assert all(one.key <= 9 for one in found), "nobody looks into the future"


# edits


def logits(model: Any, *edits: Edit, **settings: Any) -> Tensor:
    with Lens(model) as lens:
        return lens.run(TOKENS, edits=edits, logits=True, **settings).logits


def test_no_edits_change_no_bit() -> None:
    model = gpt()
    with torch.no_grad():
        assert torch.equal(logits(model), model(TOKENS).logits)


@pytest.mark.parametrize("grouped", [False, True])
def test_an_ablated_head_is_a_head_without_an_output(grouped: bool) -> None:
    model = drawn(GPT, llama_config(vocabulary=40, length=16, groups=2, **SMALL)) if grouped else gpt()
    found = logits(model, Ablate(layer=1, head=2))
    with torch.no_grad():
        model.blocks[1].attention.output.weight[:, 12:18] = 0
        assert torch.allclose(found, model(TOKENS).logits, atol=1e-5)


def test_an_ablated_attention_and_an_ablated_mlp_add_nothing() -> None:
    for part, name in (("attention", "attention.output"), ("mlp", "feedforward.outer")):
        model = gpt()
        found = logits(model, Ablate(layer=0, part=part))
        with torch.no_grad():
            for parameter in model.blocks[0].get_submodule(name).parameters():
                parameter.zero_()
            assert torch.allclose(found, model(TOKENS).logits, atol=1e-5)


@pytest.mark.parametrize("by", ["mean", "resample"])
def test_an_ablated_head_gives_what_heads_give_elsewhere(by: str) -> None:
    model = gpt()
    with Lens(model) as lens:
        clean = lens.run(TOKENS, keep=("output",))
        cut = lens.run(TOKENS, edits=[Ablate(layer=0, head=1, by=by)], keep=("output",))
        again = lens.run(TOKENS, edits=[Ablate(layer=0, head=1, by=by)], keep=("output",))
    site = "blocks.0.attention.output"
    before, after = clean.kept[site][:, 1], cut.kept[site][:, 1]
    assert torch.equal(after, again.kept[site][:, 1])
    if by == "mean":
        assert torch.allclose(after, before.mean((0, 1)).expand_as(after))
    else:
        rows = before.flatten(0, 1)
        assert all((rows == one).all(-1).any() for one in after.flatten(0, 1))
        same = (after[:, :, None] == before[:, None]).all(-1)  # [text, position, position it was taken from]
        assert not same.diagonal(dim1=1, dim2=2).any(), "a position never takes what it had"
    others = [0, 2, 3]
    assert torch.equal(clean.kept[site][:, others], cut.kept[site][:, others])


def test_a_target_may_have_more_tokens_than_its_source() -> None:
    config = TransformerConfig(vocabulary=10, target_vocabulary=30, shared=False, length=16, **SMALL)
    with Lens(drawn(Transformer, config)) as lens:
        assert lens.run([1, 2, 3], [25, 29]).weights("decoder.0.cross", 0).shape == (2, 3)
        with pytest.raises(ArgumentError, match="knows 30 tokens"):
            lens.run([1, 2, 3], [25, 30])


def test_one_position_has_no_other_to_take_from() -> None:
    """The mean of one is itself: the head would stay as it is, and look useless."""
    model = drawn(RNNSeq2Seq, RNNSeq2SeqConfig(vocabulary=40, embedding_width=8, width=12))
    for by in ("mean", "resample"):
        with Lens(model) as lens:
            with pytest.raises(ArgumentError, match=r"cross gives one position at a time, and .* needs others"):
                lens.run(TOKENS[:1], OTHERS[:1], edits=Ablate(by=by, head=0))
            clean = lens.run(TOKENS[:1], OTHERS[:1], keep=("output",))
            cut = lens.run(TOKENS[:1], OTHERS[:1], keep=("output",), edits=Ablate(by=by, head=0, source=clean))
        before, after = clean.kept["cross.output"][0, 0], cut.kept["cross.output"][0, 0]
        if by == "mean":
            assert torch.allclose(after, before.mean(0).expand_as(after), atol=1e-6)
        else:
            assert all((before == one).all(-1).any() for one in after)
    with Lens(gpt()) as lens, pytest.raises(ArgumentError, match="one position at a time"):
        lens.run([5], edits=Ablate(layer=0, head=1, by="mean"))


# What the runtime type checker of these tests would catch first is tried in a process without it.
PLAIN = """
import torch
import jumok
from jumok.errors import ArgumentError
from jumok.lens import kinds, profile, repeated
from jumok.lens.effects.metrics import LogProbability
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

tiny = jumok.load("tiny")
theirs = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=16)).eval()
encoder = BertModel(BertConfig(num_hidden_layers=1, num_attention_heads=2, hidden_size=8, intermediate_size=8)).eval()
with jumok.Lens(tiny) as lens, jumok.Lens(theirs) as other, jumok.Lens(encoder) as bert:
    assert lens.run("the cat", keep="output").kept, "one word is one word"
    one = jumok.effect(tiny, "the cat", layers=1)
    assert len(one.rows) == 2 and repr(one).startswith("<Effects of 2 heads on the log-probability of token"), one
    run = lens.run("the cat")
    assert repr(run) == "<Run of 7 positions: 4 heads of 2 attentions>", run
    assert repr(lens) == "<Lens on GPT, open>", lens
    assert other.run(torch.tensor([1, 2, 3])).weights(0, 0).shape == (3, 3), "a row of tokens is one text"
    for mistake, says in (
        (lambda: run.weights(0, None), "has 2 heads, counted from 0; None is none of them"),
        (lambda: run.weights(0.5, 0), "a layer is a number or a name, not 0.5"),
        (lambda: run.weights(True, 0), "a layer is a number or a name, not True"),
        (lambda: run.top("M"), "has 7 queries, counted from 0; 'M' is none of them"),
        (lambda: jumok.effect(tiny, "the cat", metric="loss"), "a metric is a value of"),
        (lambda: jumok.effect(tiny, "the cat", metric=LogProbability), "a metric is a value of"),
        (lambda: jumok.effect(tiny, ""), "the text is empty"),
        (lambda: jumok.effect(tiny, ["the", "cat"]), "reads one text at a time"),
        (lambda: kinds(run, "the cat"), "give their numbers"),
        (lambda: profile(run, 1, 0), "takes an open lens, a run of it"),
        (lambda: run.logits, "this run kept no logits; ask for them"),
        (lambda: lens.run(), "nothing was given"),
        (lambda: jumok.effect(tiny, "the cat", layers=[]), "layers is empty"),
        (lambda: jumok.effect(tiny, "the cat", over="edges", by="mean"), "says how a head is silenced"),
        (lambda: jumok.effect(tiny, "the cat", over="edges", controls=0), "at least 1; not 0"),
        (lambda: jumok.effect(tiny, "the cat").top(-1), "top gives at least one"),
        (lambda: repeated(0), "cannot be drawn"),
        (lambda: kinds(run, torch.zeros(2, 7)), "one text at a time; 2 were given"),
        (lambda: lens.run("the cat", edits=jumok.Ablate(0, 9)), "has 2 heads, counted from 0; 9 is none"),
        (lambda: jumok.Remask(0, mask=torch.ones(2, 2)), "mask.given(table)"),
        (lambda: jumok.effect(tiny, "x", metric=LogProbability("주")), "is 3 tokens"),
        (lambda: other.run(list(range(20))), "GPT2LMHeadModel reads at most 16 positions"),
        (lambda: bert.run([1, 2], logits=True).logits, "this model gives no logits"),
        (lambda: other.run([1, 99]), "the model knows 20 tokens, counted from 0; 99 is none of them"),
        (lambda: other.run({"input_ids": torch.tensor([[1]])}), "is given by name: lens.run(**inputs)"),
    ):
        try:
            mistake()
        except ArgumentError as refused:
            assert says in str(refused), refused
        else:
            raise AssertionError(says)
print("ok")
"""


def test_mistakes_without_the_type_checker() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, check=False)
    assert done.stdout == "ok\n", done.stderr[-1500:]


def test_a_cut_edge_is_a_score_of_minus_infinity() -> None:
    model = gpt()
    with Lens(model) as lens:
        clean = lens.run(TOKENS)
        cut = lens.run(TOKENS, edits=[KnockOut(layer=0, head=1, query=9, key=2)])
    wanted = clean.weights(0, 1).clone()
    wanted[9, 2] = 0
    wanted[9] /= wanted[9].sum()
    assert torch.allclose(cut.weights(0, 1), wanted, atol=1e-6)
    assert torch.equal(cut.weights(0, 0), clean.weights(0, 0)), "other heads see what they saw"


def test_a_rectangle_a_row_and_a_column_are_cut() -> None:
    model = gpt()
    with Lens(model) as lens:
        cut = lens.run(TOKENS, edits=[KnockOut(layer=0, query=(4, 5), key=(1, 2)), KnockOut(layer=1, head=3, key=0)])
        alone = lens.run(TOKENS, edits=[KnockOut(layer=0, head=0, query=3)])
    for head in range(4):
        assert not cut.weights(0, head)[4:6, 1:3].any() and cut.weights(0, head)[6, 1:3].all()
    assert not cut.weights(1, 3)[:, 0].any() and cut.weights(1, 2)[1:, 0].all()
    assert not alone.weights(0, 0)[3].any(), "nothing is left to look at"


def test_a_temperature_divides_scores() -> None:
    model = gpt()
    with Lens(model) as lens:
        clean = lens.run(TOKENS)
        warm = lens.run(TOKENS, edits=[Scale(layer=0, head=2, temperature=3.0)])
    call = clean.attention(0).calls[0]
    scores = (call.query[0, 2] @ call.key[0, 2].T / 6**0.5 / 3).masked_fill(torch.ones(11, 11).triu(1) > 0, -torch.inf)
    assert torch.allclose(warm.weights(0, 2), scores.softmax(-1), atol=1e-6)
    assert torch.equal(warm.weights(0, 1), clean.weights(0, 1))


def test_a_mask_is_replaced() -> None:
    model = gpt()
    with Lens(model) as lens:
        free = lens.run(TOKENS, edits=[Remask()])
        one = lens.run(TOKENS, edits=[Remask(layer=0, head=1, mask=mask.causal & mask.window(2))])
    assert free.weights(1, 0).triu(1).any(), "without causality the future is seen"
    assert not one.weights(0, 1).tril(-2).any() and one.weights(0, 0).tril(-2).any()
    assert torch.allclose(one.weights(0, 1).sum(-1), torch.ones(11))


def test_a_patch_brings_in_another_run() -> None:
    model = gpt()
    other = TOKENS.flip(0)
    with Lens(model) as lens:
        source = lens.run(other, keep=("output",), name="other")
        clean = lens.run(TOKENS, keep=("output",))
        patched = lens.run(TOKENS, edits=[Patch(layer=0, head=2, positions=(3, 4), source=source)], keep=("output",))
    site = "blocks.0.attention.output"
    assert torch.equal(patched.kept[site][:, 2, 3:5], source.kept[site][:, 2, 3:5])
    assert torch.equal(patched.kept[site][:, 2, 5:], clean.kept[site][:, 2, 5:])
    told = patched.edits[0].to_json()
    assert told["source"] == "other" and Edit.from_json(told, {"other": source}) == patched.edits[0]


def test_edits_compose_and_equal_edits_give_equal_runs() -> None:
    edits = [KnockOut(layer=0, query=5, key=1), Ablate(layer=1, head=0, by="mean"), Scale(layer=1, temperature=0.5)]
    again = [Edit.from_json(edit.to_json()) for edit in edits]
    assert again == edits
    model = gpt()
    both = logits(model, *edits)
    assert torch.equal(both, logits(model, *again))
    assert not torch.equal(both, logits(model, *edits[:2])) and not torch.equal(both, logits(model, *edits[1:]))


def test_heads_and_bias_sum_to_what_the_block_gives() -> None:
    model = gpt()
    with Lens(model) as lens:
        run = lens.run(TOKENS, keep=("output", "block_output"))
    for layer in range(2):
        output = model.blocks[layer].attention.output
        heads = run.kept[f"blocks.{layer}.attention.output"]
        parts = [heads[:, head] @ output.weight[:, 6 * head : 6 * head + 6].T for head in range(4)]
        assert torch.allclose(sum(parts) + output.bias, run.kept[f"blocks.{layer}.attention.block_output"], atol=1e-5)


# a person's mistakes


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda: Ablate(layer=7, head=0), "there are 2 layers"),
        (lambda: Ablate(layer=0, head=9), "has 4 heads"),
        (lambda: Ablate(layer="decoder.3", head=0), "there is no attention 'decoder.3'"),
        (lambda: Ablate(layer=0, head=-1), "counted from 0"),
        (lambda: Ablate(layer=0, by="half"), "zero, mean, resample"),
        (lambda: Ablate(layer=0, head=1, part="mlp"), "an MLP has no heads"),
        (lambda: KnockOut(layer=0, head=4), "names head 4"),
        (lambda: KnockOut(layer=0, query=[]), "empty"),
        (lambda: KnockOut(layer=0, query=99, key=4), "has no query at 99"),
        (lambda: KnockOut(key=11), "has no key at 11"),
        (lambda: Scale(layer=0, temperature=0), "above 0"),
        (lambda: Scale(layer=0, head=4, temperature=2.0), "names head 4"),
        (lambda: Patch(layer=0), "takes from another run"),
        (lambda: Edit.from_json({"edit": "Destroy"}), "Ablate, KnockOut, Patch, Scale, Remask"),
        (lambda: Edit.from_json({"edit": "Ablate", "heads": 1}), "has no 'heads'"),
    ],
)
def test_what_cannot_be_edited_is_refused_in_a_sentence(edit: Any, sentence: str) -> None:
    with pytest.raises((ArgumentError, jumok.errors.ShapeError), match=sentence):
        logits(gpt(), edit())


def test_a_text_is_read_where_there_is_a_tokenizer() -> None:
    tiny = jumok.load("tiny")
    with Lens(tiny) as lens:
        assert torch.equal(lens.run("주목").weights(1, 0), lens.run(tiny.tokenizer.encode("주목")).weights(1, 0))
    with Lens(gpt()) as lens:
        for given, sentence in (("text", "needs a tokenizer"), ([], "at least one"), ([1.5], "whole numbers")):
            with pytest.raises(ArgumentError, match=sentence):
                lens.run(given)
        one = lens.run(TOKENS, edits=Ablate(layer=0, head=1))
        assert one.edits == (Ablate(layer=0, head=1),)
        strange: Any = ["x"]
        with pytest.raises((ArgumentError, TypeCheckError), match="'x'"):  # here types are checked before we are asked
            lens.run(TOKENS, edits=strange)


def test_a_closed_lens_says_so() -> None:
    lens = Lens(gpt())
    with pytest.raises(ArgumentError, match="the lens is closed"):
        lens.run(TOKENS)
    with lens:
        run = lens.run(TOKENS)
        with pytest.raises(ArgumentError, match="open already"):
            lens.__enter__()
    with pytest.raises(ArgumentError, match="kept no logits"):
        _ = run.logits
    with pytest.raises(ArgumentError, match="3 stacks"), Lens(MODELS["t5"][0]()) as other:
        other.run(TOKENS, OTHERS).weights(0, 0)


def test_nothing_remains() -> None:
    from jumok import tap

    model = gpt()
    for _ in range(50):
        with Lens(model) as lens:
            lens.run(TOKENS)
    gc.collect()
    before = sum(type(one) is Tensor for one in gc.get_objects())
    for _ in range(1000):
        with Lens(model) as lens:
            lens.run(TOKENS)
    gc.collect()
    assert sum(type(one) is Tensor for one in gc.get_objects()) == before
    assert not tap.has_listeners() and not any(module._forward_hooks for module in model.modules())


def test_only_queries_keys_and_sums_are_kept() -> None:
    """Whether values come out of the same product or not: they are not kept."""
    with Lens(gpt()) as lens:
        run = lens.run(TOKENS)
    wanted = sum(
        one.nbytes
        for found in run.attentions.values()
        for call in found.calls
        for one in (call.query, call.key, call.logsumexp)
        if one is not None
    )
    assert run.bytes == wanted == 2 * 2 * 4 * 11 * (6 + 6 + 1) * 4


def test_places_are_labelled_by_the_tokenizer_and_wrong_labels_are_refused() -> None:
    with Lens(jumok.load("tiny")) as lens:
        assert lens.run("가 b").labels == ["가₁", "가₂", "가₃", "␣", "b"]
        assert lens.run(list(b"ab"), labels=["x", "y"]).labels == ["x", "y"]
        with pytest.raises(ArgumentError, match="there are 3 labels, but 2 places"):
            lens.run(list(b"ab"), labels=["x", "y", "z"])


def test_a_lens_is_not_made_for_what_it_cannot_see() -> None:
    with pytest.raises(ArgumentError, match="Linear is none of them"):
        Lens(torch.nn.Linear(2, 2))
