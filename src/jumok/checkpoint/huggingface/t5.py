"""T5, versions 1 and 1.1. Each stack's table of relative biases lies in its first block."""

from __future__ import annotations

from typing import Any

from jumok.checkpoint.name_table import Rule, Table
from jumok.errors import CheckpointError
from jumok.models import Model
from jumok.models.t5 import T5, T5Config

from . import Reading, refuse_unless, take
from .tied_embeddings import CopiesTable

MODEL_TYPES = ("t5",)
ACTIVATIONS = {
    "relu": "relu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "silu": "silu",
    "swish": "silu",
}


def reading(theirs: dict[str, Any]) -> Reading:
    refuse_unless(theirs, is_encoder_decoder=True)
    gated, activation = _feedforward(theirs)
    # Up to version 4 tie_word_embeddings said both: is the output map the embedding, and is it scaled. Version 5 always
    # writes true, says the second in a field of its own, and ties where the file holds no output map.
    tied = take(theirs, "tie_word_embeddings", True)
    scaled = take(theirs, "scale_decoder_outputs", tied)
    pad = take(theirs, "pad_token_id", 0)
    layers = take(theirs, "num_layers", 6)
    config = T5Config.from_json(
        {
            "vocabulary": take(theirs, "vocab_size"),
            "width": take(theirs, "d_model"),
            "layers": layers,
            "decoder_layers": take(theirs, "num_decoder_layers", layers),
            "heads": take(theirs, "num_heads"),
            "head_width": take(theirs, "d_kv"),
            "hidden": take(theirs, "d_ff"),
            "buckets": take(theirs, "relative_attention_num_buckets", 32),
            "max_distance": take(theirs, "relative_attention_max_distance", 128),
            "epsilon": take(theirs, "layer_norm_epsilon", 1e-6),
            "feedforward": "gated" if gated else "plain",
            "activation": ACTIVATIONS.get(str(activation), activation),
            "tied": tied and scaled,
            "scaled_output": scaled,
            "start": take(theirs, "decoder_start_token_id", pad),
            "end": take(theirs, "eos_token_id", 1),
            "pad": pad,
        }
    )
    return Reading(T5, config, table(config))


def _feedforward(theirs: dict[str, Any]) -> tuple[bool, str]:
    """ "relu", "gated-gelu", ...; two further fields, where they are, go before what it says."""
    told = take(theirs, "feed_forward_proj", "relu")
    if not isinstance(told, str):
        raise CheckpointError(f"feed_forward_proj in config.json must be text, not {str(told)[:40]!r}")
    gate, _, named = told.rpartition("-")
    if gate not in ("", "gated"):
        raise CheckpointError(f"feed_forward_proj in config.json is {told[:40]!r}; known are NAME and gated-NAME")
    named = "gelu_new" if told == "gated-gelu" else named  # what T5 1.1 was trained with
    return take(theirs, "is_gated_act", gate == "gated"), take(theirs, "dense_act_fn", named)


def table(config: T5Config) -> Table:
    inner = config.heads * config.head_width
    rules = [
        Rule("embedding.weight", ("shared.weight",)),
        Rule("output.weight", ("lm_head.weight",)),
    ]
    for stack, last in (("encoder", 1), ("decoder", 2)):
        first = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        rules += [
            Rule(f"{stack}_bias.weight", (first,)),
            Rule(f"{stack}_norm.weight", (f"{stack}.final_layer_norm.weight",)),
        ]
        parts = [("attention", 0, "SelfAttention")] + ([("cross", 1, "EncDecAttention")] if last == 2 else [])
        for ours, index, named in parts:
            theirs = f"{stack}.block.{{}}.layer.{index}"
            maps = tuple(f"{theirs}.{named}.{one}.weight" for one in "qkv")
            rules += [
                Rule(f"{stack}.{{}}.{ours}.projection.joined.weight", maps, (inner, inner, inner)),
                Rule(f"{stack}.{{}}.{ours}.output.weight", (f"{theirs}.{named}.o.weight",)),
                Rule(f"{stack}.{{}}.{ours}_norm.weight", (f"{theirs}.layer_norm.weight",)),
            ]
        theirs = f"{stack}.block.{{}}.layer.{last}"
        wide = ("wi_0", "wi_1") if config.feedforward == "gated" else ("wi",)
        maps = tuple(f"{theirs}.DenseReluDense.{one}.weight" for one in wide)
        rules += [
            Rule(f"{stack}.{{}}.feedforward.inner.weight", maps, (config.hidden, config.hidden)),
            Rule(f"{stack}.{{}}.feedforward.outer.weight", (f"{theirs}.DenseReluDense.wo.weight",)),
            Rule(f"{stack}.{{}}.feedforward_norm.weight", (f"{theirs}.layer_norm.weight",)),
        ]
    # old files have a bias for the first cross-attention, which nothing reads
    ignored = ["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"]
    copies = [
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        *(["lm_head.weight"] if config.tied else []),
    ]
    stand_ins = {} if config.tied else {"lm_head.weight": "shared.weight"}
    return CopiesTable(rules, ignored, copies=dict.fromkeys(copies, "shared.weight"), stand_ins=stand_ins)


def writes(model: Model) -> bool:
    return isinstance(model.config, T5Config)


def config_json(model: Model) -> dict[str, Any]:
    config = model.config
    assert isinstance(config, T5Config)
    scaled = config.tied if config.scaled_output is None else config.scaled_output
    back = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    activation = back[config.activation]
    if config.feedforward == "gated":
        proj = "gated-gelu" if activation == "gelu_new" else f"gated-{activation}"
    else:
        proj = activation
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
        "feed_forward_proj": proj,
        "is_gated_act": config.feedforward == "gated",
        "dense_act_fn": activation,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": scaled,
        "decoder_start_token_id": config.start,
        "eos_token_id": config.end,
        "pad_token_id": config.pad,
    }
