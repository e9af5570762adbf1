"""Run a person's Python file: the process that checks an exercise starts this module.

The request is read from standard input and the result is written to standard output, both as JSON. What the file
itself prints goes to standard error. This module imports torch and nothing of the package.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

PARAMETER_SCALE = 0.7  # large enough that every part of a probed model changes its logits


def main() -> None:
    """Read a request, run the file, and write the result or one sentence about the error."""
    request = json.load(sys.stdin)
    results = os.dup(1)
    os.dup2(2, 1)  # print() of the file must not mix with the results
    path = Path(request["file"])
    sys.path.insert(0, str(path.parent))  # as Python does for a script
    try:
        outcome = ANSWERS[request["kind"]](runpy.run_path(str(path)), request)
    except (Exception, SystemExit) as error:
        outcome = _describe_error(error, path)
    with os.fdopen(results, "w", encoding="utf-8") as stream:
        json.dump(outcome, stream)


def call_function(namespace: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Call one function of the file on each list of arguments."""
    function = namespace.get(request["function"])
    if not callable(function):
        return _describe_missing(f"{request['function']}()")
    return {"results": [_flatten(function(*map(_decode, arguments))) for arguments in request["calls"]]}


def probe_model(namespace: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Build the class ``GPT`` of the file with known parameters; return these and what the model computes."""
    for name in ("GPT", *request["functions"]):
        if not callable(namespace.get(name)):
            return _describe_missing(name if name == "GPT" else f"{name}()")
    model, tokens = namespace["GPT"](**request["sizes"]), torch.tensor(request["tokens"])
    if not isinstance(model, torch.nn.Module):
        return _describe_missing("class GPT(nn.Module)")
    model.eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            is_norm = parameter.ndim == 1 and name.endswith("weight")
            parameter.copy_(is_norm + PARAMETER_SCALE * torch.randn(parameter.shape, generator=generator))
        logits = model(tokens)
        if not isinstance(logits, torch.Tensor):
            return _describe_wrong_type("GPT(...)(tokens)", logits)
        result: dict[str, Any] = {
            "parameters": {name: parameter.tolist() for name, parameter in model.named_parameters()},
            "repeated": [name for name, _ in model.named_parameters(remove_duplicate=False)],
            "plain_lists": _find_plain_lists(model),
            "logits": logits.tolist(),
        }
        if list(logits.shape) != [*tokens.shape, request["sizes"]["vocabulary"]]:
            return result
        result["shorter_logits"] = model(tokens[:, :-1]).tolist()
        loss = namespace["compute_loss"](model, tokens)
        if not isinstance(loss, torch.Tensor):
            return _describe_wrong_type("compute_loss(model, tokens)", loss)
        result["loss"] = float(loss)
        if "generate" in request["functions"]:
            counts: list[int] = []
            model.get_submodule("embedding").register_forward_hook(
                lambda module, inputs, output: counts.append(inputs[0].numel())
            )
            prompt = tokens[:, : request["prompt"]]
            generated = namespace["generate"](model, prompt, request["count"])
            if not isinstance(generated, torch.Tensor):
                return _describe_wrong_type("generate(model, tokens, count)", generated)
            result["generated"] = generated.tolist()
            result["embedded"] = sum(counts)
    return result


def train_model(namespace: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Train ``GPT``; write its parameters to a safetensors file, and return the held-out losses by step.

    Each loss is also written to standard error, as a line of JSON.
    """
    from safetensors.torch import save_file

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the losses are the same on every machine, and small models are no slower
    context, steps, compute_loss = request["sizes"]["context"], request["steps"], namespace["compute_loss"]
    model = namespace["GPT"](**request["sizes"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=request["learning_rate"])
    training, held_out = (torch.tensor(request[name]) for name in ("training", "held_out"))

    def draw_windows(ids: torch.Tensor, count: int) -> torch.Tensor:
        return ids[torch.randint(len(ids) - context, (count, 1)) + torch.arange(context)]

    validation = draw_windows(held_out, 8 * request["batch"])
    losses: list[tuple[int, float]] = []
    for step in range(steps + 1):
        if step % (steps // request["evaluations"]) == 0 or step == steps:
            with torch.no_grad():
                losses.append((step, float(compute_loss(model, validation))))
            sys.stderr.write(json.dumps({"step": step, "loss": losses[-1][1]}) + "\n")
            sys.stderr.flush()
        optimizer.zero_grad()
        compute_loss(model, draw_windows(training, request["batch"])).backward()
        optimizer.step()
    # parameters only: a model may also register its mask or its positions as a buffer
    parameters = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
    save_file(parameters, request["parameters_file"])
    return {"losses": losses}


def _find_plain_lists(model: torch.nn.Module) -> list[str]:
    """Return the names of Python lists of modules: PyTorch does not see the parameters in them."""
    return [
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, list | tuple) and any(isinstance(item, torch.nn.Module) for item in value)
    ]


ANSWERS = {"call": call_function, "probe": probe_model, "train": train_model}


def _decode(argument: Any) -> Any:
    if isinstance(argument, dict):
        return torch.tensor(argument["tensor"], dtype=getattr(torch, argument["dtype"]))
    return argument


def _flatten(outcome: object) -> list[Any]:
    parts = outcome if isinstance(outcome, tuple | list) else (outcome,)
    return [torch.as_tensor(part).detach().double().tolist() for part in parts]


def _describe_missing(definition: str) -> dict[str, Any]:
    return {"error": f"it does not define {definition}", "missing": definition}


def _describe_wrong_type(call: str, value: object) -> dict[str, Any]:
    name = type(value).__name__
    return {"error": f"{call} returns {name}, not a tensor", "call": call, "type": name}


def _describe_error(error: BaseException, path: Path) -> dict[str, Any]:
    """Return the error and the last line of the person's file that led to it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError):
        lines.append(error.lineno)
    return {"error": f"{type(error).__name__}: {error}"} | ({"line": lines[-1]} if lines else {})


if __name__ == "__main__":
    main()
