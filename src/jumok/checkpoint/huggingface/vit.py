"""Convert ViT and DeiT. DeiT has a distillation token; the architecture's name decides which head is read."""

from __future__ import annotations

from jumok.checkpoint.name_table import NameTable, Rule, concatenate_layers, rename_layer
from jumok.fields import JSONObject
from jumok.models import Config, Model
from jumok.models.images.vit import ViT, ViTConfig

from .common import (
    find_head,
    format_activation,
    format_size,
    get_field,
    parse_activation,
    parse_class_count,
    parse_size,
    refuse_unless,
)

MODEL_TYPES: tuple[str, ...] = ("vit", "deit")
MODEL_CLASS: type[Model] = ViT

VIT_HEADS = {"ViTModel": "none", "ViTForImageClassification": "classes"}
DEIT_HEADS = {
    "DeiTModel": "none",
    "DeiTForImageClassification": "classes",
    "DeiTForImageClassificationWithTeacher": "teacher",
}


def from_hf_config(hf_config: JSONObject) -> ViTConfig:
    """Convert a ViT or DeiT config to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    width, heads = get_field(hf_config, "hidden_size"), get_field(hf_config, "num_attention_heads")
    if isinstance(width, int) and isinstance(heads, int) and heads > 0:
        refuse_unless(hf_config, head_dim=width // heads)
    distilled = hf_config["model_type"] == "deit"
    head = find_head(hf_config, DEIT_HEADS if distilled else VIT_HEADS)
    return ViTConfig.from_json(
        {
            "image": parse_size(hf_config, "image_size", 224),
            "patch": parse_size(hf_config, "patch_size", 16),
            "channels": get_field(hf_config, "num_channels", 3),
            "width": width,
            "layers": get_field(hf_config, "num_hidden_layers"),
            "heads": heads,
            "hidden": get_field(hf_config, "intermediate_size"),
            "activation": parse_activation(get_field(hf_config, "hidden_act", "gelu")),
            "attention_bias": get_field(hf_config, "qkv_bias", True),
            "epsilon": get_field(hf_config, "layer_norm_eps", 1e-12),
            "distilled": distilled,
            "head": head,
            **({} if head == "none" else {"classes": parse_class_count(hf_config)}),
        }
    )


def can_express(config: Config) -> bool:
    """Return True for every ViT.

    Args:
        config: Our config, of any family.
    """
    return isinstance(config, ViTConfig)


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to a ViT or DeiT config.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, ViTConfig)
    heads = DEIT_HEADS if config.distilled else VIT_HEADS
    hf_config: JSONObject = {
        "model_type": "deit" if config.distilled else "vit",
        "architectures": [architecture for architecture, head in heads.items() if head == config.head],
        "image_size": format_size(config.image),
        "patch_size": format_size(config.patch),
        "num_channels": config.channels,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": format_activation(config.activation, preferred="gelu_pytorch_tanh"),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        "qkv_bias": config.attention_bias,
        "layer_norm_eps": config.epsilon,
    }
    if config.head != "none":
        hf_config["num_labels"] = config.classes
    return hf_config


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, ViTConfig)
    base = "deit." if config.distilled else "vit."
    layer = f"{base}encoder.layer.{{}}."
    projections = [f"{layer}attention.attention.{name}" for name in ("query", "key", "value")]
    rules = [
        Rule("class_token", (f"{base}embeddings.cls_token",)),
        Rule("distillation_token", (f"{base}embeddings.distillation_token",)),
        Rule("positions", (f"{base}embeddings.position_embeddings",)),
        *rename_layer("patches.map", f"{base}embeddings.patch_embeddings.projection"),
        *rename_layer("blocks.{}.attention_norm", f"{layer}layernorm_before"),
        *concatenate_layers("blocks.{}.attention.projection.joined", projections, (config.width,) * 3),
        *rename_layer("blocks.{}.attention.output", f"{layer}attention.output.dense"),
        *rename_layer("blocks.{}.feedforward_norm", f"{layer}layernorm_after"),
        *rename_layer("blocks.{}.feedforward.inner", f"{layer}intermediate.dense"),
        *rename_layer("blocks.{}.feedforward.outer", f"{layer}output.dense"),
        *rename_layer("norm", f"{base}layernorm"),
        *rename_layer("output", "cls_classifier" if config.head == "teacher" else "classifier"),
        *rename_layer("teacher_output", "distillation_classifier"),
    ]
    # ignored: no classifier uses the pooler after the last norm, and the mask token is for pretraining
    ignored = [f"{base}{name}" for name in ("pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token")]
    return NameTable(rules, ignored, base=base)
