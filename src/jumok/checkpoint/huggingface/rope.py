"""Rotary positions in their configs: rope_theta with rope_scaling, or since version 5 one rope_parameters.

What transformers computes for a kind decides here what it means; a kind that is not known is refused.
"""

from __future__ import annotations

import math
from typing import Any

from jumok.errors import CheckpointError
from jumok.models import GPTConfig

from . import take

KINDS = ("default", "linear", "llama3", "yarn", "dynamic")
LARGEST = 1e6  # no real factor is near it


def read(theirs: dict[str, Any]) -> dict[str, Any]:
    """The rotary fields of our config, and the length where the scaling says more about it than their config."""
    # both may be there: transformers then goes by the older one
    told = theirs.get("rope_scaling") or theirs.get("rope_parameters") or {}
    if not isinstance(told, dict):
        raise CheckpointError("rope_scaling or rope_parameters in config.json must be an object")
    if "full_attention" in told or "sliding_attention" in told:
        raise CheckpointError("config.json has rotary positions for each kind of layer; one for all is supported")
    for place in (theirs, told):
        part = place.get("partial_rotary_factor")
        if part is not None and part != 1:
            raise CheckpointError(
                f"config.json turns a part of each head, {str(part)[:40]}; only all of it is supported"
            )
    kind = told.get("rope_type", told.get("type", "default"))
    if kind not in KINDS:
        raise CheckpointError(
            f"config.json scales its rotary positions by {str(kind)[:40]!r}; known are {', '.join(KINDS)}"
        )
    base = _number(told if told.get("rope_theta") is not None else theirs, "rope_theta", 1.0, 1e30, 10_000.0)
    if kind == "default":
        return {"rotary_base": base}
    fields = {"rotary_base": base, "rotary_scaling": kind}
    if kind == "yarn":
        return fields | _yarn(theirs, told)
    fields["rotary_factor"] = _number(told, "factor", 1.0, LARGEST)
    if kind == "llama3":
        fields["rotary_length"] = _trained_length(theirs, told)
        fields["rotary_slow"] = _number(told, "low_freq_factor", 1e-6, LARGEST)
        fields["rotary_fast"] = _number(told, "high_freq_factor", 1e-6, LARGEST)
    return fields


def _yarn(theirs: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    if told.get("truncate", True) is not True:
        raise CheckpointError("config.json has yarn with truncate = false; only true is supported")
    trained = _trained_length(theirs, told)
    length = _number(theirs, "max_position_embeddings", 1.0, 2.0**31, 2048.0)
    factor = _number(told, "factor", 1.0, LARGEST, length / trained)
    # given, or from the factor as the paper has it, or from two of DeepSeek's
    gain = _number(told, "attention_factor", 1e-6, LARGEST, _sharper(factor))
    if told.get("attention_factor") is None and told.get("mscale") and told.get("mscale_all_dim"):
        one, all_of_it = (_number(told, name, 1e-6, LARGEST) for name in ("mscale", "mscale_all_dim"))
        gain = _sharper(factor, one) / _sharper(factor, all_of_it)
    return {
        "rotary_factor": factor,
        "rotary_length": trained,
        "rotary_fast": _number(told, "beta_fast", 0.0, LARGEST, 32.0) or 32.0,
        "rotary_slow": _number(told, "beta_slow", 0.0, LARGEST, 1.0) or 1.0,
        "rotary_gain": gain,
        # Qwen2's configs still say the length before the scaling
        "length": max(int(length), round(factor * trained)),
    }


def _sharper(factor: float, by: float = 1.0) -> float:
    return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0


def _trained_length(theirs: dict[str, Any], told: dict[str, Any]) -> int:
    """How long texts were before the scaling. Some configs say it beside the scaling, and that then counts."""
    name = "original_max_position_embeddings"
    for place, field in ((theirs, name), (told, name), (theirs, "max_position_embeddings")):
        if place.get(field) is not None:
            found = place[field]
            if type(found) is not int or not 1 <= found <= 2**31:
                raise CheckpointError(f"{field} in config.json must be a whole number from 1 on, not {str(found)[:40]}")
            return found
    return 2048


def _number(told: dict[str, Any], name: str, least: float, most: float, default: float | None = None) -> float:
    found = take(told, name) if default is None else take(told, name, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
        raise CheckpointError(
            f"{name} in config.json must be a number from {least:g} to {most:g}, not {str(found)[:40]!r}"
        )
    return float(found)


def write(config: GPTConfig) -> dict[str, Any]:
    """Both fields: the newer for transformers from version 5 on, the older for everything else."""
    kind = "default" if config.rotary_scaling == "none" else config.rotary_scaling
    scaling: dict[str, Any] = {"rope_type": kind}
    if kind != "default":
        scaling["factor"] = config.rotary_factor
    if kind in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = config.rotary_length or config.length
        slow, fast = ("low_freq_factor", "high_freq_factor") if kind == "llama3" else ("beta_slow", "beta_fast")
        scaling |= {slow: config.rotary_slow, fast: config.rotary_fast}
    if kind == "yarn":
        scaling["attention_factor"] = config.rotary_gain
    told: dict[str, Any] = {
        "rope_theta": config.rotary_base,
        "rope_parameters": {**scaling, "rope_theta": config.rotary_base},
    }
    if kind != "default":
        told["rope_scaling"] = scaling
    return told
