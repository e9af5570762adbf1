"""Marian, the translator of the OPUS-MT models: post-norm, sinusoids in halves, a bias on the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from jumok.checkpoint.name_table import Rule, Table, joined, same
from jumok.errors import CheckpointError
from jumok.models import Config, Model
from jumok.models.transformer import Transformer, TransformerConfig

from . import Reading, refuse_unless, take
from .tied_embeddings import CopiesTable

MODEL_TYPES = ("marian",)
ACTIVATIONS = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


class Row(Rule):
    """Theirs is a matrix of one row, ours that row: the bias on the logits."""

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        return parts[0].flatten()

    def split(self, tensor: Tensor) -> list[Tensor]:
        return [tensor[None].contiguous()]


def reading(theirs: dict[str, Any]) -> Reading:
    refuse_unless(
        theirs,
        is_encoder_decoder=True,
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
        static_position_embeddings=True,
    )
    config = TransformerConfig.from_json(fields(theirs, headless="MarianModel"))
    return Reading(Transformer, config, table(config))


def fields(theirs: dict[str, Any], headless: str) -> dict[str, Any]:
    """Our fields for their config.json; Pegasus has the same."""
    for name in ("attention_heads", "ffn_dim"):
        one, two = take(theirs, f"encoder_{name}"), take(theirs, f"decoder_{name}")
        if one != two:
            raise CheckpointError(
                f"config.json has encoder_{name} {str(one)[:20]} and decoder_{name} {str(two)[:20]}; they must be equal"
            )
    activation = take(theirs, "activation_function", "gelu")
    tied = take(theirs, "tie_word_embeddings", True)
    # transformers 5 shares the embeddings only where the output map is tied as well
    shared = take(theirs, "share_encoder_decoder_embeddings", True) and tied
    vocabulary = take(theirs, "vocab_size")
    pad = take(theirs, "pad_token_id")
    return {
        "vocabulary": vocabulary,
        "target_vocabulary": None if shared else take(theirs, "decoder_vocab_size", vocabulary),
        "length": take(theirs, "max_position_embeddings", 1024),
        "width": take(theirs, "d_model"),
        "layers": take(theirs, "encoder_layers"),
        "decoder_layers": take(theirs, "decoder_layers"),
        "heads": take(theirs, "encoder_attention_heads"),
        "hidden": take(theirs, "encoder_ffn_dim"),
        "layout": "halves",
        "activation": ACTIVATIONS.get(str(activation), activation),
        "scaled_embedding": take(theirs, "scale_embedding", False),
        "shared": shared,
        "tied": tied,
        # a folder saved without a head has none
        "output_bias": take(theirs, "architectures", None) != [headless],
        "start": take(theirs, "decoder_start_token_id", pad),
        "end": take(theirs, "eos_token_id", 0),
        "pad": pad,
    }


def table(config: TransformerConfig, more: Sequence[Rule] = ()) -> Table:
    sizes = (config.width, config.width, config.width)
    if config.shared:
        rules = [Rule("embedding.weight", ("model.shared.weight",))]
    else:
        rules = [
            Rule("embedding.weight", ("model.encoder.embed_tokens.weight",)),
            Rule("target_embedding.weight", ("model.decoder.embed_tokens.weight",)),
        ]
    rules += [*more, Rule("output.weight", ("lm_head.weight",)), Row("output_bias", ("final_logits_bias",))]
    for stack, parts in (("encoder", ("attention",)), ("decoder", ("attention", "cross"))):
        ours, theirs = f"{stack}.{{}}", f"model.{stack}.layers.{{}}"
        for part in parts:
            named = f"{theirs}.{'self_attn' if part == 'attention' else 'encoder_attn'}"
            rules += [
                *joined(f"{ours}.{part}.projection.joined", [f"{named}.{one}_proj" for one in "qkv"], sizes),
                *same(f"{ours}.{part}.output", f"{named}.out_proj"),
                *same(f"{ours}.{part}_norm", f"{named}_layer_norm"),
            ]
        rules += [
            *same(f"{ours}.feedforward.inner", f"{theirs}.fc1"),
            *same(f"{ours}.feedforward.outer", f"{theirs}.fc2"),
            *same(f"{ours}.feedforward_norm", f"{theirs}.final_layer_norm"),
        ]
    # the sinusoids, computed here; and where embeddings are apart, a third one that nothing reads
    ignored = ["model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"]
    copies = {}
    if config.shared:
        names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
        copies = dict.fromkeys(names, "model.shared.weight")
    else:
        ignored.append("model.shared.weight")
    if config.tied:
        copies["lm_head.weight"] = "model.shared.weight" if config.shared else "model.decoder.embed_tokens.weight"
    return CopiesTable(rules, ignored, base="model.", copies=copies)


def writes(model: Model) -> bool:
    config = model.config
    return fits(config) and config.order == "post" and not config.final_norm  # type: ignore[attr-defined]


def fits(config: Config) -> bool:
    """What Marian and Pegasus both need."""
    return isinstance(config, TransformerConfig) and (
        config.positions == "sinusoidal"
        and config.layout == "halves"
        and config.epsilon == 1e-5
        and not (config.shared and not config.tied)
    )


def config_json(model: Model) -> dict[str, Any]:
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        **fields_json(model),
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
    }


def fields_json(model: Model) -> dict[str, Any]:
    """Their fields for our config; Pegasus has the same."""
    config = model.config
    assert isinstance(config, TransformerConfig)
    back = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.vocabulary,
        "decoder_vocab_size": config.target_vocabulary_size,
        "max_position_embeddings": config.length,
        "d_model": config.width,
        "encoder_layers": config.layers,
        "decoder_layers": config.decoder_layers or config.layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.hidden,
        "decoder_ffn_dim": config.hidden,
        "activation_function": back[config.activation],
        "scale_embedding": config.scaled_embedding,
        "share_encoder_decoder_embeddings": config.shared,
        "tie_word_embeddings": config.tied,
        "decoder_start_token_id": config.start,
        "eos_token_id": config.end,
        "forced_eos_token_id": config.end,
        "pad_token_id": config.pad,
    }
