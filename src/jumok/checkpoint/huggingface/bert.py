"""BERT and RoBERTa, with a head for masked tokens or classes, or without. A pooler that no head reads is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jumok.checkpoint.name_table import Rule, Table, joined, same
from jumok.errors import CheckpointError
from jumok.models import Model
from jumok.models.bert import BERT, BERTConfig

from . import Reading, refuse_unless, take
from .vit import classes_of

MODEL_TYPES = ("bert", "roberta")
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
ANSWERS = {
    "single_label_classification": "one",
    "multi_label_classification": "several",
    "regression": "number",
}


def reading(theirs: dict[str, Any]) -> Reading:
    refuse_unless(theirs, is_decoder=False, add_cross_attention=False, position_embedding_type="absolute")
    roberta = theirs["model_type"] == "roberta"
    padding_id = _whole(theirs, "pad_token_id", 1) if roberta else None
    offset = 0 if padding_id is None else padding_id + 1
    activation = ours(take(theirs, "hidden_act", "gelu"))
    # RoBERTa's head for masked tokens has its own, whatever the blocks'
    activations = {"mlm": "gelu" if roberta else activation, "classes": "tanh"}
    config = BERTConfig.from_json(
        {
            "vocabulary": take(theirs, "vocab_size"),
            "length": _whole(theirs, "max_position_embeddings", 512) - offset,
            "width": take(theirs, "hidden_size"),
            "layers": take(theirs, "num_hidden_layers"),
            "heads": take(theirs, "num_attention_heads"),
            "hidden": take(theirs, "intermediate_size"),
            "segments": _whole(theirs, "type_vocab_size", 2),
            "offset": offset,
            "padding_id": padding_id,
            "epsilon": take(theirs, "layer_norm_eps", 1e-12),
            "activation": activation,
            **head(theirs, activations),
            "tied": take(theirs, "tie_word_embeddings", True),
        }
    )
    return Reading(BERT, config, table(config))


def _whole(theirs: dict[str, Any], name: str, default: int) -> int:
    found = take(theirs, name, default)
    if not isinstance(found, int):
        raise CheckpointError(f"{name} in config.json must be a whole number, not {str(found)[:40]!r}")
    return found


def ours(activation: object) -> object:
    """Our name of an activation; an unknown one stays, and the config refuses it."""
    return ACTIVATIONS.get(activation, activation) if isinstance(activation, str) else activation


def theirs(activation: str) -> str:
    return {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}[activation]


def head(theirs: dict[str, Any], activations: Mapping[str, object]) -> dict[str, Any]:
    """The fields of the head that the folder's architecture says it has. activations: of each head there may be."""
    named = theirs.get("architectures")
    architectures = [str(one) for one in named] if isinstance(named, list) else []
    if any(one.endswith("ForSequenceClassification") for one in architectures):
        classes = classes_of(theirs)
        told = theirs.get("problem_type")
        # as transformers' pipeline has it: one class alone is a share by itself
        told = told or ("multi_label_classification" if classes == 1 else "single_label_classification")
        if not isinstance(told, str) or told not in ANSWERS:
            raise CheckpointError(f"config.json has problem_type = {str(told)[:80]!r}; known are {', '.join(ANSWERS)}")
        return {
            "head": "classes", "head_activation": activations["classes"], "classes": classes, "answer": ANSWERS[told],
        }  # fmt: skip
    if any(one.endswith(("ForMaskedLM", "ForPreTraining")) for one in architectures):
        return {"head": "mlm", "head_activation": activations["mlm"]}
    return {}


def head_json(config: BERTConfig, named: str) -> dict[str, Any]:
    """What their config says of our head."""
    architectures = {"none": "Model", "mlm": "ForMaskedLM", "classes": "ForSequenceClassification"}
    told: dict[str, Any] = {"architectures": [named + architectures[config.head]]}
    if config.head == "classes":
        told["num_labels"] = config.classes
        told["problem_type"] = next(theirs for theirs, ours in ANSWERS.items() if ours == config.answer)
    return told


class _Table(Table):
    """Files converted from the first BERT's still call a norm's weight and bias gamma and beta."""

    def _full(self, names: Iterable[str]) -> Mapping[str, str]:
        ends = {"gamma": "weight", "beta": "bias"}
        full = {}
        for name, stored in super()._full(names).items():
            path, dot, end = name.rpartition(".")
            full[path + dot + ends.get(end, end)] = stored
        return full


def table(config: BERTConfig) -> Table:
    if config.padding_id is None:
        base, inner, norm = "bert.", "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"
        output, bias = "cls.predictions.decoder", "cls.predictions.bias"
        class_inner, class_output = "bert.pooler.dense", "classifier"
    else:
        base, inner, norm = "roberta.", "lm_head.dense", "lm_head.layer_norm"
        output, bias = "lm_head.decoder", "lm_head.bias"
        class_inner, class_output = "classifier.dense", "classifier.out_proj"
    layer = base + "encoder.layer.{}."
    maps = [f"{layer}attention.self.{name}" for name in ("query", "key", "value")]
    rules = [
        Rule("embedding.weight", (f"{base}embeddings.word_embeddings.weight",)),
        Rule("positions.table.weight", (f"{base}embeddings.position_embeddings.weight",)),
        Rule("segments.weight", (f"{base}embeddings.token_type_embeddings.weight",)),
        *same("norm", f"{base}embeddings.LayerNorm"),
        *joined("blocks.{}.attention.projection.joined", maps, (config.width,) * 3),
        *same("blocks.{}.attention.output", f"{layer}attention.output.dense"),
        *same("blocks.{}.attention_norm", f"{layer}attention.output.LayerNorm"),
        *same("blocks.{}.feedforward.inner", f"{layer}intermediate.dense"),
        *same("blocks.{}.feedforward.outer", f"{layer}output.dense"),
        *same("blocks.{}.feedforward_norm", f"{layer}output.LayerNorm"),
    ]
    if config.head == "classes":
        rules += [*same("head.inner", class_inner), *same("head.output", class_output)]
    else:
        rules += [
            *same("head.inner", inner),
            *same("head.norm", norm),
            Rule("head.output.weight", (f"{output}.weight",)),
            # the bias is stored once where the map is tied; else what is used is the map's own
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
    return _Table(rules, ignored, base=base)


def writes(model: Model) -> bool:
    config = model.config
    if not isinstance(config, BERTConfig) or not config.segments:
        return False
    if config.padding_id is None:
        activation, offset = config.activation, 0
    else:
        activation, offset = "gelu", config.padding_id + 1
    wanted = {"none": config.head_activation, "mlm": activation, "classes": "tanh"}[config.head]
    return config.offset == offset and config.head_activation == wanted


def config_json(model: Model) -> dict[str, Any]:
    config = model.config
    assert isinstance(config, BERTConfig)
    kind, named = ("bert", "Bert") if config.padding_id is None else ("roberta", "Roberta")
    return {
        "model_type": kind,
        **head_json(config, named),
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.offset + config.length,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "type_vocab_size": config.segments,
        "pad_token_id": config.padding_id or 0,
        "layer_norm_eps": config.epsilon,
        "hidden_act": theirs(config.activation),
        "tie_word_embeddings": config.tied,
    }
