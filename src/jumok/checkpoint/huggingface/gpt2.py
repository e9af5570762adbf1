"""Convert GPT-2. Its linear layers are stored as [in, out], with query, key and value in one layer."""

from __future__ import annotations

from jumok.checkpoint.name_table import NameTable, Rule, rename_layer
from jumok.fields import JSONObject
from jumok.models import GPT, Config, GPTConfig, Model

from .common import format_activation, get_field, parse_activation, refuse_unless

MODEL_TYPES: tuple[str, ...] = ("gpt2",)
MODEL_CLASS: type[Model] = GPT


def from_hf_config(hf_config: JSONObject) -> GPTConfig:
    """Convert a GPT-2 config to ours.

    Args:
        hf_config: The content of config.json; it may come from an untrusted file.
    """
    refuse_unless(hf_config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width = get_field(hf_config, "n_embd")
    return GPTConfig.from_json(
        {
            "vocabulary": get_field(hf_config, "vocab_size"),
            "length": get_field(hf_config, "n_positions"),
            "width": width,
            "layers": get_field(hf_config, "n_layer"),
            "heads": get_field(hf_config, "n_head"),
            "hidden": get_field(hf_config, "n_inner", 4 * width if isinstance(width, int) else width),
            "epsilon": get_field(hf_config, "layer_norm_epsilon", 1e-5),
            "activation": parse_activation(get_field(hf_config, "activation_function", "gelu_new")),
            "tied": get_field(hf_config, "tie_word_embeddings", True),
        }
    )


def can_express(config: Config) -> bool:
    """Return True for a GPT with learned positions, LayerNorm, biases and as many key/value heads as heads.

    Args:
        config: Our config, of any family.
    """
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


def to_hf_config(config: Config) -> JSONObject:
    """Convert our config to a GPT-2 config.

    Args:
        config: A config for which ``can_express`` is True.
    """
    assert isinstance(config, GPTConfig)
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
        "activation_function": format_activation(config.activation),
        "tie_word_embeddings": config.tied,
    }


def build_name_table(config: Config) -> NameTable:
    """Return the table of parameter names.

    Args:
        config: Our config, from ``from_hf_config`` or with ``can_express``.
    """
    assert isinstance(config, GPTConfig)
    rules = [
        Rule("embedding.weight", ("transformer.wte.weight",)),
        Rule("positions.table.weight", ("transformer.wpe.weight",)),
        *rename_layer("blocks.{}.attention_norm", "transformer.h.{}.ln_1"),
        *_transpose_layer("blocks.{}.attention.projection.joined", "transformer.h.{}.attn.c_attn"),
        *_transpose_layer("blocks.{}.attention.output", "transformer.h.{}.attn.c_proj"),
        *rename_layer("blocks.{}.feedforward_norm", "transformer.h.{}.ln_2"),
        *_transpose_layer("blocks.{}.feedforward.inner", "transformer.h.{}.mlp.c_fc"),
        *_transpose_layer("blocks.{}.feedforward.outer", "transformer.h.{}.mlp.c_proj"),
        *rename_layer("norm", "transformer.ln_f"),
        Rule("output.weight", ("lm_head.weight",)),
    ]
    # ignored: old files store the causal mask of every layer, and a tied output layer repeats the embedding
    ignored = [
        "transformer.h.{}.attn.bias",
        "transformer.h.{}.attn.masked_bias",
        *(["lm_head.weight"] if config.tied else []),
    ]
    return NameTable(rules, ignored, base="transformer.")


def _transpose_layer(parameter: str, tensor: str) -> list[Rule]:
    weight, bias = rename_layer(parameter, tensor)
    return [Rule(weight.parameter, weight.tensors, transposed=True), bias]
