"""Convert BERT, RoBERTa and DistilBERT, without a head or with one for masked tokens or classes.

Unused poolers are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.models.bert import BERT, BERTConfig

from .dialect import Dialect, Field, activation_field, get_field, list_architectures, parse_class_count, parse_integer

# problem_type in config.json -> our field "answer"
ANSWERS = {"single_label_classification": "one", "multi_label_classification": "several", "regression": "number"}
DISTILBERT_EPSILON = 1e-12  # fixed: the config has no field for it


def has_published_blocks(config: BERTConfig) -> bool:
    """Return whether attentions have biases and the embeddings a norm, as in every published BERT."""
    return config.attention_bias and not config.final_norm


def _list_classes(name: str) -> Mapping[str | None, str]:
    heads = {"none": "Model", "mlm": "ForMaskedLM", "classes": "ForSequenceClassification"}
    return MappingProxyType({head: name + ending for head, ending in heads.items()})


class _EncoderDialect(Dialect[BERTConfig]):
    """What the three share: the heads."""

    model_class = BERT
    class_activation: ClassVar[str]  # of the head for classes

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        fields = super().parse_fields(hf_config)
        architectures = list_architectures(hf_config)
        if any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in architectures):
            fields |= {"head": "mlm", "head_activation": self.get_mlm_activation(fields["activation"])}
        if not any(name.endswith("ForSequenceClassification") for name in architectures):
            return fields

        classes = parse_class_count(hf_config)
        # as in transformers' pipeline: a single class gets a sigmoid, not a softmax
        default = "multi_label_classification" if classes == 1 else "single_label_classification"
        problem = hf_config.get("problem_type") or default
        if not isinstance(problem, str) or problem not in ANSWERS:
            raise CheckpointError(
                f"config.json has problem_type = {str(problem)[:80]!r}; supported: {', '.join(ANSWERS)}"
            )
        head = {"head": "classes", "head_activation": self.class_activation}
        return fields | head | {"classes": classes, "answer": ANSWERS[problem]}

    def get_mlm_activation(self, activation: JSONValue) -> JSONValue:
        """Return the activation of the head for masked tokens, given that of the blocks."""
        return activation

    def fits(self, config: BERTConfig) -> bool:
        activations = {"mlm": self.get_mlm_activation(config.activation), "classes": self.class_activation}
        has_head = config.head == "none" or config.head_activation == activations[config.head]
        return has_head and has_published_blocks(config)

    def to_hf_config(self, config: BERTConfig) -> JSONObject:
        hf_config = super().to_hf_config(config)
        if config.head == "classes":
            hf_config["num_labels"] = config.classes
            hf_config["problem_type"] = next(problem for problem, answer in ANSWERS.items() if answer == config.answer)
        return hf_config


class BertDialect(_EncoderDialect):
    """A BERT with segments."""

    model_types = ("bert",)
    architectures = _list_classes("Bert")
    supported = MappingProxyType(
        {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}
    )
    class_activation = "tanh"
    fields = (
        Field("vocab_size", "vocabulary"),
        Field("max_position_embeddings", "length", 512, parse_integer),
        Field("hidden_size", "width"),
        Field("num_hidden_layers", "layers"),
        Field("num_attention_heads", "heads"),
        Field("intermediate_size", "hidden"),
        Field("type_vocab_size", "segments", 2, parse_integer),
        Field("layer_norm_eps", "epsilon", 1e-12),
        activation_field("hidden_act", "gelu"),
        Field("tie_word_embeddings", "tied", True),
    )
    base = "bert."
    mlm_inner, mlm_norm = "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"
    mlm_output, mlm_bias = "cls.predictions.decoder", "cls.predictions.bias"
    class_inner, class_output = "bert.pooler.dense", "classifier"

    def fits(self, config: BERTConfig) -> bool:
        return super().fits(config) and config.segments > 0 and config.padding_id is None and config.offset == 0

    def to_hf_config(self, config: BERTConfig) -> JSONObject:
        return super().to_hf_config(config) | {"pad_token_id": 0}

    def build_name_table(self, config: BERTConfig) -> NameTable:
        base, layer = self.base, self.base + "encoder.layer.{}."
        projections = [f"{layer}attention.self.{name}" for name in ("query", "key", "value")]
        rules: dict[str, str | Rule] = {
            "embedding": f"{base}embeddings.word_embeddings",
            "positions.table": f"{base}embeddings.position_embeddings",
            "segments": f"{base}embeddings.token_type_embeddings",
            "norm": f"{base}embeddings.LayerNorm",
            "blocks.{}.attention.projection.joined": Rule(projections, (config.width,) * 3),
            "blocks.{}.attention.output": f"{layer}attention.output.dense",
            "blocks.{}.attention_norm": f"{layer}attention.output.LayerNorm",
            "blocks.{}.feedforward.inner": f"{layer}intermediate.dense",
            "blocks.{}.feedforward.outer": f"{layer}output.dense",
            "blocks.{}.feedforward_norm": f"{layer}output.LayerNorm",
            "head.inner": self.class_inner if config.head == "classes" else self.mlm_inner,
            "head.norm": self.mlm_norm,
            "head.output": self.class_output if config.head == "classes" else self.mlm_output,
            # a tied output layer stores its bias separately; otherwise the layer's own bias is used
            "head.bias": self.mlm_bias if config.tied else f"{self.mlm_output}.bias",
        }
        unused = self.mlm_output if config.tied else self.mlm_bias
        ignored = [f"{base}embeddings.position_ids", f"{base}pooler.dense", "cls.seq_relationship", unused]
        return GammaBetaTable(rules, ignored, base=base)


class RobertaDialect(BertDialect):
    """A BERT with segments whose positions count from after the padding token."""

    model_types = ("roberta",)
    architectures = _list_classes("Roberta")
    base = "roberta."
    mlm_inner, mlm_norm = "lm_head.dense", "lm_head.layer_norm"
    mlm_output, mlm_bias = "lm_head.decoder", "lm_head.bias"
    class_inner, class_output = "classifier.dense", "classifier.out_proj"

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        fields = super().parse_fields(hf_config)
        padding_id = parse_integer("pad_token_id", get_field(hf_config, "pad_token_id", 1))
        length = parse_integer("length", fields["length"]) - padding_id - 1
        return fields | {"length": length, "padding_id": padding_id, "offset": padding_id + 1}

    def get_mlm_activation(self, activation: JSONValue) -> JSONValue:
        return "gelu"  # even if the blocks use another activation

    def fits(self, config: BERTConfig) -> bool:
        is_offset = config.padding_id is not None and config.offset == config.padding_id + 1
        return _EncoderDialect.fits(self, config) and config.segments > 0 and is_offset

    def to_hf_config(self, config: BERTConfig) -> JSONObject:
        positions = config.offset + config.length
        return super().to_hf_config(config) | {"max_position_embeddings": positions, "pad_token_id": config.padding_id}


class DistilBertDialect(_EncoderDialect):
    """A BERT without segments, with different parameter names."""

    model_types = ("distilbert",)
    architectures = _list_classes("DistilBert")
    class_activation = "relu"
    # sinusoidal_pos_embds is ignored: it only decides how positions were initialised, and the file stores them
    fields = (
        Field("vocab_size", "vocabulary"),
        Field("max_position_embeddings", "length", 512),
        Field("dim", "width"),
        Field("n_layers", "layers"),
        Field("n_heads", "heads"),
        Field("hidden_dim", "hidden"),
        activation_field("activation", "gelu"),
        Field("tie_word_embeddings", "tied", True),
    )

    def parse_fields(self, hf_config: JSONObject) -> JSONObject:
        return super().parse_fields(hf_config) | {"segments": 0, "epsilon": DISTILBERT_EPSILON}

    def fits(self, config: BERTConfig) -> bool:
        has_positions = config.offset == 0 and config.padding_id is None
        return super().fits(config) and has_positions and not config.segments and config.epsilon == DISTILBERT_EPSILON

    def build_name_table(self, config: BERTConfig) -> NameTable:
        layer = "distilbert.transformer.layer.{}."
        projections = [f"{layer}attention.{name}_lin" for name in "qkv"]
        rules: dict[str, str | Rule] = {
            "embedding": "distilbert.embeddings.word_embeddings",
            "positions.table": "distilbert.embeddings.position_embeddings",
            "norm": "distilbert.embeddings.LayerNorm",
            "blocks.{}.attention.projection.joined": Rule(projections, (config.width,) * 3),
            "blocks.{}.attention.output": f"{layer}attention.out_lin",
            "blocks.{}.attention_norm": f"{layer}sa_layer_norm",
            "blocks.{}.feedforward.inner": f"{layer}ffn.lin1",
            "blocks.{}.feedforward.outer": f"{layer}ffn.lin2",
            "blocks.{}.feedforward_norm": f"{layer}output_layer_norm",
            "head.inner": "pre_classifier" if config.head == "classes" else "vocab_transform",
            "head.norm": "vocab_layer_norm",
            "head.output": "classifier" if config.head == "classes" else "vocab_projector",
            "head.bias": "vocab_projector.bias",
        }
        ignored = ["distilbert.embeddings.position_ids", *(["vocab_projector.weight"] if config.tied else [])]
        return NameTable(rules, ignored, base="distilbert.")


class GammaBetaTable(NameTable):
    """A name table that also reads files converted from the first BERT, where a norm has "gamma" and "beta"."""

    def _find_stored_names(self, stored_names: Iterable[str]) -> Mapping[str, str]:
        ends = {"gamma": "weight", "beta": "bias"}
        renamed = {}
        for name, stored in super()._find_stored_names(stored_names).items():
            path, dot, end = name.rpartition(".")
            renamed[path + dot + ends.get(end, end)] = stored
        return renamed
