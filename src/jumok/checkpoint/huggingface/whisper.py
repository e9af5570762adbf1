"""Convert Whisper (Radford et al. 2022), multilingual and English-only. The positions of audio are a stored table."""

from __future__ import annotations

from jumok.checkpoint.name_table import NameTable, Rule, rename_layer
from jumok.errors import CheckpointError
from jumok.fields import JSONObject
from jumok.models import Config, Model
from jumok.models.speech import Speech, SpeechConfig

from .common import format_activation, get_field, parse_activation
from .tied_table import TiedTable

MODEL_TYPES: tuple[str, ...] = ("whisper",)
MODEL_CLASS: type[Model] = Speech

ARCHITECTURES = ("WhisperForConditionalGeneration", "WhisperModel")


def from_hf_config(hf_config: JSONObject) -> SpeechConfig:
    """Convert a Whisper config to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    architectures = get_field(hf_config, "architectures", list(ARCHITECTURES[:1]))
    if not isinstance(architectures, list) or not any(name in ARCHITECTURES for name in architectures):
        raise CheckpointError(
            f"config.json has the architecture {str(architectures)[:80]}; of Whisper, only "
            f"{' and '.join(ARCHITECTURES)} are supported"
        )
    end = get_field(hf_config, "eos_token_id", 50_256)
    if isinstance(end, list):
        end = end[0] if end else None
    return SpeechConfig.from_json(
        {
            "mel_bins": get_field(hf_config, "num_mel_bins", 80),
            "source_length": get_field(hf_config, "max_source_positions", 1500),
            "target_length": get_field(hf_config, "max_target_positions", 448),
            "vocabulary": get_field(hf_config, "vocab_size"),
            "width": get_field(hf_config, "d_model"),
            "layers": get_field(hf_config, "encoder_layers"),
            "decoder_layers": get_field(hf_config, "decoder_layers"),
            "heads": get_field(hf_config, "encoder_attention_heads"),
            "decoder_heads": get_field(hf_config, "decoder_attention_heads"),
            "hidden": get_field(hf_config, "encoder_ffn_dim"),
            "decoder_hidden": get_field(hf_config, "decoder_ffn_dim"),
            "activation": parse_activation(get_field(hf_config, "activation_function", "gelu")),
            "tied": get_field(hf_config, "tie_word_embeddings", True),
            "start": get_field(hf_config, "decoder_start_token_id", 50_257),
            "end": end,
            "pad": get_field(hf_config, "pad_token_id", end),
        }
    )


def can_express(config: Config) -> bool:
    """Return True for every speech model.

    Args:
        config: Our config, of any family.
    """
    return isinstance(config, SpeechConfig)


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to a Whisper config.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, SpeechConfig)
    return {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "is_encoder_decoder": True,
        "num_mel_bins": config.mel_bins,
        "max_source_positions": config.source_length,
        "max_target_positions": config.target_length,
        "vocab_size": config.vocabulary,
        "d_model": config.width,
        "encoder_layers": config.layers,
        "decoder_layers": config.decoder_layers,
        "num_hidden_layers": config.layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.decoder_heads,
        "encoder_ffn_dim": config.hidden,
        "decoder_ffn_dim": config.decoder_hidden,
        "activation_function": format_activation(config.activation, preferred="gelu"),
        "tie_word_embeddings": config.tied,
        "decoder_start_token_id": config.start,
        "bos_token_id": config.end,
        "eos_token_id": config.end,
        "pad_token_id": config.pad,
        "dropout": config.dropout,
    }


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, SpeechConfig)
    rules = [
        *rename_layer("first_convolution", "model.encoder.conv1"),
        *rename_layer("second_convolution", "model.encoder.conv2"),
        Rule("source_positions", ("model.encoder.embed_positions.weight",)),
        *_build_stack_rules("encoder", {"attention": "self_attn"}),
        *rename_layer("encoder_norm", "model.encoder.layer_norm"),
        Rule("embedding.weight", ("model.decoder.embed_tokens.weight",)),
        Rule("positions.table.weight", ("model.decoder.embed_positions.weight",)),
        *_build_stack_rules("decoder", {"attention": "self_attn", "cross": "encoder_attn"}),
        *rename_layer("decoder_norm", "model.decoder.layer_norm"),
        Rule("output.weight", ("proj_out.weight",)),
    ]
    copies = {"proj_out.weight": "model.decoder.embed_tokens.weight"} if config.tied else {}
    return TiedTable(rules, base="model.", copies=copies)


def _build_stack_rules(stack: str, attentions: dict[str, str]) -> list[Rule]:
    """Return the rules of the encoder's or the decoder's blocks."""
    block = f"model.{stack}.layers.{{}}."
    rules: list[Rule] = []
    for part, attention in attentions.items():
        for name, stored in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
            rules += rename_layer(f"{stack}.{{}}.{part}.projection.{name}", f"{block}{attention}.{stored}")
        rules += [
            *rename_layer(f"{stack}.{{}}.{part}.output", f"{block}{attention}.out_proj"),
            *rename_layer(f"{stack}.{{}}.{part}_norm", f"{block}{attention}_layer_norm"),
        ]
    return [
        *rules,
        *rename_layer(f"{stack}.{{}}.feedforward.inner", f"{block}fc1"),
        *rename_layer(f"{stack}.{{}}.feedforward.outer", f"{block}fc2"),
        *rename_layer(f"{stack}.{{}}.feedforward_norm", f"{block}final_layer_norm"),
    ]
