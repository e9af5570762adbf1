"""The Llama line: Llama, Mistral (a window), Qwen2 (biases on query, key and value)."""

from __future__ import annotations

from typing import Any

from jumok.models import GPT, GPTConfig, Model, llama_config

from ..errors import CheckpointError
from ..rename import Rule, Table, joined
from . import Reading, refuse_unless, take

MODEL_TYPES = ("llama", "mistral", "qwen2")


def reading(theirs: dict[str, Any]) -> Reading:
    kind = theirs["model_type"]
    refuse_unless(theirs, hidden_act="silu", mlp_bias=False)
    heads, width = take(theirs, "num_attention_heads"), take(theirs, "hidden_size")
    config = llama_config(
        vocabulary=take(theirs, "vocab_size"),
        length=take(theirs, "max_position_embeddings", 2048),
        width=width,
        layers=take(theirs, "num_hidden_layers"),
        heads=heads,
        groups=take(theirs, "num_key_value_heads", heads),
        head_width=take(theirs, "head_dim", None),
        hidden=take(theirs, "intermediate_size"),
        rotary_base=_rotary_base(theirs),
        epsilon=take(theirs, "rms_norm_eps", 1e-6),
        attention_bias=kind == "qwen2" or take(theirs, "attention_bias", False),
        output_bias=kind == "llama" and take(theirs, "attention_bias", False),
        window=_window(theirs),
        tied=take(theirs, "tie_word_embeddings", False),
    )
    return Reading(GPT, config, table(config))


def _rotary_base(theirs: dict[str, Any]) -> float:
    told = theirs.get("rope_parameters") or theirs.get("rope_scaling") or {}
    if not isinstance(told, dict):
        raise CheckpointError("rope_parameters in config.json must be an object")
    kind = told.get("rope_type", told.get("type", "default"))
    if kind != "default":
        raise CheckpointError(
            f"config.json scales its rotary positions by {str(kind)[:40]!r}; only 'default' is supported"
        )
    base = told.get("rope_theta", theirs.get("rope_theta", 10_000.0))
    if not isinstance(base, int | float):
        raise CheckpointError(f"rope_theta in config.json must be a number, not {str(base)[:40]!r}")
    return float(base)


def _window(theirs: dict[str, Any]) -> int | None:
    """Mistral's window holds in every layer; Qwen2's only where it says so."""
    window: int | None = theirs.get("sliding_window")
    if theirs["model_type"] == "mistral":
        return window
    if theirs["model_type"] == "qwen2" and window is not None and theirs.get("use_sliding_window"):
        raise CheckpointError("config.json asks for a window in some of Qwen2's layers; that is not supported")
    return None


def table(config: GPTConfig) -> Table:
    head_width = config.head_width or config.width // config.heads
    groups = config.groups or config.heads
    maps = [f"model.layers.{{}}.self_attn.{name}_proj" for name in "qkv"]
    gate = [f"model.layers.{{}}.mlp.{name}_proj" for name in ("gate", "up")]
    sizes = (config.heads * head_width, groups * head_width, groups * head_width)
    rules = [
        Rule("embedding.weight", ("model.embed_tokens.weight",)),
        Rule("blocks.{}.attention_norm.weight", ("model.layers.{}.input_layernorm.weight",)),
        *joined("blocks.{}.attention.projection.joined", maps, sizes),
        Rule("blocks.{}.attention.output.weight", ("model.layers.{}.self_attn.o_proj.weight",)),
        Rule("blocks.{}.attention.output.bias", ("model.layers.{}.self_attn.o_proj.bias",)),
        Rule("blocks.{}.feedforward_norm.weight", ("model.layers.{}.post_attention_layernorm.weight",)),
        *joined("blocks.{}.feedforward.inner", gate, (config.hidden, config.hidden)),
        Rule("blocks.{}.feedforward.outer.weight", ("model.layers.{}.mlp.down_proj.weight",)),
        Rule("norm.weight", ("model.norm.weight",)),
        Rule("output.weight", ("lm_head.weight",)),
    ]
    ignored = ["model.layers.{}.self_attn.rotary_emb.inv_freq", *(["lm_head.weight"] if config.tied else [])]
    return Table(rules, ignored, base="model.")


def writes(model: Model) -> bool:
    config = model.config
    return isinstance(config, GPTConfig) and (
        config.positions == "rotary"
        and config.norm == "rms"
        and config.feedforward == "gated"
        and config.activation == "silu"
        and not config.feedforward_bias
        and not (config.window is not None and config.attention_bias)
        and not (config.output_bias and not config.attention_bias)
    )


def config_json(model: Model) -> dict[str, Any]:
    config = model.config
    assert isinstance(config, GPTConfig)
    if config.window is not None:
        kind = "mistral"
    else:
        kind = "qwen2" if config.attention_bias and not config.output_bias else "llama"
    told = {
        "model_type": kind,
        "architectures": [
            {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"}[kind]
        ],
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.length,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.groups or config.heads,
        "head_dim": config.head_width or config.width // config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": "silu",
        "rms_norm_eps": config.epsilon,
        "rope_theta": config.rotary_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base},
        "tie_word_embeddings": config.tied,
    }
    if kind == "llama":
        told["attention_bias"] = config.attention_bias
    if kind == "mistral":
        told["sliding_window"] = config.window
    return told
