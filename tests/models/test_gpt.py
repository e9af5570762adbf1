"""Compare GPT-2 and Llama-style models with transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import jumok
from jumok.attention import Cache
from jumok.models import GPT, GPTConfig, Model, llama_config
from parity import assert_parity, check_round_trip

GPT2 = {"vocab_size": 97, "n_positions": 29, "n_embd": 30, "n_layer": 3, "n_head": 5}
LLAMA = {
    "vocab_size": 97, "max_position_embeddings": 40, "hidden_size": 36, "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2, "intermediate_size": 53,
}  # fmt: skip

CASES: dict[str, Any] = {
    "gpt2 tied": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "gpt2 untied, relu, wide": lambda: GPT2LMHeadModel(
        GPT2Config(**GPT2, tie_word_embeddings=False, activation_function="relu", n_inner=31)
    ),
    "llama grouped untied": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=False)),
    "llama tied, biases": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=True, attention_bias=True)),
    "llama head width, base": lambda: LlamaForCausalLM(
        LlamaConfig(**LLAMA, head_dim=10, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    ),
    "mistral window": lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=4)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=None)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA, use_sliding_window=False)),
    "qwen2 window in the last layers": lambda: Qwen2ForCausalLM(
        Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=4, max_window_layers=1)
    ),
    "qwen2 window in every layer": lambda: Qwen2ForCausalLM(
        Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=4, max_window_layers=0)
    ),
    "qwen2 window in the layer between": lambda: Qwen2ForCausalLM(
        Qwen2Config(
            **LLAMA, use_sliding_window=True, sliding_window=4, layer_types=name_layer_types("full sliding full")
        )
    ),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**LLAMA, head_dim=10)),
    "qwen3 biases, window in some layers": lambda: Qwen3ForCausalLM(
        Qwen3Config(
            **LLAMA, head_dim=8, attention_bias=True, use_sliding_window=True, sliding_window=4,
            layer_types=name_layer_types("full sliding full"),
        )
    ),
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(
            **LLAMA, head_dim=10, query_pre_attn_scalar=10, sliding_window=4,
            layer_types=name_layer_types("sliding full sliding"),
        )
    ),
    "gemma3 scaled, untied": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(
            **LLAMA, head_dim=10, query_pre_attn_scalar=10, sliding_window=3, tie_word_embeddings=False,
            layer_types=name_layer_types("full sliding full"),
            rope_parameters={
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 2e3},
            },
        )
    ),
}  # fmt: skip


def name_layer_types(names: str) -> list[str]:
    return [f"{name}_attention" for name in names.split()]


LENGTH = 11
TOKEN_MASKS = {
    "none": None,
    "right": [[1] * LENGTH, [1] * 7 + [0] * 4],
    "left": [[1] * LENGTH, [0] * 4 + [1] * 7],
}


@pytest.mark.parametrize("side", TOKEN_MASKS)
@pytest.mark.parametrize("name", CASES)
def test_logits_equal_transformers(name: str, side: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    tokens = torch.randint(97, (2, LENGTH))
    token_mask = None if TOKEN_MASKS[side] is None else torch.tensor(TOKEN_MASKS[side]).bool()

    def check(ours: Model, reference: Any) -> None:
        settings: dict[str, Any] = {}
        if token_mask is not None:
            settings = {
                "attention_mask": token_mask.long(),
                "position_ids": (token_mask.long().cumsum(-1) - 1).clamp_min(0),
            }
        assert_parity(ours(tokens, token_mask=token_mask).logits, reference(tokens, **settings).logits, token_mask)

    reference = CASES[name]()
    reference_class = LlamaForCausalLM if name == "mistral" else None  # without a window Mistral is a Llama
    check_round_trip(reference, tmp_path, check, reference_class)


def test_folder_without_a_head_loads(tmp_path: Path) -> None:
    reference = GPT2Model(GPT2Config(**GPT2)).eval()
    reference.save_pretrained(tmp_path / "bare")
    tokens = torch.randint(97, (1, 6))
    with torch.no_grad():
        assert_parity(jumok.load(tmp_path / "bare").model(tokens).hidden, reference(tokens).last_hidden_state)


def test_sharded_folder_loads(tmp_path: Path) -> None:
    reference = LlamaForCausalLM(LlamaConfig(**LLAMA)).eval()
    reference.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    tokens = torch.randint(97, (1, 6))
    with torch.no_grad():
        assert_parity(jumok.load(tmp_path / "shards").model(tokens).logits, reference(tokens).logits)


SMALL = {"vocabulary": 50, "length": 20, "width": 24, "layers": 2, "heads": 4, "hidden": 40}
CONFIGS = {
    "gpt": GPTConfig(**SMALL),
    "llama": llama_config(**SMALL, groups=2),
    "window": llama_config(**SMALL, window=3),
    "window in the second layer": llama_config(**SMALL, window=3, windowed=[1]),
    "scaled": llama_config(
        **SMALL, rotary_scaling="yarn", rotary_factor=2.0, rotary_length=10, rotary_slow=0.1, rotary_gain=1.1
    ),
    "gemma": llama_config(
        **SMALL, window=3, windowed=[1], rotary_window_base=100.0, query_key_norm=True, output_norm=True,
        scaled_embedding=True,
    ),
    "no positions": GPTConfig(**SMALL, positions="none"),
    "sinusoidal": GPTConfig(**SMALL, positions="sinusoidal"),
    "alibi": llama_config(**{**SMALL, "positions": "alibi"}, groups=2),
    "alibi with a window": GPTConfig(**SMALL, positions="alibi", window=3, windowed=(1,)),
    "t5": GPTConfig(**SMALL, positions="t5", buckets=5, max_distance=6),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_later_tokens_do_not_change_earlier_logits(name: str) -> None:
    model = GPT(CONFIGS[name]).eval()
    tokens = torch.randint(50, (2, 9))
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 7) % 50
    with torch.no_grad():
        first, second = model(tokens).logits, model(changed).logits
    assert torch.equal(first[:, :5], second[:, :5]) and not torch.allclose(first[:, 5:], second[:, 5:])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_the_output(name: str, side: str) -> None:
    model = GPT(CONFIGS[name]).eval()
    tokens = torch.randint(50, (2, 9))
    token_mask = torch.ones(2, 9).bool()
    token_mask[1, : 3 if side == "left" else None] = side != "left"
    if side == "right":
        token_mask[1, 6:] = False
    changed = torch.where(token_mask, tokens, (tokens + 11) % 50)
    with torch.no_grad():
        first, second = model(tokens, token_mask=token_mask).logits, model(changed, token_mask=token_mask).logits
        unpadded = model(tokens[1:, token_mask[1]]).logits
    assert torch.equal(first[token_mask], second[token_mask])
    assert torch.allclose(first[1, token_mask[1]], unpadded[0], atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_decoding_with_a_cache_equals_one_pass(name: str) -> None:
    model = GPT(CONFIGS[name]).eval()
    tokens = torch.randint(50, (2, 9))
    with torch.no_grad():
        full_logits = model(tokens).logits
        for capacity in (None, 9):
            cache = Cache(capacity)
            parts = [model(part, cache=cache).logits for part in tokens.split([4, 1, 1, 3], 1)]
            assert torch.allclose(torch.cat(parts, 1), full_logits, atol=1e-5)
        assert torch.allclose(model(tokens, last=2).logits, full_logits[:, -2:], atol=1e-6)


def test_weights_of_every_layer_are_returned() -> None:
    model = GPT(CONFIGS["gpt"]).eval()
    output = model(torch.randint(50, (2, 9)), weights=True)
    assert [list(layer.shape) for layer in output.weights] == [[2, 4, 9, 9]] * 2
    assert torch.allclose(output.weights[1].sum(-1), torch.ones(2, 4, 9), atol=1e-6)
    assert model(torch.randint(50, (2, 9))).weights is None


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_backends_and_checkpointing_give_the_same_gradients(backend: str) -> None:
    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = GPT(CONFIGS["llama"])
        model.use_backend(backend)
        model.checkpointing = checkpointing
        tokens = torch.arange(18).view(2, 9)
        model(tokens).logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for first, second in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert torch.allclose(first, second, atol=1e-6)


def test_gpt2_small_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        assert GPT(GPTConfig()).parameter_count == 124_439_808
