"""Convert BERT and RoBERTa, without a head or with one for masked tokens or classes. Unused poolers are ignored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jumok.checkpoint.name_table import NameTable, Rule, concatenate_layers, rename_layer
from jumok.errors import CheckpointError
from jumok.fields import JSONObject, JSONValue
from jumok.models import Config, Model
from jumok.models.bert import BERT, BERTConfig

from .common import (
    format_activation,
    get_field,
    get_integer_field,
    parse_activation,
    parse_architectures,
    parse_class_count,
    refuse_unless,
)

MODEL_TYPES: tuple[str, ...] = ("bert", "roberta")
MODEL_CLASS: type[Model] = BERT

# problem_type in config.json -> our field "answer"
ANSWERS = {
    "single_label_classification": "one",
    "multi_label_classification": "several",
    "regression": "number",
}
ARCHITECTURE_ENDS = {"none": "Model", "mlm": "ForMaskedLM", "classes": "ForSequenceClassification"}


def from_hf_config(hf_config: JSONObject) -> BERTConfig:
    """Convert a BERT or RoBERTa config to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    refuse_unless(hf_config, is_decoder=False, add_cross_attention=False, position_embedding_type="absolute")
    roberta = hf_config["model_type"] == "roberta"
    padding_id = get_integer_field(hf_config, "pad_token_id", 1) if roberta else None
    offset = 0 if padding_id is None else padding_id + 1
    activation = parse_activation(get_field(hf_config, "hidden_act", "gelu"))
    # RoBERTa's masked-language-model head always uses gelu, even if the blocks use another activation
    head = parse_head_fields(hf_config, mlm_activation="gelu" if roberta else activation, class_activation="tanh")
    return BERTConfig.from_json(
        {
            "vocabulary": get_field(hf_config, "vocab_size"),
            "length": get_integer_field(hf_config, "max_position_embeddings", 512) - offset,
            "width": get_field(hf_config, "hidden_size"),
            "layers": get_field(hf_config, "num_hidden_layers"),
            "heads": get_field(hf_config, "num_attention_heads"),
            "hidden": get_field(hf_config, "intermediate_size"),
            "segments": get_integer_field(hf_config, "type_vocab_size", 2),
            "offset": offset,
            "padding_id": padding_id,
            "epsilon": get_field(hf_config, "layer_norm_eps", 1e-12),
            "activation": activation,
            **head,
            "tied": get_field(hf_config, "tie_word_embeddings", True),
        }
    )


def parse_head_fields(hf_config: JSONObject, mlm_activation: JSONValue, class_activation: str) -> JSONObject:
    """Return our config fields for the head that the folder's architecture has.

    Args:
        mlm_activation: The activation of a masked-language-model head.
    """
    architectures = parse_architectures(hf_config)
    if any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in architectures):
        head: JSONObject = {"head": "mlm", "head_activation": mlm_activation}
    else:
        head = {}
    if not any(name.endswith("ForSequenceClassification") for name in architectures):
        return head

    classes = parse_class_count(hf_config)
    # as in transformers' pipeline: a single class gets a sigmoid, not a softmax
    default = "multi_label_classification" if classes == 1 else "single_label_classification"
    problem = hf_config.get("problem_type") or default
    if not isinstance(problem, str) or problem not in ANSWERS:
        raise CheckpointError(f"config.json has problem_type = {str(problem)[:80]!r}; supported: {', '.join(ANSWERS)}")
    return {"head": "classes", "head_activation": class_activation, "classes": classes, "answer": ANSWERS[problem]}


def build_head_fields(config: BERTConfig, name: str) -> JSONObject:
    """Return Hugging Face's config fields for our head.

    Args:
        name: The prefix of the architecture's name, such as "Bert".
    """
    fields: JSONObject = {"architectures": [name + ARCHITECTURE_ENDS[config.head]]}
    if config.head == "classes":
        fields["num_labels"] = config.classes
        fields["problem_type"] = next(problem for problem, answer in ANSWERS.items() if answer == config.answer)
    return fields


