"""Convert Whisper (Radford et al. 2022), multilingual and English-only. The positions of audio are a stored table."""

from __future__ import annotations

from types import MappingProxyType

from jumok.checkpoint.name_table import NameTable
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.models.speech import Speech, SpeechConfig

from .dialect import Dialect, Field, LikeField, activation_field, get_field
from .marian import build_stack_rules, list_attentions

ARCHITECTURES = ("WhisperForConditionalGeneration", "WhisperModel")


def _parse_end(name: str, value: JSONValue) -> JSONValue:
    """Return the end token; config.json may list several."""
    if isinstance(value, list):
        return value[0] if value else None
    return value


class WhisperDialect(Dialect[SpeechConfig]):
    """Every speech model."""

    model_types = ("whisper",)
    architectures = MappingProxyType({None: ARCHITECTURES[0]})
    model_class = Speech
    fields = (
        Field("num_mel_bins", "mel_bins", 80),
        Field("max_source_positions", "source_length", 1500),
        Field("max_target_positions", "target_length", 448),
        Field("vocab_size", "vocabulary"),
        Field("d_model", "width"),
        Field("encoder_layers", "layers"),
        Field("decoder_layers", "decoder_layers"),
        Field("encoder_attention_heads", "heads"),
        Field("decoder_attention_heads", "decoder_heads"),
        Field("encoder_ffn_dim", "hidden"),
        Field("decoder_ffn_dim", "decoder_hidden"),
        activation_field("activation_function", "gelu"),
        Field("tie_word_embeddings", "tied", True),
        Field("decoder_start_token_id", "start", 50_257),
        Field("eos_token_id", "end", 50_256, _parse_end),
        Field("pad_token_id", "pad", LikeField("end")),
    )

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        architectures = get_field(hf_config, "architectures", list(ARCHITECTURES[:1]))
        if not isinstance(architectures, list) or not any(name in ARCHITECTURES for name in architectures):
            raise CheckpointError(
                f"config.json has the architecture {str(architectures)[:80]}; of Whisper, only "
                f"{' and '.join(ARCHITECTURES)} are supported"
            )
        return super().parse_fields(hf_config)

    def to_hf_config(self, config: SpeechConfig) -> JSONObject:
        return super().to_hf_config(config) | {
            "is_encoder_decoder": True,
            "num_hidden_layers": config.layers,
            "bos_token_id": config.end,
            "dropout": config.dropout,
        }

    def build_name_table(self, config: SpeechConfig) -> NameTable:
        rules = {
            "first_convolution": "model.encoder.conv1",
            "second_convolution": "model.encoder.conv2",
            "source_positions": "model.encoder.embed_positions.weight",
            "encoder_norm": "model.encoder.layer_norm",
            "embedding": "model.decoder.embed_tokens",
            "positions.table": "model.decoder.embed_positions",
            "decoder_norm": "model.decoder.layer_norm",
            "output": "proj_out",
        }
        for stack in ("encoder", "decoder"):
            rules |= build_stack_rules(stack)
            for part, attention in list_attentions(stack).items():
                for name in ("query", "key", "value"):
                    stored = f"model.{stack}.layers.{{}}.{attention}.{name[0]}_proj"
                    rules[f"{stack}.{{}}.{part}.projection.{name}"] = stored
        copies = {"proj_out.weight": "model.decoder.embed_tokens.weight"} if config.tied else {}
        return NameTable(rules, base="model.", copies=copies)
