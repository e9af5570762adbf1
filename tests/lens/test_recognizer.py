"""The recognizer: attentions that a model writes itself are attentions, computed by attend(), captured and edited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from jumok.lens import Ablate, KnockOut, Lens, Scale
from jumok.lens.huggingface.recognizer import AttentionRecognizer, RecognizedAttention

TOKENS = torch.randint(3, 90, (2, 13), generator=torch.Generator().manual_seed(0))
TOKEN_MASK = (torch.arange(13) < torch.tensor([[13], [9]])).long()
SMALL: dict[str, Any] = {"vocab_size": 100, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
RELATIVE: dict[str, Any] = {
    "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 64,
}  # fmt: skip

MODELS: dict[str, Callable[[], Any]] = {
    "gptj": lambda: hf.GPTJForCausalLM(
        hf.GPTJConfig(**SMALL, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64)
    ),
    "gpt_neo": lambda: hf.GPTNeoForCausalLM(
        hf.GPTNeoConfig(
            **SMALL, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
            window_size=5, max_position_embeddings=64,
        )
    ),
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(**SMALL, hidden_size=32, n_layer=2, n_head=4)),
    "falcon": lambda: hf.FalconForCausalLM(
        hf.FalconConfig(**SMALL, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    ),
    "deberta_v2": lambda: hf.DebertaV2ForMaskedLM(hf.DebertaV2Config(vocab_size=100, **RELATIVE)),
    "mpt": lambda: hf.MptForCausalLM(hf.MptConfig(**SMALL, d_model=32, n_layers=2, n_heads=4, max_seq_len=64)),
    "xlnet": lambda: hf.XLNetLMHeadModel(hf.XLNetConfig(**SMALL, d_model=32, n_layer=2, n_head=4, d_inner=48)),
}  # fmt: skip


def build_model(name: str) -> Any:
    """A model whose heads attend to some keys more than to others."""
    torch.manual_seed(5)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3)
    return model


def list_eager_weights(model: Any) -> list[Tensor]:
    model.config._attn_implementation_internal = "eager"
    with torch.no_grad():
        return list(model(input_ids=TOKENS, attention_mask=TOKEN_MASK, output_attentions=True).attentions)


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_weights_equal_the_models_own(name: str) -> None:
    model = build_model(name)
    with torch.no_grad():
        expected = model(input_ids=TOKENS, attention_mask=TOKEN_MASK).logits
    with Lens(model) as lens:
        capture = lens.run(input_ids=TOKENS, attention_mask=TOKEN_MASK, logits=True)
        assert lens.support is not None and lens.support.level == "editable"
    real = TOKEN_MASK.bool()
    assert (capture.logits - expected)[real].abs().max() < 1e-5 * max(1, float(expected.abs().max()))
    tables = list_eager_weights(model)
    assert len(capture.sites.names) == len(tables) == 2
    for site, table in zip(capture.sites.names, tables, strict=True):
        for row, length in enumerate((13, 9)):
            for head in range(4):
                difference = capture.weights(site, head, row) - table[row, head]
                assert difference[:length].abs().max() < 1e-5


@pytest.mark.parametrize("name", ["gptj", "bloom", "deberta_v2"])
def test_a_knocked_out_edge_has_weight_zero_and_its_row_renormalises(name: str) -> None:
    model = build_model(name)
    with Lens(model) as lens:
        clean = lens.run(input_ids=TOKENS)
        edited = lens.run(input_ids=TOKENS, edits=KnockOut(layer=0, head=1, query=9, key=2))
    expected = clean.weights(0, 1).clone()
    expected[9, 2] = 0
    expected[9] /= expected[9].sum()
    assert torch.allclose(edited.weights(0, 1), expected, atol=1e-6)
    assert not torch.allclose(edited.weights(1), clean.weights(1), atol=1e-6), "the later layer changes"


def test_ablating_a_head_equals_zeroing_its_output_projection() -> None:
    model = build_model("gptj")
    with Lens(model) as lens:
        logits = lens.run(input_ids=TOKENS, edits=Ablate(layer=1, head=2), logits=True).logits
    with torch.no_grad():
        model.transformer.h[1].attn.out_proj.weight[:, 16:24] = 0
        assert (logits - model(input_ids=TOKENS).logits).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("name", "projection"),
    [("bloom", "transformer.h.0.self_attention.dense"), ("mpt", "transformer.blocks.0.attn.out_proj")],
)
def test_ablating_an_attention_equals_zeroing_its_output_projection(name: str, projection: str) -> None:
    model = build_model(name)
    with Lens(model) as lens:
        logits = lens.run(input_ids=TOKENS, edits=Ablate(layer=0), logits=True).logits
    with torch.no_grad():
        for parameter in model.get_submodule(projection).parameters():
            parameter.zero_()
        assert (logits - model(input_ids=TOKENS).logits).abs().max() < 1e-5


def test_scale_divides_the_dot_products_and_not_the_bias() -> None:
    """Bloom adds a linear bias (ALiBi): at an infinite temperature only the bias and the mask are left."""
    model = build_model("bloom")
    with Lens(model) as lens:
        capture = lens.run(input_ids=TOKENS, edits=Scale(layer=0, head=1, temperature=1e9))
    slope = 2 ** (-8 / 4 * 2)  # the second of four heads
    bias = slope * torch.arange(13.0).expand(13, 13).masked_fill(torch.ones(13, 13).triu(1).bool(), -torch.inf)
    assert torch.allclose(capture.weights(0, 1), bias.softmax(-1), atol=1e-5)


def test_generation_does_not_change_and_appends_rows() -> None:
    model = build_model("bloom")
    settings: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    expected = model.generate(TOKENS[:1], **settings)
    with Lens(model) as lens:
        lens.run(TOKENS[:1])
        assert torch.equal(model.generate(TOKENS[:1], **settings), expected)


def test_nothing_is_left_behind() -> None:
    model = build_model("bloom")
    with Lens(model) as lens:
        lens.run(input_ids=TOKENS)
    modules = list(model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    assert not any("forward" in vars(module) for module in modules)


# the recognizer by itself


def recognize(compute: Callable[[], Tensor]) -> tuple[Tensor, list[RecognizedAttention]]:
    """Run operations under a recognizer that computes each attention in float64 with a plain softmax."""
    attentions: list[RecognizedAttention] = []

    def compute_plainly(attention: RecognizedAttention) -> Tensor:
        attentions.append(attention)
        assert attention.scores is not None
        return (attention.scores.double().softmax(-1) @ attention.value.double()).float()

    recognizer = AttentionRecognizer(compute_plainly, lambda: True, lambda: None)
    recognizer.batch = 2
    with recognizer:
        output = compute()
    return output, attentions


def make_tensors() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 11))
    q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
    return q, k, v


def write_with_matmul(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / 2 + 0.5
    return torch.matmul(nn.functional.dropout(scores.softmax(-1), 0.0), v)


def write_with_bmm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)) * 0.5 + 0.5
    return torch.bmm(nn.functional.softmax(scores, dim=-1), v.flatten(0, 1)).unflatten(0, (2, 3))


def write_with_baddbmm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.full((6, 1, 7), 0.5).baddbmm(batch1=q.flatten(0, 1), batch2=k.flatten(0, 1).mT, beta=1.0, alpha=0.5)
    weights = torch.softmax(scores.view(2, 3, 5, 7), -1)
    return torch.bmm(weights.view(6, 5, 7), v.flatten(0, 1)).unflatten(0, (2, 3))


def write_with_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("ibnd,jbnd->bnij", q.permute(2, 0, 1, 3), k.permute(2, 0, 1, 3)) * 0.5 + 0.5
    output = torch.einsum("bnij,jbnd->ibnd", scores.softmax(3), v.permute(2, 0, 1, 3))
    return output.permute(1, 2, 0, 3)


@pytest.mark.parametrize("write", [write_with_matmul, write_with_bmm, write_with_baddbmm, write_with_einsum])
def test_every_way_to_write_the_formula_is_recognised(write: Callable[..., Tensor]) -> None:
    q, k, v = make_tensors()
    output, attentions = recognize(lambda: write(q, k, v))
    (attention,) = attentions
    assert attention.scale == 0.5
    assert torch.equal(attention.query, q) and torch.equal(attention.key, k)
    assert torch.equal(attention.value, v)
    expected = ((q.double() @ k.double().mT) / 2).softmax(-1) @ v.double()
    assert torch.allclose(output.double(), expected, atol=1e-6)


def test_other_products_and_softmaxes_are_left_alone() -> None:
    q, k, v = make_tensors()

    def normalise_over_queries() -> Tensor:
        return (q @ k.mT).softmax(-2) @ v

    def use_tanh() -> Tensor:
        return torch.tanh(q @ k.mT).softmax(-1) @ v

    def double_weights() -> Tensor:
        return ((q @ k.mT).softmax(-1) * 2) @ v

    for compute in (normalise_over_queries, use_tanh, double_weights):
        output, attentions = recognize(compute)
        assert not attentions and torch.equal(output, compute())
