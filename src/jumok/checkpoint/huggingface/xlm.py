"""Convert XLM classifiers: Hugging Face's class for a linear layer on the first token, or on the mean of all tokens.

An XLM (Lample and Conneau 2019) without language embeddings is a BERT without segments. Its feed-forward network is
always 4 times as wide as the model: a narrower one is padded with zeros. Segment 0 and an offset become part of its
table of positions. The vocabulary gets one more token, because XLM needs a padding token.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint.name_table import NameTable, Rule, Rules
from jumok.errors import CheckpointError
from jumok.fields import JSONObject
from jumok.models import Config
from jumok.models.bert import BERTConfig
from jumok.models.classifier import Classifier, ClassifierConfig

from .bert import has_published_blocks
from .dialect import Dialect, Field, get_field, list_architectures, parse_class_count, parse_integer

HIDDEN_RATIO = 4  # the inner width of XLM's feed-forward network, divided by the width of the model
POOLS = ("first", "mean")
POSITIONS = "transformer.position_embeddings"
SEGMENTS = "segments"  # the rule needs a name for it, but the file does not store it


class XLMDialect(Dialect[ClassifierConfig]):
    """A classifier with one linear layer, on a BERT with GELU or ReLU whose feed-forward network is at most 4 widths
    wide. The table of fields is that of the encoder."""

    model_types = ("xlm",)
    architectures = MappingProxyType({None: "XLMForSequenceClassification"})
    model_class = Classifier
    supported = MappingProxyType(
        {
            "n_langs": 1,
            "causal": False,
            "sinusoidal_embeddings": False,
            "summary_use_proj": True,
            "summary_proj_to_labels": True,
            "summary_activation": None,
        }
    )
    fields = (
        Field("vocab_size", "vocabulary", 30145),
        Field("max_position_embeddings", "length", 512),
        Field("emb_dim", "width", 2048, parse_integer),
        Field("n_layers", "layers", 12),
        Field("n_heads", "heads", 16),
        Field("layer_norm_eps", "epsilon", 1e-12),
        Field(
            *("gelu_activation", "activation", True),
            parse=lambda name, value: "gelu" if value else "relu",
            format=lambda activation: activation == "gelu",
        ),
    )

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        architecture = self.architectures[None]
        if list_architectures(hf_config) != [architecture]:
            raise CheckpointError(
                f"config.json is of an XLM that is not a classifier; only {architecture} is supported"
            )
        fields = super().parse_fields(hf_config)
        pool = get_field(hf_config, "summary_type", "first")
        if pool not in POOLS:
            raise CheckpointError(f"config.json has summary_type {str(pool)[:40]!r}; supported: {', '.join(POOLS)}")
        hidden = HIDDEN_RATIO * parse_integer("emb_dim", fields["width"])
        encoder = {"family": "bert", **fields, "hidden": hidden, "segments": 0}
        return {"encoder": encoder, "pool": pool, "classes": parse_class_count(hf_config)}

    def fits(self, config: ClassifierConfig) -> bool:
        encoder = config.encoder
        return (
            isinstance(encoder, BERTConfig)
            and not config.head_hidden
            and has_published_blocks(encoder)
            and encoder.activation in ("gelu", "relu")
            and encoder.hidden <= HIDDEN_RATIO * encoder.width
        )

    def to_hf_config(self, config: ClassifierConfig) -> JSONObject:
        vocabulary = _get_encoder(config).vocabulary
        return super().to_hf_config(config) | {
            "num_labels": config.classes,
            "problem_type": "single_label_classification",
            "vocab_size": vocabulary + 1,
            "use_lang_emb": False,
            "dropout": _get_encoder(config).dropout,
            "attention_dropout": _get_encoder(config).dropout,
            "summary_type": config.pool,
            "summary_first_dropout": config.dropout,
            "bos_token_id": None,
            "eos_token_id": None,
            # one token more than ours: without an attention mask, XLM takes the tokens with this id for padding
            "pad_token_id": vocabulary,
        }

    def format_fields(self, config: Config) -> JSONObject:
        assert isinstance(config, ClassifierConfig)
        return super().format_fields(config.encoder)

    def build_name_table(self, config: ClassifierConfig) -> NameTable:
        encoder = _get_encoder(config)
        base, block = "transformer.", "encoder.blocks.{}."
        hidden = HIDDEN_RATIO * encoder.width
        projections = [f"{base}attentions.{{}}.{name}_lin" for name in "qkv"]
        rules: dict[str, str | Rule] = {
            "encoder.embedding": PaddedRule([f"{base}embeddings"], axis=0, size=encoder.vocabulary + 1),
            "encoder.positions.table": POSITIONS,
            "encoder.segments": SEGMENTS,
            "encoder.norm": f"{base}layer_norm_emb",
            f"{block}attention.projection.joined": Rule(projections, (encoder.width,) * 3),
            f"{block}attention.output": f"{base}attentions.{{}}.out_lin",
            f"{block}attention_norm": f"{base}layer_norm1.{{}}",
            f"{block}feedforward.inner": PaddedRule([f"{base}ffns.{{}}.lin1"], axis=0, size=hidden),
            f"{block}feedforward.outer.weight": PaddedRule([f"{base}ffns.{{}}.lin2.weight"], axis=1, size=hidden),
            f"{block}feedforward.outer": f"{base}ffns.{{}}.lin2",
            f"{block}feedforward_norm": f"{base}layer_norm2.{{}}",
            "output": "sequence_summary.summary",
        }
        return PositionsTable(rules, base, encoder.offset)


def _get_encoder(config: ClassifierConfig) -> BERTConfig:
    assert isinstance(config.encoder, BERTConfig)
    return config.encoder


@dataclass(frozen=True)
class PaddedRule(Rule):
    """A rule for a parameter that the file stores with additional zeros."""

    axis: int = 0
    size: int = 0

    def split_parameter(self, parameter: Tensor) -> list[Tensor]:
        missing = [0, 0] * (parameter.dim() - self.axis)  # from the last axis to the padded one
        missing[-1] = self.size - parameter.shape[self.axis]
        return [functional.pad(parameter, missing).contiguous()]


class PositionsTable(NameTable):
    """A name table that adds segment 0 to the positions and leaves out those before the first token."""

    def __init__(self, rules: Rules, base: str, offset: int) -> None:
        super().__init__(rules, base=base)
        self.offset = offset

    def collect_tensors(self, model: nn.Module) -> dict[str, Tensor]:
        tensors = super().collect_tensors(model)
        name = f"{POSITIONS}.weight"
        positions = tensors[name][self.offset :]
        segments = tensors.pop(f"{SEGMENTS}.weight", None)
        tensors[name] = positions if segments is None else positions + segments[0]
        return tensors
