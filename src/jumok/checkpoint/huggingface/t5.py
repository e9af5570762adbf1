"""Convert T5, versions 1.0 and 1.1. Each stack stores its table of relative biases in its first block."""

from __future__ import annotations

from typing import NamedTuple

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.models import Config, Model
from jumok.models.t5 import T5, T5Config

from .common import format_activation, get_field, parse_activation, refuse_unless
from .tied_table import TiedTable

MODEL_TYPES: tuple[str, ...] = ("t5",)
MODEL_CLASS: type[Model] = T5


def from_hf_config(hf_config: JSONObject) -> T5Config:
    """Convert a T5 config to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    refuse_unless(hf_config, is_encoder_decoder=True)
    feedforward = _parse_feedforward(hf_config)
    # Up to version 4 tie_word_embeddings meant two things: the output layer is the embedding, and its input is scaled.
    # Version 5 always writes true, has a separate field for the scaling, and ties if the file has no output layer.
    tied = get_field(hf_config, "tie_word_embeddings", True)
    scaled = get_field(hf_config, "scale_decoder_outputs", tied)
    pad = get_field(hf_config, "pad_token_id", 0)
    layers = get_field(hf_config, "num_layers", 6)
    return T5Config.from_json(
        {
            "vocabulary": get_field(hf_config, "vocab_size"),
            "width": get_field(hf_config, "d_model"),
            "layers": layers,
            "decoder_layers": get_field(hf_config, "num_decoder_layers", layers),
            "heads": get_field(hf_config, "num_heads"),
            "head_width": get_field(hf_config, "d_kv"),
            "hidden": get_field(hf_config, "d_ff"),
            "buckets": get_field(hf_config, "relative_attention_num_buckets", 32),
            "max_distance": get_field(hf_config, "relative_attention_max_distance", 128),
            "epsilon": get_field(hf_config, "layer_norm_epsilon", 1e-6),
            "feedforward": "gated" if feedforward.gated else "plain",
            "activation": parse_activation(feedforward.activation),
            "tied": tied and scaled,
            "scaled_output": scaled,
            "start": get_field(hf_config, "decoder_start_token_id", pad),
            "end": get_field(hf_config, "eos_token_id", 1),
            "pad": pad,
        }
    )


class _FeedForwardKind(NamedTuple):
    """Whether a feedforward layer is gated, and Hugging Face's name of its activation."""

    gated: JSONValue
    activation: JSONValue


def _parse_feedforward(hf_config: JSONObject) -> _FeedForwardKind:
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
    return _FeedForwardKind(
        get_field(hf_config, "is_gated_act", gate == "gated"), get_field(hf_config, "dense_act_fn", activation)
    )


def can_express(config: Config) -> bool:
    """Return True for every T5.

    Args:
        config: Our config, of any family.
    """
    return isinstance(config, T5Config)


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to a T5 config.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, T5Config)
    activation = format_activation(config.activation)
    gated = config.feedforward == "gated"
    projection = f"gated-{'gelu' if activation == 'gelu_new' else activation}" if gated else activation
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": config.vocabulary,
        "d_model": config.width,
        "d_kv": config.head_width,
        "d_ff": config.hidden,
        "num_layers": config.layers,
        "num_decoder_layers": config.decoder_layers or config.layers,
        "num_heads": config.heads,
        "relative_attention_num_buckets": config.buckets,
        "relative_attention_max_distance": config.max_distance,
        "layer_norm_epsilon": config.epsilon,
        "feed_forward_proj": projection,
        "is_gated_act": gated,
        "dense_act_fn": activation,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.tied if config.scaled_output is None else config.scaled_output,
        "decoder_start_token_id": config.start,
        "eos_token_id": config.end,
        "pad_token_id": config.pad,
    }


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, T5Config)
    rules = [
        Rule("embedding.weight", ("shared.weight",)),
        Rule("output.weight", ("lm_head.weight",)),
        *_build_stack_rules(config, "encoder", {"attention": "layer.0.SelfAttention"}, feedforward=1),
        *_build_stack_rules(
            config, "decoder", {"attention": "layer.0.SelfAttention", "cross": "layer.1.EncDecAttention"}, feedforward=2
        ),
    ]
    # ignored: old files have a bias for the first cross-attention, which transformers does not use either
    ignored = ["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"]
    copies = [
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        *(["lm_head.weight"] if config.tied else []),
    ]
    substitutes = {} if config.tied else {"lm_head.weight": "shared.weight"}
    return TiedTable(rules, ignored, copies=dict.fromkeys(copies, "shared.weight"), substitutes=substitutes)


def _build_stack_rules(config: T5Config, stack: str, attentions: dict[str, str], feedforward: int) -> list[Rule]:
    """Return the rules of the encoder or decoder; ``feedforward`` is the index of the feed-forward sublayer."""
    block = f"{stack}.block.{{}}."
    relative_bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    rules = [
        Rule(f"{stack}_bias.weight", (relative_bias,)),
        Rule(f"{stack}_norm.weight", (f"{stack}.final_layer_norm.weight",)),
    ]
    inner = config.heads * config.head_width
    for part, attention in attentions.items():
        sublayer = attention.rpartition(".")[0]
        projections = tuple(f"{block}{attention}.{name}.weight" for name in "qkv")
        rules += [
            Rule(f"{stack}.{{}}.{part}.projection.joined.weight", projections, (inner, inner, inner)),
            Rule(f"{stack}.{{}}.{part}.output.weight", (f"{block}{attention}.o.weight",)),
            Rule(f"{stack}.{{}}.{part}_norm.weight", (f"{block}{sublayer}.layer_norm.weight",)),
        ]

    sublayer = f"{block}layer.{feedforward}"
    names = ("wi_0", "wi_1") if config.feedforward == "gated" else ("wi",)
    inputs = tuple(f"{sublayer}.DenseReluDense.{name}.weight" for name in names)
    return [
        *rules,
        Rule(f"{stack}.{{}}.feedforward.inner.weight", inputs, (config.hidden, config.hidden)),
        Rule(f"{stack}.{{}}.feedforward.outer.weight", (f"{sublayer}.DenseReluDense.wo.weight",)),
        Rule(f"{stack}.{{}}.feedforward_norm.weight", (f"{sublayer}.layer_norm.weight",)),
    ]
