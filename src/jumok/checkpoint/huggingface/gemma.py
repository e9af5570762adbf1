"""Convert Gemma 3's language model: norms before and after each layer, and windows with rotations of their own."""

from __future__ import annotations

from types import MappingProxyType

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.errors import CheckpointError
from jumok.fields import JSONObject
from jumok.models import GPTConfig, llama_config

from .dialect import Field, LikeField, activation_field, get_field, refuse_unless
from .llama import (
    LlamaDialect,
    build_rotary_fields,
    count_layers,
    find_windowed_layers,
    has_llama_layers,
    list_layer_types,
    parse_rotary,
)

PATTERN = 6  # without layer_types, every sixth layer has no window
GLOBAL_BASE, WINDOW_BASE = 1_000_000.0, 10_000.0
NORMS = {
    "blocks.{}.attention_norm": "input_layernorm",
    "blocks.{}.attention.query_norm": "self_attn.q_norm",
    "blocks.{}.attention.key_norm": "self_attn.k_norm",
    "blocks.{}.attention.output_norm": "post_attention_layernorm",
    "blocks.{}.feedforward_norm": "pre_feedforward_layernorm",
    "blocks.{}.feedforward_output_norm": "post_feedforward_layernorm",
}


class Gemma3Dialect(LlamaDialect):
    """A GPT with the norms and the scaled embedding of Gemma 3."""

    model_types = ("gemma3_text",)
    architectures = MappingProxyType({None: "Gemma3ForCausalLM"})
    supported = MappingProxyType(
        {"attention_bias": False, "attn_logit_softcapping": None, "final_logit_softcapping": None}
    )
    fields = (
        Field("vocab_size", "vocabulary", 262_208),
        Field("max_position_embeddings", "length", 131_072),
        Field("hidden_size", "width"),
        Field("num_hidden_layers", "layers"),
        Field("num_attention_heads", "heads"),
        Field("num_key_value_heads", "groups", LikeField("heads")),
        Field("head_dim", "head_width", 256),
        Field("intermediate_size", "hidden"),
        Field("rms_norm_eps", "epsilon", 1e-6),
        Field("tie_word_embeddings", "tied", True),
        activation_field("hidden_activation", "gelu_pytorch_tanh", "gelu_pytorch_tanh"),
    )

    def from_hf_config(self, hf_config: JSONObject) -> GPTConfig:
        fields = self.parse_fields(hf_config)
        if get_field(hf_config, "use_bidirectional_attention", False):
            raise CheckpointError("config.json has use_bidirectional_attention; only causal attention is supported")
        refuse_unless(hf_config, query_pre_attn_scalar=fields["head_width"])

        layers = count_layers(hf_config)
        pattern = ["full_attention" if layer % PATTERN == 0 else "sliding_attention" for layer in range(1, layers + 1)]
        windowed = find_windowed_layers(get_field(hf_config, "layer_types", [*pattern]), layers)
        rope, window_rope = _split_rotary(hf_config)
        fields |= parse_rotary(rope)
        if windowed:
            fields["window"] = get_field(hf_config, "sliding_window", 4096)
            fields["windowed"] = None if len(windowed) == layers else windowed
            fields["rotary_window_base"] = parse_rotary(window_rope)["rotary_base"]
        return llama_config(**fields, query_key_norm=True, output_norm=True, scaled_embedding=True)

    def fits(self, config: GPTConfig) -> bool:
        has_norms = config.query_key_norm and config.output_norm and config.scaled_embedding
        has_biases = config.attention_bias or config.output_bias
        # transformers does not scale the rotations of layers with a window
        has_scaled_window = config.window and config.rotary_window_base is None and config.rotary_scaling != "none"
        return has_norms and not has_biases and not has_scaled_window and has_llama_layers(config)

    def to_hf_config(self, config: GPTConfig) -> JSONObject:
        head_width = config.head_width or config.width // config.heads
        window_base = config.rotary_window_base or config.rotary_base
        rope = build_rotary_fields(config)
        window_rope = {"rope_type": "default", "rope_theta": window_base}
        return (
            super(LlamaDialect, self).to_hf_config(config)
            | rope
            | {
                "head_dim": head_width,
                "query_pre_attn_scalar": head_width,
                "sliding_window": config.window or 4096,
                "layer_types": list_layer_types(config),
                "rope_parameters": {"full_attention": rope["rope_parameters"], "sliding_attention": window_rope},
                "rope_local_base_freq": window_base,  # for transformers versions before 5
            }
        )

    def build_name_table(self, config: GPTConfig) -> NameTable:
        # Gemma stores the norms' weights minus 1
        norms = {ours: Rule((f"model.layers.{{}}.{name}",), added=1.0) for ours, name in NORMS.items()}
        rules = {**self.build_rules(config), **norms, "norm": Rule(("model.norm",), added=1.0)}
        return NameTable(rules, ["lm_head"] if config.tied else [], base="model.")


def _split_rotary(hf_config: JSONObject) -> tuple[JSONObject, JSONObject]:
    """Return a config with the rotations of the layers without a window, and one with those of the others."""
    sizes = {name: value for name, value in hf_config.items() if not name.startswith("rope_")}
    rope = hf_config.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise CheckpointError("rope_parameters in config.json must be an object")
    everywhere, windows = (rope.get(f"{name}_attention") or {} for name in ("full", "sliding"))
    if not isinstance(everywhere, dict) or not isinstance(windows, dict):
        raise CheckpointError("rope_parameters in config.json must be objects by layer type")
    scaling = hf_config.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        raise CheckpointError("rope_scaling in config.json must be an object")
    refuse_unless(windows, rope_type="default")
    theta = get_field(hf_config, "rope_theta", GLOBAL_BASE)
    window_theta = get_field(hf_config, "rope_local_base_freq", WINDOW_BASE)
    return (
        {**sizes, "rope_parameters": {"rope_theta": theta, **everywhere, **scaling}},
        {**sizes, "rope_parameters": {"rope_theta": window_theta, **windows}},
    )
