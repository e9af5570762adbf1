"""The Llama line: Llama, Mistral (a window), Qwen2 (biases on query, key and value; a window in some layers)."""

from __future__ import annotations

from typing import Any

from jumok.checkpoint.name_table import Rule, Table, joined
from jumok.errors import CheckpointError
from jumok.models import GPT, GPTConfig, Model, llama_config

from . import Reading, refuse_unless, rope, take

MODEL_TYPES = ("llama", "mistral", "qwen2")
LAYER_TYPES = ("full_attention", "sliding_attention")
MOST_LAYERS = 10_000


def reading(theirs: dict[str, Any]) -> Reading:
    kind = theirs["model_type"]
    refuse_unless(theirs, hidden_act="silu", mlp_bias=False)
    heads, width = take(theirs, "num_attention_heads"), take(theirs, "hidden_size")
    config = llama_config(
        vocabulary=take(theirs, "vocab_size"),
        width=width,
        layers=take(theirs, "num_hidden_layers"),
        heads=heads,
        groups=take(theirs, "num_key_value_heads", heads),
        head_width=take(theirs, "head_dim", None),
        hidden=take(theirs, "intermediate_size"),
        epsilon=take(theirs, "rms_norm_eps", 1e-6),
        attention_bias=kind == "qwen2" or take(theirs, "attention_bias", False),
        output_bias=kind == "llama" and take(theirs, "attention_bias", False),
        tied=take(theirs, "tie_word_embeddings", False),
        **{"length": take(theirs, "max_position_embeddings", 2048), **rope.read(theirs)},
        **_window(theirs),
    )
    return Reading(GPT, config, table(config))


def _window(theirs: dict[str, Any]) -> dict[str, Any]:
    """Mistral's window holds in every layer; Qwen2's in those that layer_types names, or from max_window_layers on."""
    if theirs["model_type"] == "mistral":
        return {"window": theirs.get("sliding_window")}
    if theirs["model_type"] != "qwen2":
        return {}
    layers = take(theirs, "num_hidden_layers")
    if not isinstance(layers, int) or not 1 <= layers <= MOST_LAYERS:
        raise CheckpointError(f"num_hidden_layers in config.json must be 1 to {MOST_LAYERS}, not {str(layers)[:40]!r}")
    window = theirs.get("sliding_window", 4096) if theirs.get("use_sliding_window") else None
    if theirs.get("layer_types") is not None:
        windowed = _named_layers(theirs["layer_types"], layers)
    else:
        first = take(theirs, "max_window_layers", 28)
        if type(first) is not int or first < 0:
            raise CheckpointError(f"max_window_layers in config.json must be a number of layers, not {str(first)[:40]}")
        windowed = [] if window is None else list(range(first, layers))
    if not windowed:
        return {}
    if window is None:
        raise CheckpointError("layer_types in config.json asks for a window, but use_sliding_window says there is none")
    return {"window": window, "windowed": None if len(windowed) == layers else windowed}


def _named_layers(kinds: object, layers: int) -> list[int]:
    """Those that have a window."""
    if not isinstance(kinds, list) or len(kinds) != layers:
        told = f"{len(kinds):,}" if isinstance(kinds, list) else str(kinds)[:40]
        raise CheckpointError(f"layer_types in config.json must name the kind of each of {layers} layers, not {told}")
    for kind in kinds:
        if kind not in LAYER_TYPES:
            raise CheckpointError(
                f"config.json has a layer of the kind {str(kind)[:40]!r}; known are {', '.join(LAYER_TYPES)}"
            )
    return [layer for layer, kind in enumerate(kinds) if kind == "sliding_attention"]


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
        and not (config.output_bias and (not config.attention_bias or config.window is not None))
        and not (config.windowed is not None and not config.attention_bias)
    )


def config_json(model: Model) -> dict[str, Any]:
    config = model.config
    assert isinstance(config, GPTConfig)
    if config.attention_bias and not config.output_bias:
        kind = "qwen2"
    else:
        kind = "llama" if config.window is None else "mistral"
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
        **rope.write(config),
        "tie_word_embeddings": config.tied,
    }
    if kind == "llama":
        told["attention_bias"] = config.attention_bias
    if kind == "mistral":
        told["sliding_window"] = config.window
    if kind == "qwen2" and config.window is not None:
        windowed = range(config.layers) if config.windowed is None else config.windowed
        told |= {
            "use_sliding_window": True,
            "sliding_window": config.window,
            "max_window_layers": windowed[0],  # what older versions go by
            "layer_types": [LAYER_TYPES[layer in windowed] for layer in range(config.layers)],
        }
    return told
