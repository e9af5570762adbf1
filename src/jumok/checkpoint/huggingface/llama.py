"""Convert Llama, Mistral (sliding window), Qwen2 (biases on query, key and value; a window in some layers) and Qwen3
(norms of queries and keys instead of biases).

Each scaling of rotary positions is computed as transformers computes it; an unknown type is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import ClassVar

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.models import GPT, GPTConfig, llama_config

from .dialect import Dialect, Field, LikeField, get_field

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
LAYER_TYPES = ("full_attention", "sliding_attention")
MAX_LAYERS = 10_000
ROPE_TYPES = ("default", "linear", "llama3", "yarn", "dynamic")
MAX_FACTOR = 1e6  # far above any published factor; a larger one means a damaged file


class LlamaDialect(Dialect[GPTConfig]):
    """A GPT with rotary positions, RMSNorm and SwiGLU whose biases, norms and windows match one of the four."""

    model_types = tuple(ARCHITECTURES)
    architectures = MappingProxyType({None: ARCHITECTURES["llama"]})
    model_class = GPT
    supported = MappingProxyType({"hidden_act": "silu", "mlp_bias": False})
    fields: ClassVar[Sequence[Field]] = (
        Field("vocab_size", "vocabulary"),
        Field("max_position_embeddings", "length", 2048),
        Field("hidden_size", "width"),
        Field("num_hidden_layers", "layers"),
        Field("num_attention_heads", "heads"),
        Field("num_key_value_heads", "groups", LikeField("heads")),
        Field("head_dim", "head_width", None),
        Field("intermediate_size", "hidden"),
        Field("rms_norm_eps", "epsilon", 1e-6),
        Field("tie_word_embeddings", "tied", False),
    )

    def from_hf_config(self, hf_config: JSONObject) -> GPTConfig:
        model_type = hf_config["model_type"]
        bias = get_field(hf_config, "attention_bias", False)
        fields = self.parse_fields(hf_config) | {
            "attention_bias": model_type == "qwen2" or bias,
            "output_bias": model_type in ("llama", "qwen3") and bias,
            "query_key_norm": model_type == "qwen3",
        }
        if model_type == "qwen3" and fields["head_width"] is None:
            fields["head_width"] = 128  # the default of transformers
        return llama_config(**fields | parse_rotary(hf_config) | _parse_window(hf_config))

    def fits(self, config: GPTConfig) -> bool:
        if config.query_key_norm:
            has_model = config.attention_bias == config.output_bias
        elif config.attention_bias == config.output_bias:
            has_model = config.windowed is None and not (config.attention_bias and config.window is not None)
        else:
            has_model = config.attention_bias
        is_gemma = config.output_norm or config.scaled_embedding or config.rotary_window_base is not None
        return has_model and not is_gemma and has_llama_layers(config) and config.activation == "silu"

    def to_hf_config(self, config: GPTConfig) -> JSONObject:
        if config.query_key_norm:
            model_type = "qwen3"
        elif config.attention_bias and not config.output_bias:
            model_type = "qwen2"
        else:
            model_type = "llama" if config.window is None else "mistral"
        hf_config = super().to_hf_config(config) | build_rotary_fields(config)
        hf_config["model_type"] = model_type
        hf_config["architectures"] = [ARCHITECTURES[model_type]]
        hf_config["head_dim"] = config.head_width or config.width // config.heads
        if model_type in ("llama", "qwen3"):
            hf_config["attention_bias"] = config.attention_bias
        if model_type == "mistral":
            hf_config["sliding_window"] = config.window
        if model_type in ("qwen2", "qwen3") and config.window is not None:
            hf_config |= {
                "use_sliding_window": True,
                "sliding_window": config.window,
                "max_window_layers": config.window_layers[0],  # for transformers versions that do not read layer_types
                "layer_types": list_layer_types(config),
            }
        return hf_config

    def build_name_table(self, config: GPTConfig) -> NameTable:
        inverse_frequencies = "model.layers.{}.self_attn.rotary_emb.inv_freq"
        ignored = [inverse_frequencies, *(["lm_head"] if config.tied else [])]
        return NameTable(self.build_rules(config), ignored, base="model.")

    def build_rules(self, config: GPTConfig) -> dict[str, str | Rule]:
        """Return the names of the parameters."""
        head_width = config.head_width or config.width // config.heads
        group_width = (config.groups or config.heads) * head_width
        block = "model.layers.{}."
        projections = [f"{block}self_attn.{name}_proj" for name in "qkv"]
        gated = [f"{block}mlp.{name}_proj" for name in ("gate", "up")]
        return {
            "embedding": "model.embed_tokens",
            "blocks.{}.attention_norm": f"{block}input_layernorm",
            "blocks.{}.attention.projection.joined": Rule(
                projections, (config.heads * head_width, group_width, group_width)
            ),
            "blocks.{}.attention.query_norm": f"{block}self_attn.q_norm",
            "blocks.{}.attention.key_norm": f"{block}self_attn.k_norm",
            "blocks.{}.attention.output": f"{block}self_attn.o_proj",
            "blocks.{}.feedforward_norm": f"{block}post_attention_layernorm",
            "blocks.{}.feedforward.inner": Rule(gated, (config.hidden, config.hidden)),
            "blocks.{}.feedforward.outer": f"{block}mlp.down_proj",
            "norm": "model.norm",
            "output": "lm_head",
        }


def has_llama_layers(config: GPTConfig) -> bool:
    """Whether a config has rotary positions, RMSNorm, and a gated feed-forward network without biases."""
    layers = (config.positions, config.norm, config.feedforward, config.feedforward_bias)
    return layers == ("rotary", "rms", "gated", False)


def list_layer_types(config: GPTConfig) -> list[str]:
    """Return Hugging Face's type of each layer: with or without a window."""
    return [LAYER_TYPES[layer in config.window_layers] for layer in range(config.layers)]


