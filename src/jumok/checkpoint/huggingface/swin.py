"""Convert Swin. Parameter names contain a stage and a block number; query, key and value are stored separately."""

from __future__ import annotations

from types import MappingProxyType

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.models.swin import Swin, SwinConfig

from .dialect import Dialect, Field, activation_field, parse_image_head, size_field

MAX_STAGES = 32  # each stage halves the grid: no image has patches left to merge after 32


def _parse_stages(name: str, value: JSONValue) -> list[int]:
    """Return a list with an integer for each stage."""
    if not (isinstance(value, list) and len(value) <= MAX_STAGES and all(type(count) is int for count in value)):
        raise CheckpointError(f"{name} in config.json must be a list of integers, not {str(value)[:80]!r}")
    return value


class SwinDialect(Dialect[SwinConfig]):
    """Every Swin."""

    model_types = ("swin",)
    architectures = MappingProxyType({"none": "SwinModel", "classes": "SwinForImageClassification"})
    model_class = Swin
    fields = (
        size_field("image_size", "image", 224),
        size_field("patch_size", "patch", 4),
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

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        return super().parse_fields(hf_config) | parse_image_head(hf_config, self.architectures)

    def to_hf_config(self, config: SwinConfig) -> JSONObject:
        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), config.dropout)
        classes = {} if config.head == "none" else {"num_labels": config.classes}
        return super().to_hf_config(config) | dropouts | classes | {"drop_path_rate": 0.0}

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
