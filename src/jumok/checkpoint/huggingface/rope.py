"""Convert the rotary position fields: rope_theta and rope_scaling, or rope_parameters since transformers 5.

Each scaling type is computed as transformers computes it; an unknown type is an error.
"""

from __future__ import annotations

import math

from jumok.errors import CheckpointError
from jumok.fields import JSONObject
from jumok.models import GPTConfig

from .dialect import get_field

ROPE_TYPES = ("default", "linear", "llama3", "yarn", "dynamic")
MAX_FACTOR = 1e6  # far above any published factor; a larger one means a damaged file


def parse_rotary(hf_config: JSONObject) -> JSONObject:
    """Return the rotary fields of our config, and "length" if the scaling determines it."""
    # if a config has both, transformers reads the older one
    rope = hf_config.get("rope_scaling") or hf_config.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise CheckpointError("rope_scaling or rope_parameters in config.json must be an object")
    if "full_attention" in rope or "sliding_attention" in rope:
        raise CheckpointError(
            "config.json sets rotary positions per layer type; only one setting for all layers is supported"
        )
    for level in (hf_config, rope):
        share = level.get("partial_rotary_factor")
        if share is not None and share != 1:
            raise CheckpointError(f"config.json has partial_rotary_factor = {str(share)[:40]}; only 1 is supported")
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type not in ROPE_TYPES:
        raise CheckpointError(f"config.json has rope_type {str(rope_type)[:40]!r}; supported: {', '.join(ROPE_TYPES)}")

    base = _get_number(rope if rope.get("rope_theta") is not None else hf_config, "rope_theta", 1.0, 1e30, 10_000.0)
    if rope_type == "default":
        return {"rotary_base": base}
    fields: JSONObject = {"rotary_base": base, "rotary_scaling": rope_type}
    if rope_type == "yarn":
        return fields | _parse_yarn(hf_config, rope)
    fields["rotary_factor"] = _get_number(rope, "factor", 1.0, MAX_FACTOR)
    if rope_type == "llama3":
        fields["rotary_length"] = _parse_trained_length(hf_config, rope)
        fields["rotary_slow"] = _get_number(rope, "low_freq_factor", 1e-6, MAX_FACTOR)
        fields["rotary_fast"] = _get_number(rope, "high_freq_factor", 1e-6, MAX_FACTOR)
    return fields


def _parse_yarn(hf_config: JSONObject, rope: JSONObject) -> JSONObject:
    if rope.get("truncate", True) is not True:
        raise CheckpointError("config.json has yarn with truncate = false; only true is supported")
    trained = _parse_trained_length(hf_config, rope)
    length = _get_number(hf_config, "max_position_embeddings", 1.0, 2.0**31, 2048.0)
    factor = _get_number(rope, "factor", 1.0, MAX_FACTOR, length / trained)

    # the attention factor is stored, or computed from DeepSeek's two multipliers, or from the factor as in the paper
    gain = _get_number(rope, "attention_factor", 1e-6, MAX_FACTOR, _compute_gain(factor))
    if rope.get("attention_factor") is None and rope.get("mscale") and rope.get("mscale_all_dim"):
        multiplier = _get_number(rope, "mscale", 1e-6, MAX_FACTOR)
        divisor = _get_number(rope, "mscale_all_dim", 1e-6, MAX_FACTOR)
        gain = _compute_gain(factor, multiplier) / _compute_gain(factor, divisor)
    return {
        "rotary_factor": factor,
        "rotary_length": trained,
        "rotary_fast": _get_number(rope, "beta_fast", 0.0, MAX_FACTOR, 32.0) or 32.0,
        "rotary_slow": _get_number(rope, "beta_slow", 0.0, MAX_FACTOR, 1.0) or 1.0,
        "rotary_gain": gain,
        # Qwen2's configs store the context length before the scaling
        "length": max(int(length), round(factor * trained)),
    }


def _compute_gain(factor: float, multiplier: float = 1.0) -> float:
    return 0.1 * multiplier * math.log(factor) + 1.0 if factor > 1 else 1.0


def _parse_trained_length(hf_config: JSONObject, rope: JSONObject) -> int:
    """Return the context length before the scaling; a top-level field takes precedence over one inside rope_scaling."""
    name = "original_max_position_embeddings"
    for level, field in ((hf_config, name), (rope, name), (hf_config, "max_position_embeddings")):
        length = level.get(field)
        if length is None:
            continue
        if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= 2**31:
            raise CheckpointError(f"{field} in config.json must be an integer of at least 1, not {str(length)[:40]}")
        return length
    return 2048


def _get_number(values: JSONObject, name: str, least: float, most: float, default: float | None = None) -> float:
    number = get_field(values, name) if default is None else get_field(values, name, default)
    if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number <= most:
        raise CheckpointError(
            f"{name} in config.json must be a number from {least:g} to {most:g}, not {str(number)[:40]!r}"
        )
    return float(number)


def build_rotary_fields(config: GPTConfig) -> JSONObject:
    """Return Hugging Face's rotary fields: rope_parameters for version 5 and later, the older ones for all others."""
    rope_type = "default" if config.rotary_scaling == "none" else config.rotary_scaling
    scaling: JSONObject = {"rope_type": rope_type}
    if rope_type != "default":
        scaling["factor"] = config.rotary_factor
    if rope_type in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = config.rotary_length or config.length
        slow, fast = ("low_freq_factor", "high_freq_factor") if rope_type == "llama3" else ("beta_slow", "beta_fast")
        scaling |= {slow: config.rotary_slow, fast: config.rotary_fast}
    if rope_type == "yarn":
        scaling["attention_factor"] = config.rotary_gain

    fields: JSONObject = {
        "rope_theta": config.rotary_base,
        "rope_parameters": {**scaling, "rope_theta": config.rotary_base},
    }
    if rope_type != "default":
        fields["rope_scaling"] = scaling
    return fields
