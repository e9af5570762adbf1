"""Convert Marian, the architecture of OPUS-MT: post-norm, sinusoidal positions in halves, a bias on the logits; and
Pegasus (Zhang et al. 2020): like Marian, but pre-norm, and with a norm after each stack."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor, nn

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.errors import CheckpointError
from jumok.fields import JSONObject
from jumok.models.transformer import Transformer, TransformerConfig

from .dialect import Dialect, Field, LikeField, activation_field, get_field

# the tables of sinusoids, which our model computes
STORED_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


class OneRowRule(Rule):
    """A rule for the bias on the logits, which the file stores as a matrix of one row and the model as a vector."""

    def build_parameter(self, tensors: Sequence[Tensor]) -> Tensor:
        return tensors[0].flatten()

    def split_parameter(self, parameter: Tensor) -> list[Tensor]:
        return [parameter[None].contiguous()]


class MarianDialect(Dialect[TransformerConfig]):
    """A post-norm Transformer with sinusoidal positions in halves."""

    model_types = ("marian",)
    architectures = MappingProxyType({None: "MarianMTModel"})
    model_class = Transformer
    headless: ClassVar[str] = "MarianModel"  # has no bias on the logits
    order: ClassVar[str] = "post"
    table_class: ClassVar[type[NameTable]] = NameTable
    supported = MappingProxyType(
        {
            "is_encoder_decoder": True,
            "normalize_before": False,
            "normalize_embedding": False,
            "add_final_layer_norm": False,
            "static_position_embeddings": True,
        }
    )
    fields = (
        Field("vocab_size", "vocabulary"),
        Field("max_position_embeddings", "length", 1024),
        Field("d_model", "width"),
        Field("encoder_layers", "layers"),
        Field("decoder_layers", "decoder_layers"),
        Field("encoder_attention_heads", "heads"),
        Field("encoder_ffn_dim", "hidden"),
        activation_field("activation_function", "gelu", preferred="swish"),
        Field("scale_embedding", "scaled_embedding", False),
        Field("share_encoder_decoder_embeddings", "shared", True),
        Field("tie_word_embeddings", "tied", True),
        Field("pad_token_id", "pad"),
        Field("decoder_start_token_id", "start", LikeField("pad")),
        Field("eos_token_id", "end", 0),
    )

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        fields = super().parse_fields(hf_config)
        for name in ("attention_heads", "ffn_dim"):
            encoder, decoder = get_field(hf_config, f"encoder_{name}"), get_field(hf_config, f"decoder_{name}")
            if encoder != decoder:
                raise CheckpointError(
                    f"config.json has encoder_{name} {str(encoder)[:20]} and decoder_{name} {str(decoder)[:20]}; "
                    "they must be equal"
                )
        # transformers 5 shares the embeddings only if the output layer is tied as well
        shared = fields["shared"] and fields["tied"]
        target_vocabulary = get_field(hf_config, "decoder_vocab_size", fields["vocabulary"])
        return fields | {
            "target_vocabulary": None if shared else target_vocabulary,
            "layout": "halves",
            "order": self.order,
            "shared": shared,
            "output_bias": get_field(hf_config, "architectures", None) != [self.headless],
        }

    def fits(self, config: TransformerConfig) -> bool:
        return (
            config.positions == "sinusoidal"
            and config.layout == "halves"
            and config.epsilon == 1e-5
            and not (config.shared and not config.tied)
            and config.order == self.order
            and config.final_norm in (None, self.order == "pre")
        )

    def to_hf_config(self, config: TransformerConfig) -> JSONObject:
        return super().to_hf_config(config) | {
            "decoder_vocab_size": config.target_vocabulary_size,
            "decoder_layers": config.decoder_layers or config.layers,
            "decoder_attention_heads": config.heads,
            "decoder_ffn_dim": config.hidden,
            "forced_eos_token_id": config.end,
        }

    def build_name_table(self, config: TransformerConfig) -> NameTable:
        source, target = "model.encoder.embed_tokens", "model.decoder.embed_tokens"
        rules: dict[str, str | Rule] = {
            "embedding": "model.shared" if config.shared else source,
            "target_embedding": target,
            "encoder_norm": "model.encoder.layer_norm",
            "decoder_norm": "model.decoder.layer_norm",
            "output": "lm_head",
            "output_bias": OneRowRule(["final_logits_bias"]),
        }
        for stack in ("encoder", "decoder"):
            rules |= build_stack_rules(stack)
            for part, attention in list_attentions(stack).items():
                names = [f"model.{stack}.layers.{{}}.{attention}.{name}_proj" for name in "qkv"]
                rules[f"{stack}.{{}}.{part}.projection.joined"] = Rule(names, (config.width,) * 3)

        # ignored: the sinusoids are computed, and with separate source and target embeddings the shared one is unused
        ignored = list(STORED_POSITIONS)
        copies = {}
        if config.shared:
            copies = dict.fromkeys((f"{source}.weight", f"{target}.weight"), "model.shared.weight")
        else:
            ignored.append("model.shared.weight")
        if config.tied:
            copies["lm_head.weight"] = "model.shared.weight" if config.shared else f"{target}.weight"
        return self.table_class(rules, ignored, base="model.", copies=copies)


class PegasusTable(NameTable):
    """A name table that writes the sinusoids too: without them, transformers reports newly initialised parameters."""

    def collect_tensors(self, model: nn.Module) -> dict[str, Tensor]:
        assert isinstance(model, Transformer)
        tensors = super().collect_tensors(model)
        assert model.source_positions is not None  # sinusoidal
        positions = range(model.config.length)
        for name in STORED_POSITIONS:
            tensors[name] = model.source_positions(positions).to(model.embedding.weight.dtype)
        return tensors


class PegasusDialect(MarianDialect):
    """A pre-norm Transformer with sinusoidal positions in halves and one shared embedding."""

    model_types = ("pegasus",)
    architectures = MappingProxyType({None: "PegasusForConditionalGeneration"})
    headless = "PegasusModel"
    order = "pre"
    table_class = PegasusTable
    supported = MappingProxyType({"is_encoder_decoder": True})

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        fields = super().parse_fields(hf_config)
        if not fields["shared"]:
            raise CheckpointError(
                "config.json does not tie the embeddings; only a Pegasus with tied embeddings is supported"
            )
        return fields

    def fits(self, config: TransformerConfig) -> bool:
        return super().fits(config) and config.shared

    def to_hf_config(self, config: TransformerConfig) -> JSONObject:
        fields = super().to_hf_config(config)
        del fields["decoder_vocab_size"]
        return fields


def list_attentions(stack: str) -> dict[str, str]:
    """Return the attentions of a block of the encoder or the decoder, with their names in the file."""
    return {"attention": "self_attn"} if stack == "encoder" else {"attention": "self_attn", "cross": "encoder_attn"}


def build_stack_rules(stack: str) -> dict[str, str]:
    """Return the rules of the encoder's or the decoder's blocks, except those of the projections.

    Marian, Pegasus and Whisper store their blocks as BART does.
    """
    block = f"model.{stack}.layers.{{}}."
    rules = {
        f"{stack}.{{}}.feedforward.inner": f"{block}fc1",
        f"{stack}.{{}}.feedforward.outer": f"{block}fc2",
        f"{stack}.{{}}.feedforward_norm": f"{block}final_layer_norm",
    }
    for part, attention in list_attentions(stack).items():
        rules[f"{stack}.{{}}.{part}.output"] = f"{block}{attention}.out_proj"
        rules[f"{stack}.{{}}.{part}_norm"] = f"{block}{attention}_layer_norm"
    return rules
