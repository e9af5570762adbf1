"""GPT-2. Its maps are stored [in, out], query, key and value already in one."""

from __future__ import annotations

from typing import Any

from jumok.checkpoint.name_table import Rule, Table, same
from jumok.models import GPT, GPTConfig, Model

from . import Reading, refuse_unless, take

MODEL_TYPES = ("gpt2",)
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
}


def reading(theirs: dict[str, Any]) -> Reading:
    refuse_unless(theirs, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    activation = take(theirs, "activation_function", "gelu_new")
    width = take(theirs, "n_embd")
    config = GPTConfig.from_json(
        {
            "vocabulary": take(theirs, "vocab_size"),
            "length": take(theirs, "n_positions"),
            "width": width,
            "layers": take(theirs, "n_layer"),
            "heads": take(theirs, "n_head"),
            "hidden": take(theirs, "n_inner", 4 * width if isinstance(width, int) else width),
            "epsilon": take(theirs, "layer_norm_epsilon", 1e-5),
            "activation": ACTIVATIONS.get(activation, activation),
            "tied": take(theirs, "tie_word_embeddings", True),
        }
    )
    return Reading(GPT, config, table(config))


def table(config: GPTConfig) -> Table:
    def turned(ours: str, theirs: str) -> list[Rule]:
        weight, bias = same(ours, theirs)
        return [Rule(weight.ours, weight.theirs, transposed=True), bias]

    rules = [
        Rule("embedding.weight", ("transformer.wte.weight",)),
        Rule("positions.table.weight", ("transformer.wpe.weight",)),
        *same("blocks.{}.attention_norm", "transformer.h.{}.ln_1"),
        *turned("blocks.{}.attention.projection.joined", "transformer.h.{}.attn.c_attn"),
        *turned("blocks.{}.attention.output", "transformer.h.{}.attn.c_proj"),
        *same("blocks.{}.feedforward_norm", "transformer.h.{}.ln_2"),
        *turned("blocks.{}.feedforward.inner", "transformer.h.{}.mlp.c_fc"),
        *turned("blocks.{}.feedforward.outer", "transformer.h.{}.mlp.c_proj"),
        *same("norm", "transformer.ln_f"),
        Rule("output.weight", ("lm_head.weight",)),
    ]
    # old files hold the causal triangle of every layer; a tied output map is the embedding once more
    ignored = [
        "transformer.h.{}.attn.bias",
        "transformer.h.{}.attn.masked_bias",
        *(["lm_head.weight"] if config.tied else []),
    ]
    return Table(rules, ignored, base="transformer.")


def writes(model: Model) -> bool:
    config = model.config
    return isinstance(config, GPTConfig) and (
        config.positions == "learned"
        and config.norm == "layer"
        and config.feedforward == "plain"
        and config.attention_bias
        and config.output_bias
        and config.feedforward_bias
        and config.window is None
        and config.groups in (None, config.heads)
        and config.head_width in (None, config.width // config.heads)
    )


def config_json(model: Model) -> dict[str, Any]:
    config = model.config
    assert isinstance(config, GPTConfig)
    back = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocabulary,
        "n_positions": config.length,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.hidden,
        "layer_norm_epsilon": config.epsilon,
        "activation_function": back[config.activation],
        "tie_word_embeddings": config.tied,
        "bos_token_id": None,  # theirs by default is GPT-2's own, which a smaller vocabulary does not have
        "eos_token_id": None,
    }
