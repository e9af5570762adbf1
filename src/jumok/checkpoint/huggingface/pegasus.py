"""Pegasus (Zhang et al. 2020), as Marian but with norms in front of each part, and one behind each stack."""

from __future__ import annotations

from typing import Any

from jumok.checkpoint.name_table import Table, same
from jumok.errors import CheckpointError
from jumok.models import Model
from jumok.models.transformer import Transformer, TransformerConfig

from . import Reading, marian, refuse_unless

MODEL_TYPES = ("pegasus",)


def reading(theirs: dict[str, Any]) -> Reading:
    refuse_unless(theirs, is_encoder_decoder=True)
    told = marian.fields(theirs, headless="PegasusModel")
    if not told["shared"]:
        raise CheckpointError("config.json does not tie the embeddings, which Pegasus here must have")
    config = TransformerConfig.from_json({**told, "order": "pre"})
    return Reading(Transformer, config, table(config))


def table(config: TransformerConfig) -> Table:
    norms = [rule for one in ("encoder", "decoder") for rule in same(f"{one}_norm", f"model.{one}.layer_norm")]
    return marian.table(config, norms)


def writes(model: Model) -> bool:
    config: Any = model.config
    return marian.fits(config) and config.order == "pre" and config.final_norm is not False and config.shared


def config_json(model: Model) -> dict[str, Any]:
    told = {**marian.fields_json(model), "model_type": "pegasus", "architectures": ["PegasusForConditionalGeneration"]}
    return {name: value for name, value in told.items() if name != "decoder_vocab_size"}
