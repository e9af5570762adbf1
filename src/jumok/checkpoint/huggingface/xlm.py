"""Convert XLM classifiers: Hugging Face's class for a linear layer on the first token, or on the mean of all tokens.

An XLM (Lample and Conneau 2019) without language embeddings is a BERT without segments. Its feed-forward network is
always 4 times as wide as the model: a narrower one is padded with zeros. Segment 0 and an offset become part of its
table of positions. The vocabulary gets one more token, because XLM needs a padding token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint.name_table import NameTable, Rule, concatenate_layers, rename_layer
from jumok.errors import CheckpointError
from jumok.fields import JSONObject
from jumok.models import Config, Model
from jumok.models.bert import BERTConfig
from jumok.models.classifier import Classifier, ClassifierConfig

from .bert import has_published_blocks
from .common import get_field, get_integer_field, parse_architectures, parse_class_count, refuse_unless

MODEL_TYPES: tuple[str, ...] = ("xlm",)
MODEL_CLASS: type[Model] = Classifier

ARCHITECTURE = "XLMForSequenceClassification"
POOLS = ("first", "mean")
HIDDEN_RATIO = 4  # the inner width of XLM's feed-forward network, divided by the width of the model
POSITIONS = "transformer.position_embeddings.weight"
SEGMENTS = "segments"  # the rule needs a name for it, but the file does not store it


def from_hf_config(hf_config: JSONObject) -> ClassifierConfig:
    """Convert the config of an XLM classifier to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    if parse_architectures(hf_config) != [ARCHITECTURE]:
        raise CheckpointError(f"config.json is of an XLM that is not a classifier; only {ARCHITECTURE} is supported")
    refuse_unless(
        hf_config,
        n_langs=1,
        causal=False,
        sinusoidal_embeddings=False,
        summary_use_proj=True,
        summary_proj_to_labels=True,
        summary_activation=None,
    )
    pool = get_field(hf_config, "summary_type", "first")
    if pool not in POOLS:
        raise CheckpointError(f"config.json has summary_type {str(pool)[:40]!r}; supported: {', '.join(POOLS)}")
    width = get_integer_field(hf_config, "emb_dim", 2048)
    encoder: JSONObject = {
        "family": "bert",
        "vocabulary": get_field(hf_config, "vocab_size", 30145),
        "length": get_field(hf_config, "max_position_embeddings", 512),
        "width": width,
        "layers": get_field(hf_config, "n_layers", 12),
        "heads": get_field(hf_config, "n_heads", 16),
        "hidden": HIDDEN_RATIO * width,
        "segments": 0,
        "epsilon": get_field(hf_config, "layer_norm_eps", 1e-12),
        "activation": "gelu" if get_field(hf_config, "gelu_activation", True) else "relu",
    }
    return ClassifierConfig.from_json({"encoder": encoder, "pool": pool, "classes": parse_class_count(hf_config)})


def can_express(config: Config) -> bool:
    """Return True for a classifier with one linear layer, on a BERT with GELU or ReLU whose feed-forward network is at
    most 4 widths wide.

    Args:
        config: Our config, of any family.
    """
    if not isinstance(config, ClassifierConfig) or not isinstance(config.encoder, BERTConfig):
        return False
    encoder = config.encoder
    return (
        not config.head_hidden
        and has_published_blocks(encoder)
        and encoder.activation in ("gelu", "relu")
        and encoder.hidden <= HIDDEN_RATIO * encoder.width
    )


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to the config of an XLM classifier.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, ClassifierConfig) and isinstance(config.encoder, BERTConfig)
    encoder = config.encoder
    return {
        "model_type": "xlm",
        "architectures": [ARCHITECTURE],
        "num_labels": config.classes,
        "problem_type": "single_label_classification",
        "vocab_size": encoder.vocabulary + 1,
        "max_position_embeddings": encoder.length,
        "emb_dim": encoder.width,
        "n_layers": encoder.layers,
        "n_heads": encoder.heads,
        "layer_norm_eps": encoder.epsilon,
        "gelu_activation": encoder.activation == "gelu",
        "dropout": encoder.dropout,
        "attention_dropout": encoder.dropout,
        "n_langs": 1,
        "use_lang_emb": False,
        "summary_type": config.pool,
        "summary_use_proj": True,
        "summary_proj_to_labels": True,
        "summary_activation": None,
        "summary_first_dropout": config.dropout,
        "bos_token_id": None,
        "eos_token_id": None,
        # one token more than ours: without an attention mask, XLM takes the tokens with this id for padding
        "pad_token_id": encoder.vocabulary,
    }


@dataclass(frozen=True)
class PaddedRule(Rule):
    """A rule for a parameter that the file stores with additional zeros."""

    axis: int = 0
    size: int = 0

    def split_parameter(self, parameter: Tensor) -> list[Tensor]:
        """Return the padded parameter; see ``Rule.split_parameter``."""
        missing = [0, 0] * (parameter.dim() - self.axis)  # from the last axis to the padded one
        missing[-1] = self.size - parameter.shape[self.axis]
        return [functional.pad(parameter, missing).contiguous()]


class PositionsTable(NameTable):
    """A name table that adds segment 0 to the positions and leaves out those before the first token.

    Args:
        rules: One rule for each parameter name.
        base: The prefix that is missing from every name in files saved without a head.
    """

    def __init__(self, rules: Sequence[Rule], base: str, offset: int) -> None:
        super().__init__(rules, base=base)
        self.offset = offset

    def collect_tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the model's parameters as the file stores them."""
        tensors = super().collect_tensors(model)
        positions = tensors[POSITIONS][self.offset :]
        segments = tensors.pop(SEGMENTS, None)
        tensors[POSITIONS] = positions if segments is None else positions + segments[0]
        return tensors


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, ClassifierConfig) and isinstance(config.encoder, BERTConfig)
    base, block = "transformer.", "encoder.blocks.{}."
    width, hidden = config.encoder.width, HIDDEN_RATIO * config.encoder.width
    projections = [f"{base}attentions.{{}}.{name}_lin" for name in "qkv"]
    inner, outer = f"{block}feedforward.inner", f"{block}feedforward.outer"
    rules = [
        PaddedRule(
            "encoder.embedding.weight", (f"{base}embeddings.weight",), axis=0, size=config.encoder.vocabulary + 1
        ),
        Rule("encoder.positions.table.weight", (POSITIONS,)),
        Rule("encoder.segments.weight", (SEGMENTS,)),
        *rename_layer("encoder.norm", f"{base}layer_norm_emb"),
        *concatenate_layers(f"{block}attention.projection.joined", projections, (width,) * 3),
        *rename_layer(f"{block}attention.output", f"{base}attentions.{{}}.out_lin"),
        *rename_layer(f"{block}attention_norm", f"{base}layer_norm1.{{}}"),
        PaddedRule(f"{inner}.weight", (f"{base}ffns.{{}}.lin1.weight",), axis=0, size=hidden),
        PaddedRule(f"{inner}.bias", (f"{base}ffns.{{}}.lin1.bias",), axis=0, size=hidden),
        PaddedRule(f"{outer}.weight", (f"{base}ffns.{{}}.lin2.weight",), axis=1, size=hidden),
        Rule(f"{outer}.bias", (f"{base}ffns.{{}}.lin2.bias",)),
        *rename_layer(f"{block}feedforward_norm", f"{base}layer_norm2.{{}}"),
        *rename_layer("output", "sequence_summary.summary"),
    ]
    return PositionsTable(rules, base, config.encoder.offset)
