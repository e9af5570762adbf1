"""Convert GPT-2. Its linear layers are stored as [in, out], with query, key and value in one layer."""

from __future__ import annotations

from types import MappingProxyType

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.fields import JSONObject
from jumok.models import GPT, GPTConfig

from .dialect import Dialect, Field, activation_field


class GPT2Dialect(Dialect[GPTConfig]):
    """A GPT with learned positions, LayerNorm, biases and as many key/value heads as heads."""

    model_types = ("gpt2",)
    architectures = MappingProxyType({None: "GPT2LMHeadModel"})
    model_class = GPT
    supported = MappingProxyType(
        {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
    )
    fields = (
        Field("vocab_size", "vocabulary"),
        Field("n_positions", "length"),
        Field("n_embd", "width"),
        Field("n_layer", "layers"),
        Field("n_head", "heads"),
        Field("n_inner", "hidden", None),
        Field("layer_norm_epsilon", "epsilon", 1e-5),
        activation_field("activation_function", "gelu_new"),
        Field("tie_word_embeddings", "tied", True),
    )

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        fields = super().parse_fields(hf_config)
        width = fields["width"]
        if fields["hidden"] is None:
            fields["hidden"] = 4 * width if isinstance(width, int) else width
        return fields

    def fits(self, config: GPTConfig) -> bool:
        return (
            config.positions == "learned"
            and config.norm == "layer"
            and config.feedforward == "plain"
            and config.attention_bias
            and config.output_bias
            and config.feedforward_bias
            and config.window is None
            and not (config.query_key_norm or config.output_norm or config.scaled_embedding)
            and config.groups in (None, config.heads)
            and config.head_width in (None, config.width // config.heads)
        )

    def build_name_table(self, config: GPTConfig) -> NameTable:
        block = "transformer.h.{}."
        rules: dict[str, str | Rule] = {
            "embedding": "transformer.wte",
            "positions.table": "transformer.wpe",
            "blocks.{}.attention_norm": f"{block}ln_1",
            "blocks.{}.attention.projection.joined": Rule([f"{block}attn.c_attn"], transposed=True),
            "blocks.{}.attention.output": Rule([f"{block}attn.c_proj"], transposed=True),
            "blocks.{}.feedforward_norm": f"{block}ln_2",
            "blocks.{}.feedforward.inner": Rule([f"{block}mlp.c_fc"], transposed=True),
            "blocks.{}.feedforward.outer": Rule([f"{block}mlp.c_proj"], transposed=True),
            "norm": "transformer.ln_f",
            "output": "lm_head",
        }
        # ignored: old files store the causal mask of every layer, and a tied output layer repeats the embedding
        ignored = [f"{block}attn.bias", f"{block}attn.masked_bias", *(["lm_head"] if config.tied else [])]
        return NameTable(rules, ignored, base="transformer.")
