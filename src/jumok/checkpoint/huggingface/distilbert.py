"""DistilBERT: a BERT without segments, under other names."""

from __future__ import annotations

from typing import Any

from jumok.checkpoint.name_table import Rule, Table, joined, same
from jumok.models import Model
from jumok.models.bert import BERT, BERTConfig

from . import Reading, take
from .bert import head, head_json, ours
from .bert import theirs as named

MODEL_TYPES = ("distilbert",)
EPSILON = 1e-12  # not in its config: fixed


def reading(theirs: dict[str, Any]) -> Reading:
    # sinusoidal_pos_embds says how positions were first drawn; they are in the file either way
    activation = ours(take(theirs, "activation", "gelu"))
    config = BERTConfig.from_json(
        {
            "vocabulary": take(theirs, "vocab_size"),
            "length": take(theirs, "max_position_embeddings", 512),
            "width": take(theirs, "dim"),
            "layers": take(theirs, "n_layers"),
            "heads": take(theirs, "n_heads"),
            "hidden": take(theirs, "hidden_dim"),
            "segments": 0,
            "epsilon": EPSILON,
            "activation": activation,
            **head(theirs, {"mlm": activation, "classes": "relu"}),
            "tied": take(theirs, "tie_word_embeddings", True),
        }
    )
    return Reading(BERT, config, table(config))


def table(config: BERTConfig) -> Table:
    layer = "distilbert.transformer.layer.{}."
    maps = [f"{layer}attention.{name}_lin" for name in "qkv"]
    rules = [
        Rule("embedding.weight", ("distilbert.embeddings.word_embeddings.weight",)),
        Rule("positions.table.weight", ("distilbert.embeddings.position_embeddings.weight",)),
        *same("norm", "distilbert.embeddings.LayerNorm"),
        *joined("blocks.{}.attention.projection.joined", maps, (config.width,) * 3),
        *same("blocks.{}.attention.output", f"{layer}attention.out_lin"),
        *same("blocks.{}.attention_norm", f"{layer}sa_layer_norm"),
        *same("blocks.{}.feedforward.inner", f"{layer}ffn.lin1"),
        *same("blocks.{}.feedforward.outer", f"{layer}ffn.lin2"),
        *same("blocks.{}.feedforward_norm", f"{layer}output_layer_norm"),
    ]
    if config.head == "classes":
        rules += [*same("head.inner", "pre_classifier"), *same("head.output", "classifier")]
    else:
        rules += [
            *same("head.inner", "vocab_transform"),
            *same("head.norm", "vocab_layer_norm"),
            Rule("head.output.weight", ("vocab_projector.weight",)),
            Rule("head.bias", ("vocab_projector.bias",)),
        ]
    ignored = ["distilbert.embeddings.position_ids", *(["vocab_projector.weight"] if config.tied else [])]
    return Table(rules, ignored, base="distilbert.")


def writes(model: Model) -> bool:
    config = model.config
    if not isinstance(config, BERTConfig):
        return False
    wanted = {"none": config.head_activation, "mlm": config.activation, "classes": "relu"}[config.head]
    return (
        not config.segments
        and config.offset == 0
        and config.padding_id is None
        and config.epsilon == EPSILON
        and config.head_activation == wanted
    )


def config_json(model: Model) -> dict[str, Any]:
    config = model.config
    assert isinstance(config, BERTConfig)
    return {
        "model_type": "distilbert",
        **head_json(config, "DistilBert"),
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.length,
        "dim": config.width,
        "n_layers": config.layers,
        "n_heads": config.heads,
        "hidden_dim": config.hidden,
        "activation": named(config.activation),
        "tie_word_embeddings": config.tied,
    }
