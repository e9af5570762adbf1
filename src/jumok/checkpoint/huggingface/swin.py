"""Convert Swin. Parameter names contain a stage and a block number; query, key and value are stored separately."""

from __future__ import annotations

from jumok.checkpoint.name_table import NameTable, Rule, concatenate_layers, rename_layer
from jumok.errors import CheckpointError
from jumok.fields import JSONObject
from jumok.models import Config, Model
from jumok.models.images.swin import Swin, SwinConfig

from .common import (
    find_head,
    format_activation,
    format_size,
    get_field,
    parse_activation,
    parse_class_count,
    parse_size,
)

MODEL_TYPES: tuple[str, ...] = ("swin",)
MODEL_CLASS: type[Model] = Swin

HEADS = {"SwinModel": "none", "SwinForImageClassification": "classes"}
MAX_STAGES = 32  # each stage halves the grid: no image has patches left to merge after 32


def from_hf_config(hf_config: JSONObject) -> SwinConfig:
    """Convert a Swin config to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    head = find_head(hf_config, HEADS)
    return SwinConfig.from_json(
        {
            "image": parse_size(hf_config, "image_size", 224),
            "patch": parse_size(hf_config, "patch_size", 4),
            "channels": get_field(hf_config, "num_channels", 3),
            "width": get_field(hf_config, "embed_dim"),
            "depths": _parse_stages(hf_config, "depths"),
            "heads": _parse_stages(hf_config, "num_heads"),
            "window": get_field(hf_config, "window_size", 7),
            "ratio": get_field(hf_config, "mlp_ratio", 4.0),
            "activation": parse_activation(get_field(hf_config, "hidden_act", "gelu")),
            "attention_bias": get_field(hf_config, "qkv_bias", True),
            "epsilon": get_field(hf_config, "layer_norm_eps", 1e-5),
            "positions": "learned" if get_field(hf_config, "use_absolute_embeddings", False) else "none",
            "head": head,
            **({} if head == "none" else {"classes": parse_class_count(hf_config)}),
        }
    )


def _parse_stages(hf_config: JSONObject, name: str) -> list[int]:
    """Return a field that holds an integer for each stage."""
    counts = get_field(hf_config, name)
    if not (isinstance(counts, list) and len(counts) <= MAX_STAGES and all(type(count) is int for count in counts)):
        raise CheckpointError(f"{name} in config.json must be a list of integers, not {str(counts)[:80]!r}")
    return counts


def can_express(config: Config) -> bool:
    """Return True for every Swin.

    Args:
        config: Our config, of any family.
    """
    return isinstance(config, SwinConfig)


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to a Swin config.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, SwinConfig)
    hf_config: JSONObject = {
        "model_type": "swin",
        "architectures": [architecture for architecture, head in HEADS.items() if head == config.head],
        "image_size": format_size(config.image),
        "patch_size": format_size(config.patch),
        "num_channels": config.channels,
        "embed_dim": config.width,
        "depths": list(config.depths),
        "num_heads": list(config.heads),
        "window_size": config.window,
        "mlp_ratio": config.ratio,
        "hidden_act": format_activation(config.activation, preferred="gelu_pytorch_tanh"),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        "drop_path_rate": 0.0,
        "qkv_bias": config.attention_bias,
        "layer_norm_eps": config.epsilon,
        "use_absolute_embeddings": config.positions == "learned",
    }
    if config.head != "none":
        hf_config["num_labels"] = config.classes
    return hf_config


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, SwinConfig)
    stage, block = "swin.encoder.layers.{}.", "swin.encoder.layers.{}.blocks.{}."
    rules = [
        *rename_layer("patches.map", "swin.embeddings.patch_embeddings.projection"),
        *rename_layer("patch_norm", "swin.embeddings.norm"),
        Rule("positions", ("swin.embeddings.position_embeddings",)),
        *rename_layer("stages.{}.blocks.{}.attention_norm", f"{block}layernorm_before"),
        *rename_layer("stages.{}.blocks.{}.attention.output", f"{block}attention.output.dense"),
        Rule("stages.{}.blocks.{}.attention.table", (f"{block}attention.self.relative_position_bias_table",)),
        *rename_layer("stages.{}.blocks.{}.feedforward_norm", f"{block}layernorm_after"),
        *rename_layer("stages.{}.blocks.{}.feedforward.inner", f"{block}intermediate.dense"),
        *rename_layer("stages.{}.blocks.{}.feedforward.outer", f"{block}output.dense"),
        *rename_layer("stages.{}.merge.norm", f"{stage}downsample.norm"),
        Rule("stages.{}.merge.map.weight", (f"{stage}downsample.reduction.weight",)),
        *rename_layer("norm", "swin.layernorm"),
        *rename_layer("output", "classifier"),
    ]
    for index in range(len(config.depths)):
        attention = f"swin.encoder.layers.{index}.blocks.{{}}.attention.self."
        projections = [attention + name for name in ("query", "key", "value")]
        widths = (config.compute_stage_width(index),) * 3
        rules += concatenate_layers(f"stages.{index}.blocks.{{}}.attention.projection.joined", projections, widths)
    # ignored: the index of each distance is computed, and the mask token is for pretraining
    ignored = [f"{block}attention.self.relative_position_index", "swin.embeddings.mask_token"]
    return NameTable(rules, ignored, base="swin.")
