"""Swin. Names have two numbers, stage and block; query, key and value are apart, and as wide as their stage."""

from __future__ import annotations

from typing import Any

from jumok.checkpoint.name_table import Rule, Table, joined, same
from jumok.errors import CheckpointError
from jumok.models import Model
from jumok.models.swin import Swin, SwinConfig

from . import Reading, take
from .vit import ACTIVATIONS, classes_of, head_of, pair_of, size_of

MODEL_TYPES = ("swin",)
HEADS = {"SwinModel": "none", "SwinForImageClassification": "classes"}


def reading(theirs: dict[str, Any]) -> Reading:
    head = head_of(theirs, HEADS)
    activation = take(theirs, "hidden_act", "gelu")
    config = SwinConfig.from_json(
        {
            "image": pair_of(theirs, "image_size", 224),
            "patch": pair_of(theirs, "patch_size", 4),
            "channels": take(theirs, "num_channels", 3),
            "width": take(theirs, "embed_dim"),
            "depths": _counts(theirs, "depths"),
            "heads": _counts(theirs, "num_heads"),
            "window": take(theirs, "window_size", 7),
            "ratio": take(theirs, "mlp_ratio", 4.0),
            "activation": ACTIVATIONS.get(str(activation), activation),
            "attention_bias": take(theirs, "qkv_bias", True),
            "epsilon": take(theirs, "layer_norm_eps", 1e-5),
            "positions": "learned" if take(theirs, "use_absolute_embeddings", False) else "none",
            "head": head,
            **({} if head == "none" else {"classes": classes_of(theirs)}),
        }
    )
    return Reading(Swin, config, table(config))


def _counts(theirs: dict[str, Any], name: str) -> list[int]:
    """A number for each stage; no image has places left to merge after 32 of them."""
    counts = take(theirs, name)
    if not (isinstance(counts, list) and len(counts) <= 32 and all(type(one) is int for one in counts)):
        raise CheckpointError(f"{name} in config.json must be a list of whole numbers, not {str(counts)[:80]!r}")
    return counts


def table(config: SwinConfig) -> Table:
    stage, block = "swin.encoder.layers.{}.", "swin.encoder.layers.{}.blocks.{}."
    rules = [
        *same("patches.map", "swin.embeddings.patch_embeddings.projection"),
        *same("patch_norm", "swin.embeddings.norm"),
        Rule("positions", ("swin.embeddings.position_embeddings",)),
        *same("stages.{}.blocks.{}.attention_norm", f"{block}layernorm_before"),
        *same("stages.{}.blocks.{}.attention.output", f"{block}attention.output.dense"),
        Rule("stages.{}.blocks.{}.attention.table", (f"{block}attention.self.relative_position_bias_table",)),
        *same("stages.{}.blocks.{}.feedforward_norm", f"{block}layernorm_after"),
        *same("stages.{}.blocks.{}.feedforward.inner", f"{block}intermediate.dense"),
        *same("stages.{}.blocks.{}.feedforward.outer", f"{block}output.dense"),
        *same("stages.{}.merge.norm", f"{stage}downsample.norm"),
        Rule("stages.{}.merge.map.weight", (f"{stage}downsample.reduction.weight",)),
        *same("norm", "swin.layernorm"),
        *same("output", "classifier"),
    ]
    for index in range(len(config.depths)):
        maps = [f"swin.encoder.layers.{index}.blocks.{{}}.attention.self.{name}" for name in ("query", "key", "value")]
        sizes = (config.stage_width(index),) * 3
        rules += joined(f"stages.{index}.blocks.{{}}.attention.projection.joined", maps, sizes)
    # which number belongs to which distance is counted, not learned; the mask token is for pretraining
    ignored = [f"{block}attention.self.relative_position_index", "swin.embeddings.mask_token"]
    return Table(rules, ignored, base="swin.")


def writes(model: Model) -> bool:
    return isinstance(model.config, SwinConfig)


def config_json(model: Model) -> dict[str, Any]:
    config = model.config
    assert isinstance(config, SwinConfig)
    back = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    told = {
        "model_type": "swin",
        "architectures": [name for name, head in HEADS.items() if head == config.head],
        "image_size": size_of(config.image),
        "patch_size": size_of(config.patch),
        "num_channels": config.channels,
        "embed_dim": config.width,
        "depths": list(config.depths),
        "num_heads": list(config.heads),
        "window_size": config.window,
        "mlp_ratio": config.ratio,
        "hidden_act": back[config.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        "drop_path_rate": 0.0,
        "qkv_bias": config.attention_bias,
        "layer_norm_eps": config.epsilon,
        "use_absolute_embeddings": config.positions == "learned",
    }
    if config.head != "none":
        told["num_labels"] = config.classes
    return told
