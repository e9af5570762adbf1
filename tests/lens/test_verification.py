"""The first run of a transformers model is compared with the same model without the lens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import jumok
from jumok.errors import ArgumentError
from jumok.lens import Ablate, KnockOut, Lens, Patch
from jumok.lens.huggingface import attention_function, forward_scope, router
from jumok.lens.huggingface.router import compare_outputs

TOKENS = torch.randint(3, 90, (2, 13), generator=torch.Generator().manual_seed(0))
LLAMA: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.2,
}  # fmt: skip


@pytest.fixture(autouse=True)
def forget_verified_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "_verified", {})


def build_llama(**changes: Any) -> Any:
    torch.manual_seed(5)
    return hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA | changes)).eval()


class ForwardCounter:
    """Counts the forward passes of a model."""

    def __init__(self, model: nn.Module) -> None:
        self.count = 0
        model.register_forward_hook(self.add)

    def add(self, *_: Any) -> None:
        self.count += 1


def test_the_comparison_is_made_once_for_each_kind_of_input() -> None:
    model = build_llama()
    counter = ForwardCounter(model)
    sentences: list[str] = []

    def count_forwards(lens: Lens, **inputs: Tensor) -> int:
        before = counter.count
        lens.run(**inputs)
        return counter.count - before

    with Lens(model, report=sentences.append) as lens:
        assert count_forwards(lens, input_ids=TOKENS) == 3, "plain, under the lens, and the run itself"
        assert sentences == ["comparing LlamaForCausalLM under the lens with the plain model (once)"]
        assert count_forwards(lens, input_ids=TOKENS[:, :9]) == 1, "between 8 and 15 tokens"
        assert count_forwards(lens, input_ids=TOKENS[:, :5]) == 3, "another range of lengths"
        assert count_forwards(lens, input_ids=TOKENS, attention_mask=torch.ones_like(TOKENS)) == 3, "another input"
    with Lens(build_llama(), report=sentences.append) as lens:
        lens.run(input_ids=TOKENS)
    assert len(sentences) == 3, "known for all models of the class and config"
    with Lens(build_llama(rms_norm_eps=1e-5), report=sentences.append) as lens:
        lens.run(input_ids=TOKENS)
    assert len(sentences) == 4, "another config"
    jumok.effect(build_llama(rms_norm_eps=1e-4), TOKENS[:1], report=sentences.append)
    assert len(sentences) == 5, "effect says it too"


def test_a_difference_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """All routes are broken: every attention is 0.1% too large."""
    attend = forward_scope.attend

    def attend_wrongly(*tensors: Tensor, **settings: Any) -> Any:
        return attend(*tensors, **settings) * 1.001

    monkeypatch.setattr(forward_scope, "attend", attend_wrongly)
    model = build_llama()
    with Lens(model) as lens:
        capture = lens.run(input_ids=TOKENS)
        assert lens.support is not None and lens.support.level == "maps only"
        assert "logits differs by" in lens.support.reason
        with pytest.raises(ArgumentError, match=r"only the maps that the model returns.*logits differs by \d"):
            lens.run(input_ids=TOKENS, edits=Ablate(0, 1))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(TOKENS, output_attentions=True).attentions
    assert torch.equal(capture.weights(1), eager[1][0])
    assert "maps returned by the model" in repr(capture)
    with Lens(model, check=False) as lens:
        lens.run(input_ids=TOKENS, edits=Ablate(0, 1))


def test_the_comparison_reads_every_output_at_real_tokens() -> None:
    expected = {"logits": torch.zeros(2, 3, 5), "hidden_states": (torch.full((2, 3, 4), 50.0),)}
    actual = {"logits": torch.zeros(2, 3, 5), "hidden_states": (torch.full((2, 3, 4), 50.0),)}
    token_mask = torch.tensor([[True, True, True], [True, True, False]])
    actual["logits"][1, 2] = 9.0
    assert compare_outputs(expected, actual, {3: token_mask}).is_allowed
    assert not compare_outputs(expected, actual, {}).is_allowed
    actual["hidden_states"][0][0, 0, 0] += 4e-4  # the bound is 1e-5 x 50
    assert compare_outputs(expected, actual, {3: token_mask}).is_allowed
    actual["hidden_states"][0][0, 0, 0] += 2e-4
    difference = compare_outputs(expected, actual, {3: token_mask})
    assert not difference.is_allowed and difference.name == "hidden_states[0]"
    actual["logits"][0, 0, 0] = torch.nan
    assert compare_outputs(expected, actual, {3: token_mask}).size == float("inf")


def test_lower_precision_has_a_wider_bound() -> None:
    model = build_llama().to(torch.bfloat16)
    with Lens(model) as lens:
        lens.run(input_ids=TOKENS)
        assert lens.support is not None and lens.support.level == "editable"


def test_a_cache_among_the_arguments_is_not_changed_by_the_comparison() -> None:
    model = build_llama()
    with torch.no_grad():
        expected = model(TOKENS).logits[:, -4:]
        cache = model(TOKENS[:, :9], use_cache=True).past_key_values
    with Lens(model) as lens:
        capture = lens.run(input_ids=TOKENS[:, 9:], past_key_values=cache, logits=True)
    assert (capture.logits - expected).abs().max() < 1e-5
    assert cache.get_seq_length() == 13
    assert capture.attention(0).query_positions == [9, 10, 11, 12]


# arguments


def test_arguments_for_other_parts_of_a_model_are_ignored() -> None:
    config = hf.MixtralConfig(**LLAMA, num_local_experts=3, num_experts_per_tok=2)
    model = hf.MixtralForCausalLM(config).eval()
    with Lens(model) as lens:
        capture = lens.run(input_ids=TOKENS, output_router_logits=True, logits=True)
    with torch.no_grad():
        expected = model(TOKENS, output_router_logits=True)
    assert (capture.logits - expected.logits).abs().max() < 1e-5
    assert len(capture.output.router_logits) == len(expected.router_logits) == 2


def test_an_argument_that_the_models_own_function_reads_is_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    eager = modeling_llama.eager_attention_forward

    def eager_attention_forward(module: nn.Module, *tensors: Any, strange_bias: Any = None, **settings: Any) -> Any:
        return eager(module, *tensors, **settings)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", eager_attention_forward)
    monkeypatch.setattr(attention_function, "list_own_arguments", attention_function.list_own_arguments.__wrapped__)
    model = build_llama()
    attention = model.model.layers[0].self_attn
    forward = attention.forward
    attention.forward = lambda *inputs, **settings: forward(*inputs, **settings, strange_bias=torch.ones(1))
    with (
        pytest.raises(ArgumentError, match="passes strange_bias, which the lens does not support"),
        Lens(model, check=False) as lens,
    ):
        lens.run(input_ids=TOKENS)


# layers that are called again


def build_albert() -> Any:
    torch.manual_seed(5)
    config = hf.AlbertConfig(
        vocab_size=100, embedding_size=16, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=48, initializer_range=0.2,
    )  # fmt: skip
    return hf.AlbertForMaskedLM(config).eval()


def test_a_module_that_is_called_again_is_another_layer() -> None:
    model = build_albert()
    with Lens(model) as lens:
        capture = lens.run(input_ids=TOKENS)
    first = "albert.encoder.albert_layer_groups.0.albert_layers.0.attention"
    assert capture.sites.names == [first, f"{first}#1", f"{first}#2"]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(TOKENS, output_attentions=True).attentions
    for layer in range(3):
        assert (capture.weights(layer) - eager[layer][0]).abs().max() < 1e-5


def test_an_edit_changes_one_call_of_a_shared_layer() -> None:
    model = build_albert()
    with Lens(model) as lens:
        clean = lens.run(input_ids=TOKENS)
        edited = lens.run(input_ids=TOKENS, edits=KnockOut(layer=1, head=2, query=3, key=4))
        without_mlp = lens.run(input_ids=TOKENS, edits=Ablate(layer=1, part="mlp"))
        other = lens.run(input_ids=TOKENS.flip(1))
        source = lens.run(input_ids=TOKENS.flip(1), keep=("input",))
        patched = lens.run(input_ids=TOKENS, edits=Patch(layer=1, part="residual", source=source))
    assert torch.equal(edited.weights(0), clean.weights(0))
    assert edited.weights(1, 2)[3, 4] == 0 < clean.weights(1, 2)[3, 4]
    assert edited.weights(2, 2)[3, 4] > 0
    assert torch.equal(without_mlp.weights(1), clean.weights(1))
    inputs = [name for name in source.activations if name.endswith(".input")]
    block = "albert.encoder.albert_layer_groups.0.albert_layers.0"
    assert inputs == [f"{block}.input", f"{block}#1.input", f"{block}#2.input"]
    assert torch.equal(patched.weights(0), clean.weights(0)) and torch.equal(patched.weights(2), other.weights(2))
    assert not torch.allclose(without_mlp.weights(2), clean.weights(2))


# models that only return maps


def test_models_without_attention_are_refused_with_the_reason() -> None:
    config = hf.FNetConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, intermediate_size=48)
    with (
        pytest.raises(ArgumentError, match="cannot record FNetForMaskedLM: no attention was found"),
        Lens(hf.FNetForMaskedLM(config).eval()) as lens,
    ):
        lens.run(input_ids=TOKENS)


def test_rows_that_may_attend_to_nothing_are_as_in_the_model() -> None:
    """An eager model gives the mean of all values there, PyTorch's kernels give 0."""
    token_mask = torch.ones_like(TOKENS)
    token_mask[0, :3] = 0  # padding on the left: the first three queries may attend to nothing
    for implementation in ("eager", "sdpa"):
        model = build_llama()
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            expected = model(TOKENS, attention_mask=token_mask).logits
        with Lens(model) as lens:
            logits = lens.run(input_ids=TOKENS, attention_mask=token_mask, logits=True).logits
        assert (logits - expected).abs().max() < 1e-5, implementation


