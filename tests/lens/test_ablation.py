"""Mean and resample ablation, against hooks written without the lens: no later positions, no padding, no other text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from test_lens import MODELS, TARGETS, TOKENS, build_gpt, build_model
from torch import Tensor, nn

from huggingface_models import MODELS as TRANSFORMERS_MODELS
from huggingface_models import build_model as build_transformers_model
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Lens
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig

SITE = "blocks.1.attention.output"
TOKEN_MASK = torch.arange(11) < torch.tensor([[11], [6]])
PARTS: dict[str, dict[str, Any]] = {"a head": {"head": 1}, "an attention": {}, "an MLP": {"part": "mlp"}}


def run_with_hook(model: Any, replace_head: Callable[[Tensor], Tensor], tokens: Tensor, **settings: Any) -> Tensor:
    """Return the logits of a GPT whose head 1 of layer 1 outputs something else, set by a hook of torch."""

    def change_input(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        heads = inputs[0].unflatten(-1, (4, -1)).clone()  # [batch, query, head, width]
        heads[:, :, 1] = replace_head(heads[:, :, 1])
        return (heads.flatten(-2),)

    handle = model.blocks[1].attention.output.register_forward_pre_hook(change_input)
    try:
        with torch.no_grad():
            return model(tokens, **settings).logits
    finally:
        handle.remove()


def test_the_mean_without_a_source_is_that_of_the_positions_up_to_each_one() -> None:
    model = build_gpt().double()
    with Lens(model) as lens:
        logits = lens.run(TOKENS, edits=Ablate(1, 1, by="mean"), logits=True).logits
    counts = torch.arange(1, 12)[:, None]
    expected = run_with_hook(model, lambda output: output.cumsum(1) / counts, TOKENS)
    assert (logits - expected).abs().max() < 1e-12


def test_a_sample_without_a_source_is_the_output_at_an_earlier_position() -> None:
    with Lens(build_gpt()) as lens:
        before = lens.run(TOKENS, keep="output").activations[SITE]
        edits = Ablate(1, 1, by="resample", seed=3)
        after, again, shorter = (
            lens.run(tokens, edits=edits, keep="output").activations[SITE] for tokens in (TOKENS, TOKENS, TOKENS[:, :9])
        )
    assert torch.equal(after, again) and torch.equal(after[:, :, :9], shorter), "a later token changes no choice"
    same = (after[:, 1, :, None] == before[:, 1, None]).all(-1)  # [text, position, position it was taken from]
    assert bool(same.any(-1).all()) and bool(same[:, 0, 0].all()), "the first position has no earlier one"
    assert not same[:, 1:].triu(1).any(), "each later position reads an earlier one, not itself"
    assert torch.equal(after[:, [0, 2, 3]], before[:, [0, 2, 3]])


def build_bloom() -> Any:
    torch.manual_seed(1)
    return hf.BloomForCausalLM(hf.BloomConfig(vocab_size=100, hidden_size=32, n_layer=2, n_head=4)).eval()


def build_gptj() -> Any:
    torch.manual_seed(1)
    config = hf.GPTJConfig(vocab_size=100, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=32)
    return hf.GPTJForCausalLM(config).eval()


CAUSAL: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    **{name: (MODELS[name][0], {}) for name in ("gpt", "llama, grouped, window", "t5", "transformer")},
    **{
        f"transformers: {name}": (
            lambda name=name: build_transformers_model(name),
            TRANSFORMERS_MODELS[name][2],
        )
        for name in ("gpt2", "t5")
    },
    "transformers: bloom": (build_bloom, {"input_ids": TOKENS}),
    "transformers: gptj": (build_gptj, {"input_ids": TOKENS}),
}


@pytest.mark.parametrize("by", ["mean", "resample"])
@pytest.mark.parametrize("name", CAUSAL)
def test_logits_do_not_depend_on_later_tokens(name: str, by: str) -> None:
    build, named = CAUSAL[name]
    inputs = dict(named) if named else dict(enumerate(MODELS[name][1]))
    read = list(inputs)[-1]  # what a decoder reads, or the only text
    changed = {**inputs, read: inputs[read].clone()}
    changed[read][:, -1] = (changed[read][:, -1] + 1) % 40
    with Lens(build()) as lens:
        for fields in PARTS.values():
            edits = Ablate(by=by, **fields)  # all layers, those that read the source too
            first, second = (
                lens.run(*texts.values(), edits=edits, logits=True)
                if not named
                else lens.run(**texts, edits=edits, logits=True)
                for texts in (inputs, changed)
            )
            difference = (first.logits - second.logits).abs().amax((0, 2))
            assert difference[:-1].max() < 1e-5, fields
            assert "head" not in fields or difference[-1] > 1e-5, "the token that was changed itself"


@pytest.mark.parametrize("by", ["mean", "resample"])
def test_padding_is_not_read(by: str) -> None:
    """Other tokens in the padding change nothing, whether the text itself or a source is padded."""
    build, _, settings = MODELS["bert, padded"]
    other = torch.where(TOKEN_MASK, TOKENS, (TOKENS + 3) % 40)
    with Lens(build()) as lens:
        for fields in PARTS.values():
            outputs, from_sources = [], []
            for tokens in (TOKENS, other):
                edits = Ablate(0, by=by, **fields)
                outputs.append(lens.run(tokens, edits=edits, logits=True, **settings).output.hidden[TOKEN_MASK])
                source = lens.run(tokens, keep=("output", "block_output", "feedforward_output"), **settings)
                edits = Ablate(0, by=by, source=source, seed=2, **fields)
                from_sources.append(lens.run(TOKENS, edits=edits, logits=True).output.hidden)
            assert torch.equal(*outputs) and torch.equal(*from_sources), fields


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_padding_of_transformers_is_not_read(implementation: str) -> None:
    """On the left, where the first queries may attend to nothing; an eager model lets them attend to everything."""
    model = build_transformers_model("llama")
    model.set_attn_implementation(implementation)
    token_mask = torch.ones_like(TOKENS)
    token_mask[0, :4] = 0
    with Lens(model) as lens:
        source = lens.run(input_ids=TOKENS, attention_mask=token_mask, keep="output")
        site = source.sites.names[1]
        edits = Ablate(1, 1, by="mean", source=source)
        edited = lens.run(input_ids=TOKENS[:1, :5], edits=edits, keep="output").activations[f"{site}.output"]
    outputs = source.activations[f"{site}.output"][:, 1]
    expected = outputs[token_mask.bool()].double().mean(0)
    assert (edited[0, 1] - expected).abs().max() < 1e-6


def test_the_mean_of_a_padded_source_is_that_of_its_real_tokens() -> None:
    model = build_gpt().double()
    with Lens(model) as lens:
        source = lens.run(TOKENS, token_mask=TOKEN_MASK, keep="output")
        logits = lens.run(TOKENS, edits=Ablate(1, 1, by="mean", source=source), logits=True).logits
    outputs: list[Tensor] = []
    run_with_hook(model, lambda output: (outputs.append(output.clone()), output)[1], TOKENS, token_mask=TOKEN_MASK)
    mean = outputs[0][TOKEN_MASK].mean(0)
    expected = run_with_hook(model, lambda output: mean.expand_as(output), TOKENS)
    assert (logits - expected).abs().max() < 1e-12


@pytest.mark.parametrize("by", ["mean", "resample"])
def test_generation_reads_a_source_as_one_forward_pass_does(by: str) -> None:
    with Lens("tiny") as lens:
        source = lens.run("a dog ran; the dog", keep="output")
        edits = Ablate(1, 0, by=by, seed=5, source=source)
        generation = lens.generate("the cat sat; the cat", limit=5, edits=edits, keep="output")
        text = [*b"the cat sat; the cat", *generation.token_ids[:-1]]
        complete = lens.run(text, edits=edits, keep="output").activations[SITE]
    assert torch.allclose(generation.capture.activations[SITE][:, 0], complete[:, 0], atol=1e-6)


def test_a_single_position_needs_a_source() -> None:
    """The mean of one position is itself: the head would stay unchanged, and seem to have no effect."""
    model = build_model(RNNSeq2Seq, RNNSeq2SeqConfig(vocabulary=40, embedding_width=8, width=12))
    for by in ("mean", "resample"):
        with Lens(model) as lens:
            with pytest.raises(ArgumentError, match=r"cross processes one position at a time, but .* needs several"):
                lens.run(TOKENS[:1], TARGETS[:1], edits=Ablate(by=by, head=0))
            clean = lens.run(TOKENS[:1], TARGETS[:1], keep=("output",))
            edit = Ablate(by=by, head=0, source=clean)
            edited = lens.run(TOKENS[:1], TARGETS[:1], keep=("output",), edits=edit)
        before, after = clean.activations["cross.output"][0, 0], edited.activations["cross.output"][0, 0]
        if by == "mean":
            assert torch.allclose(after, before.mean(0).expand_as(after), atol=1e-6)
        else:
            assert all((before == row).all(-1).any() for row in after)
    with Lens(build_gpt()) as lens, pytest.raises(ArgumentError, match="one position at a time"):
        lens.run([5], edits=Ablate(layer=0, head=1, by="mean"))