def has_published_blocks(config: BERTConfig) -> bool:
    """Return whether attentions have biases and the embeddings a norm, as in every published BERT."""
    return config.attention_bias and not config.final_norm


def can_express(config: Config) -> bool:
    """Return True for a BERT with segments whose positions and head activation BERT or RoBERTa has.

    Args:
        config: Our config, of any family.
    """
    if not isinstance(config, BERTConfig) or not config.segments or not has_published_blocks(config):
        return False
    if config.padding_id is None:
        activation, offset = config.activation, 0
    else:
        activation, offset = "gelu", config.padding_id + 1
    expected = {"none": config.head_activation, "mlm": activation, "classes": "tanh"}[config.head]
    return config.offset == offset and config.head_activation == expected


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to a BERT or RoBERTa config.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, BERTConfig)
    model_type, name = ("bert", "Bert") if config.padding_id is None else ("roberta", "Roberta")
    return {
        "model_type": model_type,
        **build_head_fields(config, name),
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.offset + config.length,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "type_vocab_size": config.segments,
        "pad_token_id": config.padding_id or 0,
        "layer_norm_eps": config.epsilon,
        "hidden_act": format_activation(config.activation),
        "tie_word_embeddings": config.tied,
    }


class GammaBetaTable(NameTable):
    """A name table that also reads files converted from the first BERT, where a norm has "gamma" and "beta"."""

    def _find_stored_names(self, stored_names: Iterable[str]) -> Mapping[str, str]:
        ends = {"gamma": "weight", "beta": "bias"}
        renamed = {}
        for name, stored in super()._find_stored_names(stored_names).items():
            path, dot, end = name.rpartition(".")
            renamed[path + dot + ends.get(end, end)] = stored
        return renamed


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, BERTConfig)
    if config.padding_id is None:
        base, inner, norm = "bert.", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"
        output, bias = "cls.predictions.decoder", "cls.predictions.bias"
        class_inner, class_output = "bert.pooler.dense", "classifier"
    else:
        base, inner, norm = "roberta.", "lm_head.dense", "lm_head.layer_norm"
        output, bias = "lm_head.decoder", "lm_head.bias"
        class_inner, class_output = "classifier.dense", "classifier.out_proj"
    layer = base + "encoder.layer.{}."
    projections = [f"{layer}attention.self.{name}" for name in ("query", "key", "value")]
    rules = [
        Rule("embedding.weight", (f"{base}embeddings.word_embeddings.weight",)),
        Rule("positions.table.weight", (f"{base}embeddings.position_embeddings.weight",)),
        Rule("segments.weight", (f"{base}embeddings.token_type_embeddings.weight",)),
        *rename_layer("norm", f"{base}embeddings.LayerNorm"),
        *concatenate_layers("blocks.{}.attention.projection.joined", projections, (config.width,) * 3),
        *rename_layer("blocks.{}.attention.output", f"{layer}attention.output.dense"),
        *rename_layer("blocks.{}.attention_norm", f"{layer}attention.output.LayerNorm"),
        *rename_layer("blocks.{}.feedforward.inner", f"{layer}intermediate.dense"),
        *rename_layer("blocks.{}.feedforward.outer", f"{layer}output.dense"),
        *rename_layer("blocks.{}.feedforward_norm", f"{layer}output.LayerNorm"),
    ]
    if config.head == "classes":
        rules += [*rename_layer("head.inner", class_inner), *rename_layer("head.output", class_output)]
    else:
        rules += [
            *rename_layer("head.inner", inner),
            *rename_layer("head.norm", norm),
            Rule("head.output.weight", (f"{output}.weight",)),
            # a tied output layer stores its bias separately; otherwise the layer's own bias is used
            Rule("head.bias", (bias if config.tied else f"{output}.bias",)),
        ]
    ignored = [
        f"{base}embeddings.position_ids",
        f"{base}pooler.dense.weight",
        f"{base}pooler.dense.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
        *([f"{output}.weight", f"{output}.bias"] if config.tied else [bias]),
    ]
    return GammaBetaTable(rules, ignored, base=base)