def _parse_window(hf_config: JSONObject) -> JSONObject:
    """Return our window fields. Mistral's window applies to every layer; Qwen2's to the layers marked in layer_types,
    or without that field to those from max_window_layers on."""
    if hf_config["model_type"] == "mistral":
        return {"window": hf_config.get("sliding_window")}
    if hf_config["model_type"] not in ("qwen2", "qwen3"):
        return {}

    layers = count_layers(hf_config)
    window = hf_config.get("sliding_window", 4096) if hf_config.get("use_sliding_window") else None
    if hf_config.get("layer_types") is not None:
        windowed = find_windowed_layers(hf_config["layer_types"], layers)
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


def count_layers(hf_config: JSONObject) -> int:
    """Return the number of layers, checked before anything is built for each of them."""
    layers = get_field(hf_config, "num_hidden_layers")
    if not isinstance(layers, int) or not 1 <= layers <= MAX_LAYERS:
        raise CheckpointError(f"num_hidden_layers in config.json must be 1 to {MAX_LAYERS}, not {str(layers)[:40]!r}")
    return layers


def find_windowed_layers(layer_types: JSONValue, layers: int) -> list[int]:
    """Return the layers whose type in config.json has a window."""
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


def parse_rotary(hf_config: JSONObject) -> JSONObject:
    """Return the rotary fields of our config, and "length" if the scaling determines it."""
    # if a config has both, transformers reads the older one
    rope = hf_config.get("rope_scaling") or hf_config.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise CheckpointError("rope_scaling or rope_parameters in config.json must be an object")
    if "full_attention" in rope or "sliding_attention" in rope:
        raise CheckpointError(
            "config.json sets rotary positions per layer type; only one setting for all layers is supported"
        )
    for level in (hf_config, rope):
        share = level.get("partial_rotary_factor")
        if share is not None and share != 1:
            raise CheckpointError(f"config.json has partial_rotary_factor = {str(share)[:40]}; only 1 is supported")
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type not in ROPE_TYPES:
        raise CheckpointError(f"config.json has rope_type {str(rope_type)[:40]!r}; supported: {', '.join(ROPE_TYPES)}")

    base = _get_number(rope if rope.get("rope_theta") is not None else hf_config, "rope_theta", 1.0, 1e30, 10_000.0)
    if rope_type == "default":
        return {"rotary_base": base}
    fields: JSONObject = {"rotary_base": base, "rotary_scaling": rope_type}
    if rope_type == "yarn":
        return fields | _parse_yarn(hf_config, rope)
    fields["rotary_factor"] = _get_number(rope, "factor", 1.0, MAX_FACTOR)
    if rope_type == "llama3":
        fields["rotary_length"] = _parse_trained_length(hf_config, rope)
        fields["rotary_slow"] = _get_number(rope, "low_freq_factor", 1e-6, MAX_FACTOR)
        fields["rotary_fast"] = _get_number(rope, "high_freq_factor", 1e-6, MAX_FACTOR)
    return fields


