"""Convert T5, versions 1.0 and 1.1. Each stack stores its table of relative biases in its first block."""

from __future__ import annotations

from types import MappingProxyType

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.errors import CheckpointError
from jumok.fields import JSONObject
from jumok.models.t5 import T5, T5Config

from .dialect import Dialect, Field, LikeField, format_activation, get_field, parse_activation


class T5Dialect(Dialect[T5Config]):
    """Every T5."""

    model_types = ("t5",)
    architectures = MappingProxyType({None: "T5ForConditionalGeneration"})
    model_class = T5
    supported = MappingProxyType({"is_encoder_decoder": True})
    fields = (
        Field("vocab_size", "vocabulary"),
        Field("d_model", "width"),
        Field("d_kv", "head_width"),
        Field("d_ff", "hidden"),
        Field("num_layers", "layers", 6),
        Field("num_decoder_layers", "decoder_layers", LikeField("layers")),
        Field("num_heads", "heads"),
        Field("relative_attention_num_buckets", "buckets", 32),
        Field("relative_attention_max_distance", "max_distance", 128),
        Field("layer_norm_epsilon", "epsilon", 1e-6),
        # Up to version 4 tie_word_embeddings meant two things: the output layer is the embedding, and its input is
        # scaled. Version 5 always writes true, has a separate field for the scaling, and ties if the file has no output
        # layer.
        Field("tie_word_embeddings", "tied", True),
        Field("scale_decoder_outputs", "scaled_output", LikeField("tied")),
        Field("pad_token_id", "pad", 0),
        Field("decoder_start_token_id", "start", LikeField("pad")),
        Field("eos_token_id", "end", 1),
    )

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        fields = super().parse_fields(hf_config)
        return fields | _parse_feedforward(hf_config) | {"tied": fields["tied"] and fields["scaled_output"]}

    def to_hf_config(self, config: T5Config) -> JSONObject:
        activation = format_activation(config.activation)
        gated = config.feedforward == "gated"
        projection = f"gated-{'gelu' if activation == 'gelu_new' else activation}" if gated else activation
        feedforward: JSONObject = {"feed_forward_proj": projection, "is_gated_act": gated, "dense_act_fn": activation}
        return super().to_hf_config(config) | feedforward

    def build_name_table(self, config: T5Config) -> NameTable:
        encoder = {"attention": "layer.0.SelfAttention"}
        decoder = {"attention": "layer.0.SelfAttention", "cross": "layer.1.EncDecAttention"}
        rules: dict[str, str | Rule] = {
            "embedding": "shared",
            "output": "lm_head",
            **_build_stack_rules(config, "encoder", encoder, feedforward=1),
            **_build_stack_rules(config, "decoder", decoder, feedforward=2),
        }
        # ignored: old files have a bias for the first cross-attention, which transformers does not use either
        ignored = ["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"]
        copies = dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), "shared.weight")
        output = {"lm_head.weight": "shared.weight"}
        if config.tied:
            return NameTable(rules, ignored, copies=copies | output)
        return NameTable(rules, ignored, copies=copies, substitutes=output)


def _parse_feedforward(hf_config: JSONObject) -> JSONObject:
    """Parse feed_forward_proj ("relu", "gated-gelu", ...) and the two newer fields that take precedence over it."""
    name = get_field(hf_config, "feed_forward_proj", "relu")
    if not isinstance(name, str):
        raise CheckpointError(f"feed_forward_proj in config.json must be text, not {str(name)[:40]!r}")
    gate, _, activation = name.rpartition("-")
    if gate not in ("", "gated"):
        raise CheckpointError(
            f"feed_forward_proj in config.json is {name[:40]!r}; supported: ACTIVATION and gated-ACTIVATION"
        )
    if name == "gated-gelu":
        activation = "gelu_new"  # T5 1.1 was trained with the tanh approximation
    gated = get_field(hf_config, "is_gated_act", gate == "gated")
    activation_name = get_field(hf_config, "dense_act_fn", activation)
    return {
        "feedforward": "gated" if gated else "plain",
        "activation": parse_activation("dense_act_fn", activation_name),
    }


def _build_stack_rules(
    config: T5Config, stack: str, attentions: dict[str, str], feedforward: int
) -> dict[str, str | Rule]:
    """Return the rules of the encoder or decoder; ``feedforward`` is the index of the feed-forward sublayer."""
    block = f"{stack}.block.{{}}."
    inner = config.heads * config.head_width
    rules: dict[str, str | Rule] = {
        f"{stack}_bias": f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias",
        f"{stack}_norm": f"{stack}.final_layer_norm",
    }
    for part, attention in attentions.items():
        projections = [f"{block}{attention}.{name}" for name in "qkv"]
        rules |= {
            f"{stack}.{{}}.{part}.projection.joined": Rule(projections, (inner, inner, inner)),
            f"{stack}.{{}}.{part}.output": f"{block}{attention}.o",
            f"{stack}.{{}}.{part}_norm": f"{block}{attention.rpartition('.')[0]}.layer_norm",
        }

    sublayer = f"{block}layer.{feedforward}"
    names = ("wi_0", "wi_1") if config.feedforward == "gated" else ("wi",)
    inputs = [f"{sublayer}.DenseReluDense.{name}" for name in names]
    return rules | {
        f"{stack}.{{}}.feedforward.inner": Rule(inputs, (config.hidden, config.hidden)),
        f"{stack}.{{}}.feedforward.outer": f"{sublayer}.DenseReluDense.wo",
        f"{stack}.{{}}.feedforward_norm": f"{sublayer}.layer_norm",
    }
