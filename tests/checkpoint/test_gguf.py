"""Write a small Llama of transformers as GGUF files and load them: names, permutations and rotary scaling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import jumok
from jumok.errors import JumokError
from parity import assert_parity, perturb_parameters

gguf = pytest.importorskip("gguf")

HEADS, GROUPS, LAYERS, LENGTH = 2, 1, 2, 64
SIZES = {
    "vocab_size": 23, "hidden_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS, "intermediate_size": 31, "tie_word_embeddings": False,
}  # fmt: skip
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}


NORM_NAMES = {"self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight"}
GEMMA_NAMES = {
    **NORM_NAMES,
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
}


def convert_name(name: str, architecture: str) -> str:
    biases = {f"self_attn.{part}_proj.bias": f"attn_{part}.bias" for part in "qkv"}
    names = {**NAMES, **biases, **(GEMMA_NAMES if architecture == "gemma3" else NORM_NAMES)}
    if name in names:
        return names[name]
    _, _, layer, suffix = name.split(".", 3)
    return f"blk.{layer}.{names[suffix]}"


def permute_rows(name: str, tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Reorder the rows of query and key from halves to neighbours, as llama.cpp rotates them."""
    for part, heads in (("q_proj", HEADS), ("k_proj", GROUPS)):
        if part in name:
            rows = tensor.shape[0] // heads
            order = [head * rows + half * rows // 2 + pair
                     for head in range(heads) for pair in range(rows // 2) for half in (0, 1)]  # fmt: skip
            tensor = tensor[order]
    return tensor.detach().numpy()


def write_gguf(
    path: Path, reference: Any, fields: dict[str, Any], factors: Any = None, architecture: str = "llama"
) -> Path:
    config, fields = reference.config, dict(fields)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(fields.pop("llama.block_count", config.num_hidden_layers))
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*"abcdefghijklmnopqrstuv", "ab"])
    writer.add_token_merges(["a b"])
    for name, value in fields.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool}
        add[type(value)](name, value)
    for name, parameter in reference.named_parameters():
        stored = parameter.detach() + 1 if architecture == "gemma3" and "norm" in name else parameter.detach()
        writer.add_tensor(
            convert_name(name, architecture),
            permute_rows(name, stored) if architecture == "llama" else stored.numpy(),
        )
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", np.asarray(factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def build_reference(**scaling: Any) -> Any:
    rope_parameters = {"rope_type": "default", "rope_theta": 10_000.0, **scaling}
    return perturb_parameters(
        LlamaForCausalLM(LlamaConfig(**SIZES, max_position_embeddings=LENGTH, rope_parameters=rope_parameters))
    )


def llama3(factor: float) -> dict[str, Any]:
    return {
        "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500_000.0,
    }  # fmt: skip


def compute_reference_factors(reference: Any) -> torch.Tensor:
    """Return by how much transformers slow down the rotation of each pair."""
    rotary = reference.model.rotary_emb
    plain, _ = rotary.compute_default_rope_parameters(reference.config)
    return plain / rotary.inv_freq


def check_logits(path: Path, reference: Any) -> Any:
    loaded, tokens = jumok.load(path), torch.randint(23, (1, LENGTH))
    with torch.no_grad():
        assert_parity(loaded.model(tokens).logits, reference(tokens).logits)
    return loaded


SCALINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "none, stated": ({}, {"llama.rope.scaling.type": "none", "llama.rope.dimension_count": 24}),
    "linear": (
        {"rope_type": "linear", "factor": 4.0},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    ),
    "linear, only a factor": ({"rope_type": "linear", "factor": 4.0}, {"llama.rope.scaling.factor": 4.0}),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        {
            "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": 16, "llama.rope.scaling.finetuned": True,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALINGS)
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    scaling, fields = SCALINGS[name]
    check_logits(write_gguf(tmp_path / "a.gguf", reference := build_reference(**scaling), fields), reference)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_recognised_by_its_factors(factor: float, tmp_path: Path) -> None:
    reference = build_reference(**llama3(factor))
    factors = compute_reference_factors(reference)
    assert factors[0] == 1 and factors[-1] == pytest.approx(factor) and ((factors > 1) & (factors < factor)).any()
    config = check_logits(write_gguf(tmp_path / "a.gguf", reference, {}, factors), reference).config
    assert (config.rotary_scaling, config.rotary_factor) == ("llama3", pytest.approx(factor))
    assert jumok.load(tmp_path / "a.gguf", dtype=torch.bfloat16).config == config
    plain = build_reference()
    check_logits(write_gguf(tmp_path / "b.gguf", plain, {}, torch.ones(12)), plain)  # some files store factors of 1


OTHERS: dict[str, Any] = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES, max_position_embeddings=LENGTH)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, max_position_embeddings=LENGTH, head_dim=10)),
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(
            **{**SIZES, "num_hidden_layers": 7, "tie_word_embeddings": True}, max_position_embeddings=LENGTH,
            head_dim=10, query_pre_attn_scalar=10, sliding_window=4,
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("architecture", OTHERS)
def test_other_architectures_equal_transformers(architecture: str, tmp_path: Path) -> None:
    reference = perturb_parameters(OTHERS[architecture]())
    head_width = getattr(reference.config, "head_dim", None) or 24
    fields = {f"{architecture}.attention.{part}_length": head_width for part in ("key", "value")}
    if architecture == "gemma3":
        fields["gemma3.attention.sliding_window"] = 4
    check_logits(write_gguf(tmp_path / "a.gguf", reference, fields, architecture=architecture), reference)


BAD: dict[str, tuple[dict[str, Any], Any, str]] = {
    "unknown type": ({"llama.rope.scaling.type": "longrope"}, None, "rotary position scaling: longrope"),
    "unknown field": (
        {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_beta_fast": 8.0}, None, "yarn yarn_beta_fast"
    ),
    "factor 0": ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}, None, "factor .* from 1 to"),
    "no factor": ({"llama.rope.scaling.type": "linear"}, None, "no field 'factor'"),
    "not a number": (
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": float("nan")}, None, "factor .* not 'nan'"
    ),
    "part of each head": ({"llama.rope.dimension_count": 12}, None, "dimension_count = 12; only the head width, 24"),
    "a billion blocks": ({"llama.block_count": 10**9}, None, "1,000,000,000 blocks, but holds"),
    "other factors": ({}, [1.0] * 11 + [3.0], "do not match Llama 3.1's scaling"),
    "factors are NaN": ({}, [float("nan")] * 12, "do not match Llama 3.1's scaling"),
    "factors below one": ({}, [0.5] * 12, "do not match Llama 3.1's scaling"),
    "too many factors": ({}, [1.0] * 13, "do not match Llama 3.1's scaling"),
    "two scalings": (
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}, [1.0] * 12, "do not match Llama 3.1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_unsupported_files_are_refused(name: str, tmp_path: Path) -> None:
    fields, factors, message = BAD[name]
    path = write_gguf(tmp_path / "a.gguf", build_reference(), fields, factors)
    with pytest.raises(JumokError, match=message):
        jumok.load(path)