def _parse_yarn(hf_config: JSONObject, rope: JSONObject) -> JSONObject:
    if rope.get("truncate", True) is not True:
        raise CheckpointError("config.json has yarn with truncate = false; only true is supported")
    trained = _parse_trained_length(hf_config, rope)
    length = _get_number(hf_config, "max_position_embeddings", 1.0, 2.0**31, 2048.0)
    factor = _get_number(rope, "factor", 1.0, MAX_FACTOR, length / trained)

    # the attention factor is stored, or computed from DeepSeek's two multipliers, or from the factor as in the paper
    gain = _get_number(rope, "attention_factor", 1e-6, MAX_FACTOR, _compute_gain(factor))
    if rope.get("attention_factor") is None and rope.get("mscale") and rope.get("mscale_all_dim"):
        multiplier = _get_number(rope, "mscale", 1e-6, MAX_FACTOR)
        divisor = _get_number(rope, "mscale_all_dim", 1e-6, MAX_FACTOR)
        gain = _compute_gain(factor, multiplier) / _compute_gain(factor, divisor)
    return {
        "rotary_factor": factor,
        "rotary_length": trained,
        "rotary_fast": _get_number(rope, "beta_fast", 0.0, MAX_FACTOR, 32.0) or 32.0,
        "rotary_slow": _get_number(rope, "beta_slow", 0.0, MAX_FACTOR, 1.0) or 1.0,
        "rotary_gain": gain,
        # Qwen2's configs store the context length before the scaling
        "length": max(int(length), round(factor * trained)),
    }


def _compute_gain(factor: float, multiplier: float = 1.0) -> float:
    return 0.1 * multiplier * math.log(factor) + 1.0 if factor > 1 else 1.0


def _parse_trained_length(hf_config: JSONObject, rope: JSONObject) -> int:
    """Return the context length before the scaling; a top-level field takes precedence over one inside rope_scaling."""
    name = "original_max_position_embeddings"
    for level, field in ((hf_config, name), (rope, name), (hf_config, "max_position_embeddings")):
        length = level.get(field)
        if length is None:
            continue
        if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= 2**31:
            raise CheckpointError(f"{field} in config.json must be an integer of at least 1, not {str(length)[:40]}")
        return length
    return 2048


def _get_number(values: JSONObject, name: str, least: float, most: float, default: float | None = None) -> float:
    number = get_field(values, name) if default is None else get_field(values, name, default)
    if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number <= most:
        raise CheckpointError(
            f"{name} in config.json must be a number from {least:g} to {most:g}, not {str(number)[:40]!r}"
        )
    return float(number)


def build_rotary_fields(config: GPTConfig) -> JSONObject:
    """Return Hugging Face's rotary fields: rope_parameters for version 5 and later, the older ones for all others."""
    rope_type = "default" if config.rotary_scaling == "none" else config.rotary_scaling
    scaling: JSONObject = {"rope_type": rope_type}
    if rope_type != "default":
        scaling["factor"] = config.rotary_factor
    if rope_type in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = config.rotary_length or config.length
        slow, fast = ("low_freq_factor", "high_freq_factor") if rope_type == "llama3" else ("beta_slow", "beta_fast")
        scaling |= {slow: config.rotary_slow, fast: config.rotary_fast}
    if rope_type == "yarn":
        scaling["attention_factor"] = config.rotary_gain

    fields: JSONObject = {
        "rope_theta": config.rotary_base,
        "rope_parameters": {**scaling, "rope_theta": config.rotary_base},
    }
    if rope_type != "default":
        fields["rope_scaling"] = scaling
    return fields
