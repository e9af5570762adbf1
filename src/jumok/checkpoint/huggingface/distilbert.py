"""Convert DistilBERT: a BERT without segments, with different parameter names."""

from __future__ import annotations

from jumok.checkpoint.name_table import NameTable, Rule, concatenate_layers, rename_layer
from jumok.fields import JSONObject
from jumok.models import Config, Model
from jumok.models.bert import BERT, BERTConfig

from .bert import build_head_fields, has_published_blocks, parse_head_fields
from .common import format_activation, get_field, parse_activation

MODEL_TYPES: tuple[str, ...] = ("distilbert",)
MODEL_CLASS: type[Model] = BERT

EPSILON = 1e-12  # fixed: the config has no field for it


def from_hf_config(hf_config: JSONObject) -> BERTConfig:
    """Convert a DistilBERT config to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    # sinusoidal_pos_embds is ignored: it only decides how positions were initialised, and the file stores them
    activation = parse_activation(get_field(hf_config, "activation", "gelu"))
    return BERTConfig.from_json(
        {
            "vocabulary": get_field(hf_config, "vocab_size"),
            "length": get_field(hf_config, "max_position_embeddings", 512),
            "width": get_field(hf_config, "dim"),
            "layers": get_field(hf_config, "n_layers"),
            "heads": get_field(hf_config, "n_heads"),
            "hidden": get_field(hf_config, "hidden_dim"),
            "segments": 0,
            "epsilon": EPSILON,
            "activation": activation,
            **parse_head_fields(hf_config, mlm_activation=activation, class_activation="relu"),
            "tied": get_field(hf_config, "tie_word_embeddings", True),
        }
    )


def can_express(config: Config) -> bool:
    """Return True for a BERT without segments whose epsilon and head activation DistilBERT has.

    Args:
        config: Our config, of any family.
    """
    if not isinstance(config, BERTConfig):
        return False
    expected = {"none": config.head_activation, "mlm": config.activation, "classes": "relu"}[config.head]
    return (
        has_published_blocks(config)
        and not config.segments
        and config.offset == 0
        and config.padding_id is None
        and config.epsilon == EPSILON
        and config.head_activation == expected
    )


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to a DistilBERT config.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, BERTConfig)
    return {
        "model_type": "distilbert",
        **build_head_fields(config, "DistilBert"),
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.length,
        "dim": config.width,
        "n_layers": config.layers,
        "n_heads": config.heads,
        "hidden_dim": config.hidden,
        "activation": format_activation(config.activation),
        "tie_word_embeddings": config.tied,
    }


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, BERTConfig)
    layer = "distilbert.transformer.layer.{}."
    projections = [f"{layer}attention.{name}_lin" for name in "qkv"]
    rules = [
        Rule("embedding.weight", ("distilbert.embeddings.word_embeddings.weight",)),
        Rule("positions.table.weight", ("distilbert.embeddings.position_embeddings.weight",)),
        *rename_layer("norm", "distilbert.embeddings.LayerNorm"),
        *concatenate_layers("blocks.{}.attention.projection.joined", projections, (config.width,) * 3),
        *rename_layer("blocks.{}.attention.output", f"{layer}attention.out_lin"),
        *rename_layer("blocks.{}.attention_norm", f"{layer}sa_layer_norm"),
        *rename_layer("blocks.{}.feedforward.inner", f"{layer}ffn.lin1"),
        *rename_layer("blocks.{}.feedforward.outer", f"{layer}ffn.lin2"),
        *rename_layer("blocks.{}.feedforward_norm", f"{layer}output_layer_norm"),
    ]
    if config.head == "classes":
        rules += [*rename_layer("head.inner", "pre_classifier"), *rename_layer("head.output", "classifier")]
    else:
        rules += [
            *rename_layer("head.inner", "vocab_transform"),
            *rename_layer("head.norm", "vocab_layer_norm"),
            Rule("head.output.weight", ("vocab_projector.weight",)),
            Rule("head.bias", ("vocab_projector.bias",)),
        ]
    ignored = ["distilbert.embeddings.position_ids", *(["vocab_projector.weight"] if config.tied else [])]
    return NameTable(rules, ignored, base="distilbert.")
