"""Convert image classifiers: ViT, DeiT (which has a distillation token) and Swin (whose blocks are in stages)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TypeVar

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.models.swin import Swin, SwinConfig
from jumok.models.vit import ViT, ViTConfig

from .dialect import Dialect, Field, activation_field, list_architectures, parse_class_count, refuse_unless

MAX_STAGES = 32  # each stage halves the grid: no image has patches left to merge after 32
ImageConfigType = TypeVar("ImageConfigType", bound=ViTConfig | SwinConfig)


def _size_field(name: str, ours: str, default: int) -> Field:
    """Return a field of (rows, columns), which config.json stores as one number for a square."""
    return Field(name, ours, default, _parse_size, lambda size: size[0] if size[0] == size[1] else list(size))


def _parse_size(name: str, value: JSONValue) -> list[int]:
    pair = [value, value] if isinstance(value, int) else value
    if not (isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)):
        raise CheckpointError(f"{name} in config.json must be one or two integers, not {str(value)[:80]!r}")
    return pair


class _ImageDialect(Dialect[ImageConfigType]):
    """What all share: the name of the architecture decides which head is read."""

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        names = list_architectures(hf_config)
        heads = {name: head for head, name in self.architectures.items()}
        if names and names[0] not in heads:
            raise CheckpointError(f"config.json has architecture {names[0][:80]!r}; supported: {', '.join(heads)}")
        head = heads[names[0]] if names else "none"
        classes = {} if head == "none" else {"classes": parse_class_count(hf_config)}
        return super().parse_fields(hf_config) | {"head": head} | classes

    def to_hf_config(self, config: ImageConfigType) -> JSONObject:
        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), config.dropout)
        classes = {} if config.head == "none" else {"num_labels": config.classes}
        return super().to_hf_config(config) | dropouts | classes


class ViTDialect(_ImageDialect[ViTConfig]):
    """A ViT without a distillation token."""

    model_types = ("vit",)
    architectures = MappingProxyType({"none": "ViTModel", "classes": "ViTForImageClassification"})
    model_class = ViT
    fields = (
        _size_field("image_size", "image", 224),
        _size_field("patch_size", "patch", 16),
        Field("num_channels", "channels", 3),
        Field("hidden_size", "width"),
        Field("num_hidden_layers", "layers"),
        Field("num_attention_heads", "heads"),
        Field("intermediate_size", "hidden"),
        activation_field("hidden_act", "gelu", preferred="gelu_pytorch_tanh"),
        Field("qkv_bias", "attention_bias", True),
        Field("layer_norm_eps", "epsilon", 1e-12),
    )
    is_distilled = False

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        fields = super().parse_fields(hf_config)
        width, heads = fields["width"], fields["heads"]
        if isinstance(width, int) and isinstance(heads, int) and heads > 0:
            refuse_unless(hf_config, head_dim=width // heads)
        return fields | {"distilled": self.is_distilled}

    def fits(self, config: ViTConfig) -> bool:
        return config.distilled == self.is_distilled

    def build_name_table(self, config: ViTConfig) -> NameTable:
        base = f"{self.model_types[0]}."
        layer = f"{base}encoder.layer.{{}}."
        projections = [f"{layer}attention.attention.{name}" for name in ("query", "key", "value")]
        rules: dict[str, str | Rule] = {
            "class_token": f"{base}embeddings.cls_token",
            "distillation_token": f"{base}embeddings.distillation_token",
            "positions": f"{base}embeddings.position_embeddings",
            "patches.map": f"{base}embeddings.patch_embeddings.projection",
            "blocks.{}.attention_norm": f"{layer}layernorm_before",
            "blocks.{}.attention.projection.joined": Rule(projections, (config.width,) * 3),
            "blocks.{}.attention.output": f"{layer}attention.output.dense",
            "blocks.{}.feedforward_norm": f"{layer}layernorm_after",
            "blocks.{}.feedforward.inner": f"{layer}intermediate.dense",
            "blocks.{}.feedforward.outer": f"{layer}output.dense",
            "norm": f"{base}layernorm",
            "output": "cls_classifier" if config.head == "teacher" else "classifier",
            "teacher_output": "distillation_classifier",
        }
        # ignored: no classifier uses the pooler after the last norm, and the mask token is for pretraining
        ignored = [f"{base}pooler.dense", f"{base}embeddings.mask_token"]
        return NameTable(rules, ignored, base=base)


class DeiTDialect(ViTDialect):
    """A ViT with a distillation token."""

    model_types = ("deit",)
    architectures = MappingProxyType(
        {
            "none": "DeiTModel",
            "classes": "DeiTForImageClassification",
            "teacher": "DeiTForImageClassificationWithTeacher",
        }
    )
    is_distilled = True


def _parse_stages(name: str, value: JSONValue) -> list[int]:
    """Return a list with an integer for each stage."""
    if not (isinstance(value, list) and len(value) <= MAX_STAGES and all(type(count) is int for count in value)):
        raise CheckpointError(f"{name} in config.json must be a list of integers, not {str(value)[:80]!r}")
    return value


class SwinDialect(_ImageDialect[SwinConfig]):
    """Every Swin."""

    model_types = ("swin",)
    architectures = MappingProxyType({"none": "SwinModel", "classes": "SwinForImageClassification"})
    model_class = Swin
    fields = (
        _size_field("image_size", "image", 224),
        _size_field("patch_size", "patch", 4),
        Field("num_channels", "channels", 3),
        Field("embed_dim", "width"),
        Field("depths", "depths", parse=_parse_stages, format=list),
        Field("num_heads", "heads", parse=_parse_stages, format=list),
        Field("window_size", "window", 7),
        Field("mlp_ratio", "ratio", 4.0),
        activation_field("hidden_act", "gelu", preferred="gelu_pytorch_tanh"),
        Field("qkv_bias", "attention_bias", True),
        Field("layer_norm_eps", "epsilon", 1e-5),
        Field(
            *("use_absolute_embeddings", "positions", False),
            parse=lambda name, value: "learned" if value else "none",
            format=lambda positions: positions == "learned",
        ),
    )

    def to_hf_config(self, config: SwinConfig) -> JSONObject:
        return super().to_hf_config(config) | {"drop_path_rate": 0.0}

    def build_name_table(self, config: SwinConfig) -> NameTable:
        stage, block = "swin.encoder.layers.{}.", "swin.encoder.layers.{}.blocks.{}."
        rules: dict[str, str | Rule] = {
            "patches.map": "swin.embeddings.patch_embeddings.projection",
            "patch_norm": "swin.embeddings.norm",
            "positions": "swin.embeddings.position_embeddings",
            "stages.{}.blocks.{}.attention_norm": f"{block}layernorm_before",
            "stages.{}.blocks.{}.attention.output": f"{block}attention.output.dense",
            "stages.{}.blocks.{}.attention.table": f"{block}attention.self.relative_position_bias_table",
            "stages.{}.blocks.{}.feedforward_norm": f"{block}layernorm_after",
            "stages.{}.blocks.{}.feedforward.inner": f"{block}intermediate.dense",
            "stages.{}.blocks.{}.feedforward.outer": f"{block}output.dense",
            "stages.{}.merge.norm": f"{stage}downsample.norm",
            "stages.{}.merge.map": f"{stage}downsample.reduction",
            "norm": "swin.layernorm",
            "output": "classifier",
        }
        for index in range(len(config.depths)):
            attention = f"swin.encoder.layers.{index}.blocks.{{}}.attention.self."
            projections = [attention + name for name in ("query", "key", "value")]
            widths = (config.compute_stage_width(index),) * 3
            rules[f"stages.{index}.blocks.{{}}.attention.projection.joined"] = Rule(projections, widths)
        # ignored: the index of each distance is computed, and the mask token is for pretraining
        ignored = [f"{block}attention.self.relative_position_index", "swin.embeddings.mask_token"]
        return NameTable(rules, ignored, base="swin.")