def test_two_calls_of_one_module_with_other_lengths_are_two_layers() -> None:
    """LXMERT's cross-attention reads the image from the text, and then the text from the image."""
    torch.manual_seed(5)
    config = hf.LxmertConfig(
        vocab_size=100, hidden_size=24, num_attention_heads=3, intermediate_size=48, l_layers=1, x_layers=1, r_layers=1,
        visual_feat_dim=11, visual_pos_dim=4, initializer_range=0.2,
    )  # fmt: skip
    model = hf.LxmertModel(config).eval()
    inputs = {"visual_feats": torch.randn(2, 5, 11), "visual_pos": torch.rand(2, 5, 4)}
    with Lens(model) as lens:
        capture = lens.run(input_ids=TOKENS[:, :7], **inputs)
    shapes = {site: tuple(capture.weights(site).shape) for site in capture.sites.names if "visual_attention" in site}
    assert list(shapes.values()) == [(3, 7, 5), (3, 5, 7)] and list(shapes)[1] == f"{next(iter(shapes))}#1"
    with torch.no_grad():
        eager = model(input_ids=TOKENS[:, :7], **inputs, output_attentions=True).cross_encoder_attentions
    assert (capture.weights(next(iter(shapes))) - eager[0][0]).abs().max() < 1e-5
