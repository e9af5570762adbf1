"""Convert Llama, Mistral (sliding window) and Qwen2 (biases on query, key and value; a window in some layers)."""

from __future__ import annotations

from jumok.checkpoint.name_table import NameTable, Rule, concatenate_layers
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.models import GPT, Config, GPTConfig, Model, llama_config

from . import rope
from .common import get_field, refuse_unless

MODEL_TYPES: tuple[str, ...] = ("llama", "mistral", "qwen2")
MODEL_CLASS: type[Model] = GPT

ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
LAYER_TYPES = ("full_attention", "sliding_attention")
MAX_LAYERS = 10_000


def from_hf_config(hf_config: JSONObject) -> GPTConfig:
    """Convert a Llama, Mistral or Qwen2 config to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    refuse_unless(hf_config, hidden_act="silu", mlp_bias=False)
    model_type = hf_config["model_type"]
    heads = get_field(hf_config, "num_attention_heads")
    bias = get_field(hf_config, "attention_bias", False)
    return llama_config(
        vocabulary=get_field(hf_config, "vocab_size"),
        width=get_field(hf_config, "hidden_size"),
        layers=get_field(hf_config, "num_hidden_layers"),
        heads=heads,
        groups=get_field(hf_config, "num_key_value_heads", heads),
        head_width=get_field(hf_config, "head_dim", None),
        hidden=get_field(hf_config, "intermediate_size"),
        epsilon=get_field(hf_config, "rms_norm_eps", 1e-6),
        attention_bias=model_type == "qwen2" or bias,
        output_bias=model_type == "llama" and bias,
        tied=get_field(hf_config, "tie_word_embeddings", False),
        **{"length": get_field(hf_config, "max_position_embeddings", 2048), **rope.parse_rotary(hf_config)},
        **_parse_window(hf_config),
    )


def _parse_window(hf_config: JSONObject) -> JSONObject:
    """Return our window fields. Mistral's window applies to every layer; Qwen2's to the layers marked in layer_types,
    or without that field to those from max_window_layers on."""
    if hf_config["model_type"] == "mistral":
        return {"window": hf_config.get("sliding_window")}
    if hf_config["model_type"] != "qwen2":
        return {}

    layers = get_field(hf_config, "num_hidden_layers")
    if not isinstance(layers, int) or not 1 <= layers <= MAX_LAYERS:
        raise CheckpointError(f"num_hidden_layers in config.json must be 1 to {MAX_LAYERS}, not {str(layers)[:40]!r}")
    window = hf_config.get("sliding_window", 4096) if hf_config.get("use_sliding_window") else None
    if hf_config.get("layer_types") is not None:
        windowed = _find_windowed_layers(hf_config["layer_types"], layers)
    else:
        first = get_field(hf_config, "max_window_layers", 28)
        if isinstance(first, bool) or not isinstance(first, int) or first < 0:
            raise CheckpointError(
                f"max_window_layers in config.json must be an integer of at least 0, not {str(first)[:40]}"
            )
        windowed = [] if window is None else list(range(first, layers))

    if not windowed:
        return {}
    if window is None:
        raise CheckpointError(
            "layer_types in config.json contains sliding_attention, but use_sliding_window is false; set one of them"
        )
    return {"window": window, "windowed": None if len(windowed) == layers else windowed}


def _find_windowed_layers(layer_types: JSONValue, layers: int) -> list[int]:
    if not isinstance(layer_types, list) or len(layer_types) != layers:
        shown = f"{len(layer_types):,}" if isinstance(layer_types, list) else str(layer_types)[:40]
        raise CheckpointError(
            f"layer_types in config.json must be a list with the type of each of the {layers} layers, not {shown}"
        )
    for layer_type in layer_types:
        if layer_type not in LAYER_TYPES:
            raise CheckpointError(
                f"config.json has a layer of type {str(layer_type)[:40]!r}; supported: {', '.join(LAYER_TYPES)}"
            )
    return [layer for layer, layer_type in enumerate(layer_types) if layer_type == "sliding_attention"]


def can_express(config: Config) -> bool:
    """Return True for a GPT with rotary positions, RMSNorm and SwiGLU whose biases and windows match one of the three.

    Args:
        config: Our config, of any family.
    """
    return isinstance(config, GPTConfig) and (
        config.positions == "rotary"
        and config.norm == "rms"
        and config.feedforward == "gated"
        and config.activation == "silu"
        and not config.feedforward_bias
        and not (config.output_bias and (not config.attention_bias or config.window is not None))
        and not (config.windowed is not None and not config.attention_bias)
    )


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to a Llama, Mistral or Qwen2 config.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, GPTConfig)
    if config.attention_bias and not config.output_bias:
        model_type = "qwen2"
    else:
        model_type = "llama" if config.window is None else "mistral"

    hf_config: JSONObject = {
        "model_type": model_type,
        "architectures": [ARCHITECTURES[model_type]],
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
        **rope.build_rotary_fields(config),
        "tie_word_embeddings": config.tied,
    }
    if model_type == "llama":
        hf_config["attention_bias"] = config.attention_bias
    if model_type == "mistral":
        hf_config["sliding_window"] = config.window
    if model_type == "qwen2" and config.window is not None:
        windowed = range(config.layers) if config.windowed is None else config.windowed
        hf_config |= {
            "use_sliding_window": True,
            "sliding_window": config.window,
            "max_window_layers": windowed[0],  # for transformers versions that do not read layer_types
            "layer_types": [LAYER_TYPES[layer in windowed] for layer in range(config.layers)],
        }
    return hf_config


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, GPTConfig)
    head_width = config.head_width or config.width // config.heads
    groups = config.groups or config.heads
    projections = [f"model.layers.{{}}.self_attn.{name}_proj" for name in "qkv"]
    widths = (config.heads * head_width, groups * head_width, groups * head_width)
    gated = [f"model.layers.{{}}.mlp.{name}_proj" for name in ("gate", "up")]
    rules = [
        Rule("embedding.weight", ("model.embed_tokens.weight",)),
        Rule("blocks.{}.attention_norm.weight", ("model.layers.{}.input_layernorm.weight",)),
        *concatenate_layers("blocks.{}.attention.projection.joined", projections, widths),
        Rule("blocks.{}.attention.output.weight", ("model.layers.{}.self_attn.o_proj.weight",)),
        Rule("blocks.{}.attention.output.bias", ("model.layers.{}.self_attn.o_proj.bias",)),
        Rule("blocks.{}.feedforward_norm.weight", ("model.layers.{}.post_attention_layernorm.weight",)),
        *concatenate_layers("blocks.{}.feedforward.inner", gated, (config.hidden, config.hidden)),
        Rule("blocks.{}.feedforward.outer.weight", ("model.layers.{}.mlp.down_proj.weight",)),
        Rule("norm.weight", ("model.norm.weight",)),
        Rule("output.weight", ("lm_head.weight",)),
    ]
    ignored = ["model.layers.{}.self_attn.rotary_emb.inv_freq", *(["lm_head.weight"] if config.tied else [])]
    return NameTable(rules, ignored, base="model.")
