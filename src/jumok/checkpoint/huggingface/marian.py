"""Convert Marian, the architecture of OPUS-MT: post-norm, sinusoidal positions in halves, a bias on the logits."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from jumok.checkpoint.name_table import NameTable, Rule, concatenate_layers, rename_layer
from jumok.errors import CheckpointError
from jumok.fields import JSONObject
from jumok.models import Config, Model
from jumok.models.transformer import Transformer, TransformerConfig

from .common import format_activation, get_field, parse_activation, refuse_unless
from .tied_table import TiedTable

MODEL_TYPES: tuple[str, ...] = ("marian",)
MODEL_CLASS: type[Model] = Transformer

# the tables of sinusoids, which our model computes
STORED_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


class OneRowRule(Rule):
    """A rule for the bias on the logits, which the file stores as a matrix of one row and the model as a vector."""

    def build_parameter(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the row as a vector; see ``Rule.join``."""
        return tensors[0].flatten()

    def split_parameter(self, parameter: Tensor) -> list[Tensor]:
        """Return the vector as a matrix of one row; see ``Rule.split``."""
        return [parameter[None].contiguous()]


def from_hf_config(hf_config: JSONObject) -> TransformerConfig:
    """Convert a Marian config to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    refuse_unless(
        hf_config,
        is_encoder_decoder=True,
        normalize_before=False,
        normalize_embedding=False,
        add_final_layer_norm=False,
        static_position_embeddings=True,
    )
    return TransformerConfig.from_json(parse_fields(hf_config, headless="MarianModel"))


def parse_fields(hf_config: JSONObject, headless: str) -> JSONObject:
    """Return our fields for a config of Marian or Pegasus.

    Args:
        headless: The name of the architecture without a head, which has no bias on the logits.
    """
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = get_field(hf_config, f"encoder_{name}"), get_field(hf_config, f"decoder_{name}")
        if encoder != decoder:
            raise CheckpointError(
                f"config.json has encoder_{name} {str(encoder)[:20]} and decoder_{name} {str(decoder)[:20]}; "
                "they must be equal"
            )
    tied = get_field(hf_config, "tie_word_embeddings", True)
    # transformers 5 shares the embeddings only if the output layer is tied as well
    shared = get_field(hf_config, "share_encoder_decoder_embeddings", True) and tied
    vocabulary = get_field(hf_config, "vocab_size")
    pad = get_field(hf_config, "pad_token_id")
    return {
        "vocabulary": vocabulary,
        "target_vocabulary": None if shared else get_field(hf_config, "decoder_vocab_size", vocabulary),
        "length": get_field(hf_config, "max_position_embeddings", 1024),
        "width": get_field(hf_config, "d_model"),
        "layers": get_field(hf_config, "encoder_layers"),
        "decoder_layers": get_field(hf_config, "decoder_layers"),
        "heads": get_field(hf_config, "encoder_attention_heads"),
        "hidden": get_field(hf_config, "encoder_ffn_dim"),
        "layout": "halves",
        "activation": parse_activation(get_field(hf_config, "activation_function", "gelu")),
        "scaled_embedding": get_field(hf_config, "scale_embedding", False),
        "shared": shared,
        "tied": tied,
        "output_bias": get_field(hf_config, "architectures", None) != [headless],
        "start": get_field(hf_config, "decoder_start_token_id", pad),
        "end": get_field(hf_config, "eos_token_id", 0),
        "pad": pad,
    }


def can_express(config: Config) -> bool:
    """Return True for a post-norm Transformer with sinusoidal positions in halves.

    Args:
        config: Our config, of any family.
    """
    return isinstance(config, TransformerConfig) and (
        fits_marian(config) and config.order == "post" and not config.final_norm
    )


def fits_marian(config: TransformerConfig) -> bool:
    """Return True if a config meets the conditions that Marian and Pegasus share."""
    return (
        config.positions == "sinusoidal"
        and config.layout == "halves"
        and config.epsilon == 1e-5
        and not (config.shared and not config.tied)
    )


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to a Marian config.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, TransformerConfig)
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        **build_fields(config),
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
    }


def build_fields(config: TransformerConfig) -> JSONObject:
    """Return the fields that the configs of Marian and Pegasus share."""
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.vocabulary,
        "decoder_vocab_size": config.target_vocabulary_size,
        "max_position_embeddings": config.length,
        "d_model": config.width,
        "encoder_layers": config.layers,
        "decoder_layers": config.decoder_layers or config.layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.hidden,
        "decoder_ffn_dim": config.hidden,
        "activation_function": format_activation(config.activation, preferred="swish"),
        "scale_embedding": config.scaled_embedding,
        "share_encoder_decoder_embeddings": config.shared,
        "tie_word_embeddings": config.tied,
        "decoder_start_token_id": config.start,
        "eos_token_id": config.end,
        "forced_eos_token_id": config.end,
        "pad_token_id": config.pad,
    }


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, TransformerConfig)
    return build_table_with(config, [])


def build_table_with(
    config: TransformerConfig, more: Sequence[Rule], table_class: type[TiedTable] = TiedTable
) -> NameTable:
    """Return the table of parameter names of Marian, with additional rules.

    Args:
        more: Rules for parameters that Marian does not have.
    """
    if config.shared:
        embeddings = [Rule("embedding.weight", ("model.shared.weight",))]
    else:
        embeddings = [
            Rule("embedding.weight", ("model.encoder.embed_tokens.weight",)),
            Rule("target_embedding.weight", ("model.decoder.embed_tokens.weight",)),
        ]
    rules = [
        *embeddings,
        *more,
        Rule("output.weight", ("lm_head.weight",)),
        OneRowRule("output_bias", ("final_logits_bias",)),
        *_build_stack_rules(config, "encoder", {"attention": "self_attn"}),
        *_build_stack_rules(config, "decoder", {"attention": "self_attn", "cross": "encoder_attn"}),
    ]

    # ignored: the sinusoids are computed, and with separate source and target embeddings the shared one is unused
    ignored = list(STORED_POSITIONS)
    copies = {}
    if config.shared:
        names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
        copies = dict.fromkeys(names, "model.shared.weight")
    else:
        ignored.append("model.shared.weight")
    if config.tied:
        copies["lm_head.weight"] = "model.shared.weight" if config.shared else "model.decoder.embed_tokens.weight"
    return table_class(rules, ignored, base="model.", copies=copies)


def _build_stack_rules(config: TransformerConfig, stack: str, attentions: dict[str, str]) -> list[Rule]:
    """Return the rules of the encoder's or the decoder's blocks."""
    block = f"model.{stack}.layers.{{}}."
    rules: list[Rule] = []
    for part, attention in attentions.items():
        projections = [f"{block}{attention}.{name}_proj" for name in "qkv"]
        rules += [
            *concatenate_layers(f"{stack}.{{}}.{part}.projection.joined", projections, (config.width,) * 3),
            *rename_layer(f"{stack}.{{}}.{part}.output", f"{block}{attention}.out_proj"),
            *rename_layer(f"{stack}.{{}}.{part}_norm", f"{block}{attention}_layer_norm"),
        ]
    return [
        *rules,
        *rename_layer(f"{stack}.{{}}.feedforward.inner", f"{block}fc1"),
        *rename_layer(f"{stack}.{{}}.feedforward.outer", f"{block}fc2"),
        *rename_layer(f"{stack}.{{}}.feedforward_norm", f"{block}final_layer_norm"),
    ]
