"""Convert Llama, Mistral (sliding window) and Qwen2 (biases on query, key and value; a window in some layers)."""

from __future__ import annotations

from types import MappingProxyType

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.models import GPT, GPTConfig, llama_config

from . import rope
from .dialect import Dialect, Field, LikeField, get_field

ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
LAYER_TYPES = ("full_attention", "sliding_attention")
MAX_LAYERS = 10_000


class LlamaDialect(Dialect[GPTConfig]):
    """A GPT with rotary positions, RMSNorm and SwiGLU whose biases and windows match one of the three."""

    model_types = tuple(ARCHITECTURES)
    architectures = MappingProxyType({None: ARCHITECTURES["llama"]})
    model_class = GPT
    supported = MappingProxyType({"hidden_act": "silu", "mlp_bias": False})
    fields = (
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
        biases = {"attention_bias": model_type == "qwen2" or bias, "output_bias": model_type == "llama" and bias}
        fields = self.parse_fields(hf_config)
        return llama_config(**fields | biases | rope.parse_rotary(hf_config) | _parse_window(hf_config))

    def fits(self, config: GPTConfig) -> bool:
        return (
            config.positions == "rotary"
            and config.norm == "rms"
            and config.feedforward == "gated"
            and config.activation == "silu"
            and not config.feedforward_bias
            and not (config.output_bias and (not config.attention_bias or config.window is not None))
            and not (config.windowed is not None and not config.attention_bias)
        )

    def to_hf_config(self, config: GPTConfig) -> JSONObject:
        if config.attention_bias and not config.output_bias:
            model_type = "qwen2"
        else:
            model_type = "llama" if config.window is None else "mistral"
        hf_config = super().to_hf_config(config) | rope.build_rotary_fields(config)
        hf_config["model_type"] = model_type
        hf_config["architectures"] = [ARCHITECTURES[model_type]]
        hf_config["head_dim"] = config.head_width or config.width // config.heads
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

    def build_name_table(self, config: GPTConfig) -> NameTable:
        head_width = config.head_width or config.width // config.heads
        group_width = (config.groups or config.heads) * head_width
        block = "model.layers.{}."
        projections = [f"{block}self_attn.{name}_proj" for name in "qkv"]
        gated = [f"{block}mlp.{name}_proj" for name in ("gate", "up")]
        rules: dict[str, str | Rule] = {
            "embedding": "model.embed_tokens",
            "blocks.{}.attention_norm": f"{block}input_layernorm",
            "blocks.{}.attention.projection.joined": Rule(
                projections, (config.heads * head_width, group_width, group_width)
            ),
            "blocks.{}.attention.output": f"{block}self_attn.o_proj",
            "blocks.{}.feedforward_norm": f"{block}post_attention_layernorm",
            "blocks.{}.feedforward.inner": Rule(gated, (config.hidden, config.hidden)),
            "blocks.{}.feedforward.outer": f"{block}mlp.down_proj",
            "norm": "model.norm",
            "output": "lm_head",
        }
        ignored = [f"{block}self_attn.rotary_emb.inv_freq", *(["lm_head"] if config.tied else [])]
        return NameTable(rules, ignored, base="model.")


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
