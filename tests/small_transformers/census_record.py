"""Run one small model plain and under the lens, and record whether the outputs and weights agree."""

from __future__ import annotations

import inspect
import re
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import jumok
from jumok.errors import ArgumentError
from jumok.lens.huggingface.router import EDITABLE, Support

from .hook_checks import DIFFERENT, check_edits, find_repeated_sites
from .model_classes import ModelClass
from .model_inputs import Inputs, NoInputsError, find_inputs
from .outputs import Difference, compare_outputs, contains_nan
from .small_model import build_small_model

LENGTHS = (7, 11)
BOUND = 1e-5  # in float32, in proportion to the largest output
WEIGHTS_BOUND = 1e-4
MEDIA = frozenset({"pixel_values", "pixel_values_videos", "input_features", "input_values"})


@dataclass(frozen=True)
class Record:
    """What the census says about one class.

    Attributes:
        model_type: The model type.
        name: The class.
        status: "editable" (outputs are equal, and the attentions go through ``attend()``), "maps only", "different",
            "crash", "refused", "no attention" or "not built".
        reason: Why, where the status is not "editable".
        difference: The largest difference of an output, in proportion to its largest number.
        attentions: How many attentions the lens recorded.
        eager_equal: How many weight tables of eager attention equal those of a recorded attention.
        eager_tables: How many weight tables eager attention returned.
        edits: What came of each edit that was compared with hooks: "equal", "refused" or
            "unchecked".
        inputs: The inputs that the model was run with.
        untested: Images and sounds that the model can read, if it was run without any of them.
        parameters: The number of parameters of the small model.
        seconds: How long this took.
    """

    model_type: str
    name: str
    status: str
    reason: str = ""
    difference: float | None = None
    attentions: int = 0
    eager_equal: int = 0
    eager_tables: int = 0
    edits: dict[str, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    parameters: int = 0
    seconds: float = 0.0


def examine_class(model_class: ModelClass) -> Record:
    """Build a small model of a class, run it plain and under the lens, and compare.

    Args:
        model_class: The class.
    """
    start = time.perf_counter()
    fields = _examine(model_class)
    seconds = round(time.perf_counter() - start, 2)
    return Record(model_class.model_type, model_class.name, seconds=seconds, **fields)


def _examine(model_class: ModelClass) -> dict[str, Any]:
    """Return the fields of the record."""
    try:
        model = build_small_model(model_class)
        runs = [find_inputs(model, length) for length in LENGTHS]
        expected = [_run_plain(model, inputs) for inputs in runs]
    except NoInputsError as error:
        return {"status": "not built", "reason": f"no inputs: {_shorten(error)}"}
    except Exception as error:
        return {"status": "not built", "reason": f"{type(error).__name__}: {_shorten(error)}"}
    facts = {
        "inputs": tuple(runs[0]),
        "untested": list_untested_media(model, runs[0]),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    if any(contains_nan(output) for output in expected):
        return facts | {"status": "not built", "reason": "the plain output contains NaN"}
    try:
        return facts | _compare_with_lens(model, runs, expected)
    except ArgumentError as error:
        return facts | _explain_refusal(model, str(error))
    except Exception as error:
        return facts | {"status": "crash", "reason": f"{type(error).__name__}: {_shorten(error)}"}


def list_untested_media(model: Any, inputs: Inputs) -> tuple[str, ...]:
    """List the images and sounds in the signature of a model that was run without any of them.

    Args:
        model: A model of transformers.
        inputs: The inputs that it was run with.
    """
    readable = MEDIA & inspect.signature(model.forward).parameters.keys()
    return () if readable & inputs.keys() else tuple(sorted(readable))


def _run_plain(model: Any, inputs: Inputs) -> Any:
    """Run the model; some models draw random numbers, so each forward pass starts with the same seed."""
    torch.manual_seed(0)
    with torch.no_grad():
        return model(**inputs)


def _run_lens(model: Any, inputs: Inputs) -> tuple[jumok.Capture, Support]:
    """Run the model under the lens; return the capture and what the lens found out about the model."""
    with jumok.Lens(model) as lens:
        torch.manual_seed(0)
        capture = lens.run(**inputs, logits=True)
        assert lens.support is not None
        return capture, lens.support


def _compare_with_lens(model: Any, runs: list[Inputs], expected: list[Any]) -> dict[str, Any]:
    """Compare the outputs under the lens with the plain ones, and the weights with those of eager attention."""
    captures, supports = zip(*(_run_lens(model, inputs) for inputs in runs), strict=True)
    sites = captures[0].sites.names
    repeated, edits = [], {}
    is_editable = all(support.level == EDITABLE for support in supports)
    if is_editable:
        repeated = find_repeated_sites(model, runs[0], sites, _run_plain)
        edits = check_edits(model, runs[0], _get_token_mask(runs[0]), _run_plain)
    equal, total = _compare_eager_weights(model, runs[0], captures[0])
    fields: dict[str, Any] = {
        "attentions": len(sites), "eager_equal": equal, "eager_tables": total, "edits": edits,
    }  # fmt: skip
    if not is_editable:
        reason = next(support.reason for support in supports if support.level != EDITABLE)
        return fields | {"status": "maps only" if equal == total else "different", "reason": _shorten(reason)}
    worst = _find_worst(runs, expected, [capture.output for capture in captures])
    fields["difference"] = worst.size
    different = [edit for edit, word in edits.items() if word == DIFFERENT]
    if worst.size > BOUND:
        return fields | {"status": "different", "reason": f"{worst.name} by {worst.size:.1e}"}
    if repeated:
        return fields | {"status": "different", "reason": f"recorded twice: {', '.join(repeated)[:150]}"}
    if different:
        return fields | {"status": "different", "reason": f"{', '.join(different)} is not what hooks do"}
    return fields | {"status": "editable", "reason": supports[0].reason}


def _find_worst(runs: list[Inputs], expected: list[Any], outputs: list[Any]) -> Difference:
    """Return the largest difference of all runs."""
    differences = [
        compare_outputs(plain, output, _get_token_mask(inputs))
        for inputs, plain, output in zip(runs, expected, outputs, strict=True)
    ]
    return max(differences, key=lambda difference: difference.size)


def _get_token_mask(inputs: Inputs) -> Tensor | None:
    mask = inputs.get("attention_mask")
    return mask.bool() if isinstance(mask, Tensor) else None


def _compare_eager_weights(model: Any, inputs: Inputs, capture: jumok.Capture) -> tuple[int, int]:
    """Count the weight tables of eager attention, and those that equal recorded weights; the model stays eager."""
    try:
        model.set_attn_implementation("eager")
        torch.manual_seed(0)
        with torch.no_grad():
            output = model(**inputs, output_attentions=True)
    except Exception:  # many models return no weights
        return 0, 0
    tables = list(_list_tables(output))
    weights = [capture.weights(site) for site in capture.sites.names]
    equal = sum(any(_is_close(table[0], candidate) for candidate in weights) for table in tables)
    return equal, len(tables)


def _list_tables(output: Any) -> list[Tensor]:
    """List the weight tables ``[batch, head, query, key]`` in a model's output."""
    if not hasattr(output, "items"):
        return []
    fields = [part for name, part in output.items() if "attentions" in name and isinstance(part, tuple | list)]
    return [table for field in fields for table in field if isinstance(table, Tensor) and table.dim() == 4]


def _is_close(table: Tensor, weights: Tensor) -> bool:
    return table.shape == weights.shape and float((table - weights).abs().max()) <= WEIGHTS_BOUND


def _explain_refusal(model: Any, message: str) -> dict[str, Any]:
    """Distinguish models without attention from other refusals."""
    has_attention = any(re.search("Att(entio)?n|MultiHead", type(module).__name__) for module in model.modules())
    if "no attention was found" in message and not has_attention:
        return {"status": "no attention", "reason": ""}
    return {"status": "refused", "reason": _shorten(message)}


def _shorten(error: object) -> str:
    """Return the first 200 characters of a message, on one line."""
    return " ".join(str(error).split())[:200]
