"""Convert Pegasus (Zhang et al. 2020): like Marian, but pre-norm, and with a norm after each stack."""

from __future__ import annotations

from torch import Tensor, nn

from jumok.checkpoint.name_table import NameTable, rename_layer
from jumok.errors import CheckpointError
from jumok.fields import JSONObject
from jumok.models import Config, Model
from jumok.models.transformer import Transformer, TransformerConfig

from .common import refuse_unless
from .marian import STORED_POSITIONS, build_fields, build_table_with, fits_marian, parse_fields
from .tied_table import TiedTable

MODEL_TYPES: tuple[str, ...] = ("pegasus",)
MODEL_CLASS: type[Model] = Transformer


def from_hf_config(hf_config: JSONObject) -> TransformerConfig:
    """Convert a Pegasus config to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    refuse_unless(hf_config, is_encoder_decoder=True)
    fields = parse_fields(hf_config, headless="PegasusModel")
    if not fields["shared"]:
        raise CheckpointError(
            "config.json does not tie the embeddings; only a Pegasus with tied embeddings is supported"
        )
    return TransformerConfig.from_json({**fields, "order": "pre"})


def can_express(config: Config) -> bool:
    """Return True for a pre-norm Transformer with sinusoidal positions in halves and one shared embedding.

    Args:
        config: Our config, of any family.
    """
    return isinstance(config, TransformerConfig) and (
        fits_marian(config) and config.order == "pre" and config.final_norm is not False and config.shared
    )


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to a Pegasus config.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, TransformerConfig)
    fields = build_fields(config)
    del fields["decoder_vocab_size"]
    return {**fields, "model_type": "pegasus", "architectures": ["PegasusForConditionalGeneration"]}


class PegasusTable(TiedTable):
    """A name table that writes the sinusoids too: without them, transformers reports newly initialised parameters."""

    def collect_tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the model's parameters as the file stores them, and its sinusoids."""
        assert isinstance(model, Transformer)
        tensors = super().collect_tensors(model)
        assert model.source_positions is not None  # sinusoidal
        positions = range(model.config.length)
        for name in STORED_POSITIONS:
            tensors[name] = model.source_positions(positions).to(model.embedding.weight.dtype)
        return tensors


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, TransformerConfig)
    norms = [
        *rename_layer("encoder_norm", "model.encoder.layer_norm"),
        *rename_layer("decoder_norm", "model.decoder.layer_norm"),
    ]
    return build_table_with(config, norms, PegasusTable)
