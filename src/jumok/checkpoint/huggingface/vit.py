"""Convert ViT and DeiT. DeiT has a distillation token; the architecture's name decides which head is read."""

from __future__ import annotations

from types import MappingProxyType

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.fields import JSONObject
from jumok.models.vit import ViT, ViTConfig

from .dialect import Dialect, Field, activation_field, parse_image_head, refuse_unless, size_field


class ViTDialect(Dialect[ViTConfig]):
    """A ViT without a distillation token."""

    model_types = ("vit",)
    architectures = MappingProxyType({"none": "ViTModel", "classes": "ViTForImageClassification"})
    model_class = ViT
    fields = (
        size_field("image_size", "image", 224),
        size_field("patch_size", "patch", 16),
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
        return fields | parse_image_head(hf_config, self.architectures) | {"distilled": self.is_distilled}

    def fits(self, config: ViTConfig) -> bool:
        return config.distilled == self.is_distilled

    def to_hf_config(self, config: ViTConfig) -> JSONObject:
        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), config.dropout)
        classes = {} if config.head == "none" else {"num_labels": config.classes}
        return super().to_hf_config(config) | dropouts | classes

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
