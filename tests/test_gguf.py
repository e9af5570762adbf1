"""GGUF files made here, with the gguf package, of a small Llama of transformers: how rotations are scaled in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

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


def their_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}"


def as_llama_cpp(name: str, tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Rows of query and key as neighbours, not as halves, which is how llama.cpp turns them."""
    for part, heads in (("q_proj", HEADS), ("k_proj", GROUPS)):
        if part in name:
            rows = tensor.shape[0] // heads
            order = [head * rows + half * rows // 2 + pair
                     for head in range(heads) for pair in range(rows // 2) for half in (0, 1)]  # fmt: skip
            tensor = tensor[order]
    return tensor.detach().numpy()


def written(path: Path, theirs: Any, fields: dict[str, Any], factors: Any = None) -> Path:
    config, fields = theirs.config, dict(fields)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(fields.pop("llama.block_count", LAYERS))
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*"abcdefghijklmnopqrstuv", "ab"])
    writer.add_token_merges(["a b"])
    for name, value in fields.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool}
        add[type(value)](name, value)
    for name, parameter in theirs.named_parameters():
        writer.add_tensor(their_name(name), as_llama_cpp(name, parameter))
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", np.asarray(factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def made(**scaling: Any) -> Any:
    told = {"rope_type": "default", "rope_theta": 10_000.0, **scaling}
    return perturb_parameters(
        LlamaForCausalLM(LlamaConfig(**SIZES, max_position_embeddings=LENGTH, rope_parameters=told))
    )


def llama3(factor: float) -> dict[str, Any]:
    return {
        "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500_000.0,
    }  # fmt: skip


def their_factors(theirs: Any) -> torch.Tensor:
    """By how much transformers turn each pair slower than without a scaling."""
    rotary = theirs.model.rotary_emb
    plain, _ = rotary.compute_default_rope_parameters(theirs.config)
    return plain / rotary.inv_freq


def same(path: Path, theirs: Any) -> Any:
    loaded, tokens = jumok.load(path), torch.randint(23, (1, LENGTH))
    with torch.no_grad():
        assert_parity(loaded.model(tokens).logits, theirs(tokens).logits)
    return loaded


SCALINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "none, said": ({}, {"llama.rope.scaling.type": "none", "llama.rope.dimension_count": 24}),
    "linear": (
        {"rope_type": "linear", "factor": 4.0},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    ),
    "linear, by a factor alone": ({"rope_type": "linear", "factor": 4.0}, {"llama.rope.scaling.factor": 4.0}),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        {
            "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": 16, "llama.rope.scaling.finetuned": True,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALINGS)
def test_logits_are_transformers(name: str, tmp_path: Path) -> None:
    scaling, fields = SCALINGS[name]
    same(written(tmp_path / "a.gguf", theirs := made(**scaling), fields), theirs)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_is_known_by_its_factors(factor: float, tmp_path: Path) -> None:
    theirs = made(**llama3(factor))
    factors = their_factors(theirs)
    assert factors[0] == 1 and factors[-1] == pytest.approx(factor) and ((factors > 1) & (factors < factor)).any()
    config = same(written(tmp_path / "a.gguf", theirs, {}, factors), theirs).config
    assert (config.rotary_scaling, config.rotary_factor) == ("llama3", pytest.approx(factor))
    assert jumok.load(tmp_path / "a.gguf", dtype=torch.bfloat16).config == config
    plain = made()
    same(written(tmp_path / "b.gguf", plain, {}, torch.ones(12)), plain)  # factors of one, which some files have


BAD: dict[str, tuple[dict[str, Any], Any, str]] = {
    "unknown kind": ({"llama.rope.scaling.type": "longrope"}, None, "rotary positions: longrope"),
    "unknown field": (
        {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_beta_fast": 8.0}, None, "yarn yarn_beta_fast"
    ),
    "factor 0": ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}, None, "factor .* from 1 to"),
    "no factor": ({"llama.rope.scaling.type": "linear"}, None, "no field 'factor'"),
    "not a number": (
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": float("nan")}, None, "factor .* not 'nan'"
    ),
    "a part of each head": ({"llama.rope.dimension_count": 12}, None, "dimension_count = 12; only 24"),
    "a billion blocks": ({"llama.block_count": 10**9}, None, "1,000,000,000 blocks, but holds"),
    "other factors": ({}, [1.0] * 11 + [3.0], "are not those of Llama 3.1's scaling"),
    "factors that are no numbers": ({}, [float("nan")] * 12, "are not those of Llama 3.1's scaling"),
    "factors below one": ({}, [0.5] * 12, "are not those of Llama 3.1's scaling"),
    "too many factors": ({}, [1.0] * 13, "are not those of Llama 3.1's scaling"),
    "two scalings": (
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}, [1.0] * 12, "not those of Llama 3.1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_known_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    fields, factors, says = BAD[name]
    path = written(tmp_path / "a.gguf", made(), fields, factors)
    with pytest.raises(JumokError, match=says):
        jumok.load(path)
