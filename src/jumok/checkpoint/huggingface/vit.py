"""ViT and DeiT. DeiT has one token more; which head there is, the architecture's name says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jumok.checkpoint.name_table import Rule, Table, joined, same
from jumok.errors import CheckpointError
from jumok.models import Model
from jumok.models.vit import ViT, ViTConfig

from . import Reading, refuse_unless, take

MODEL_TYPES = ("vit", "deit")
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}
HEADS = {
    "vit": {"ViTModel": "none", "ViTForImageClassification": "classes"},
    "deit": {
        "DeiTModel": "none",
        "DeiTForImageClassification": "classes",
        "DeiTForImageClassificationWithTeacher": "teacher",
    },
}


def reading(theirs: dict[str, Any]) -> Reading:
    kind = theirs["model_type"]
    width, heads = take(theirs, "hidden_size"), take(theirs, "num_attention_heads")
    if isinstance(width, int) and isinstance(heads, int) and heads > 0:
        refuse_unless(theirs, head_dim=width // heads)
    head = head_of(theirs, HEADS[kind])
    activation = take(theirs, "hidden_act", "gelu")
    config = ViTConfig.from_json(
        {
            "image": pair_of(theirs, "image_size", 224),
            "patch": pair_of(theirs, "patch_size", 16),
            "channels": take(theirs, "num_channels", 3),
            "width": width,
            "layers": take(theirs, "num_hidden_layers"),
            "heads": heads,
            "hidden": take(theirs, "intermediate_size"),
            "activation": ACTIVATIONS.get(str(activation), activation),
            "attention_bias": take(theirs, "qkv_bias", True),
            "epsilon": take(theirs, "layer_norm_eps", 1e-12),
            "distilled": kind == "deit",
            "head": head,
            **({} if head == "none" else {"classes": classes_of(theirs)}),
        }
    )
    return Reading(ViT, config, table(config))


def head_of(theirs: dict[str, Any], known: dict[str, str]) -> str:
    """Which head a folder has, by its architecture's name; one that says nothing has none."""
    told = theirs.get("architectures") or []
    name = str(told[0]) if isinstance(told, list) and told else "none"
    if name not in known and name != "none":
        raise CheckpointError(f"config.json has the architecture {name[:80]!r}; known are {', '.join(known)}")
    return known.get(name, "none")


def classes_of(theirs: dict[str, Any]) -> Any:
    """How many classes: as many as have names. Files of two unnamed classes say nothing."""
    labels = theirs.get("id2label")
    return len(labels) if isinstance(labels, dict) else take(theirs, "num_labels", 2)


def pair_of(theirs: dict[str, Any], name: str, default: int) -> list[int]:
    """Rows and columns: one number for both, or two."""
    size = take(theirs, name, default)
    pair = [size, size] if isinstance(size, int) else size
    if not (isinstance(pair, list) and len(pair) == 2 and all(type(one) is int for one in pair)):
        raise CheckpointError(f"{name} in config.json must be one or two whole numbers, not {str(size)[:80]!r}")
    return pair


def size_of(pair: Sequence[int]) -> int | list[int]:
    """A pair as they write it: one number for a square."""
    return pair[0] if pair[0] == pair[1] else list(pair)


def table(config: ViTConfig) -> Table:
    base = "deit." if config.distilled else "vit."
    layer = f"{base}encoder.layer.{{}}."
    maps = [f"{layer}attention.attention.{name}" for name in ("query", "key", "value")]
    output = "cls_classifier" if config.head == "teacher" else "classifier"
    rules = [
        Rule("class_token", (f"{base}embeddings.cls_token",)),
        Rule("distillation_token", (f"{base}embeddings.distillation_token",)),
        Rule("positions", (f"{base}embeddings.position_embeddings",)),
        *same("patches.map", f"{base}embeddings.patch_embeddings.projection"),
        *same("blocks.{}.attention_norm", f"{layer}layernorm_before"),
        *joined("blocks.{}.attention.projection.joined", maps, (config.width,) * 3),
        *same("blocks.{}.attention.output", f"{layer}attention.output.dense"),
        *same("blocks.{}.feedforward_norm", f"{layer}layernorm_after"),
        *same("blocks.{}.feedforward.inner", f"{layer}intermediate.dense"),
        *same("blocks.{}.feedforward.outer", f"{layer}output.dense"),
        *same("norm", f"{base}layernorm"),
        *same("output", output),
        *same("teacher_output", "distillation_classifier"),
    ]
    # the pooler is a map behind the last norm that no classifier reads; the mask token is for pretraining
    ignored = [f"{base}{name}" for name in ("pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token")]
    return Table(rules, ignored, base=base)


def writes(model: Model) -> bool:
    return isinstance(model.config, ViTConfig)


def config_json(model: Model) -> dict[str, Any]:
    config = model.config
    assert isinstance(config, ViTConfig)
    kind = "deit" if config.distilled else "vit"
    back = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    told = {
        "model_type": kind,
        "architectures": [name for name, head in HEADS[kind].items() if head == config.head],
        "image_size": size_of(config.image),
        "patch_size": size_of(config.patch),
        "num_channels": config.channels,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": back[config.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        "qkv_bias": config.attention_bias,
        "layer_norm_eps": config.epsilon,
    }
    if config.head != "none":
        told["num_labels"] = config.classes
    return told
