"""Run one function of a person's Python file: the process that checks an exercise starts this module.

The request is read from standard input and the results are written to standard output, both as JSON. What the file
itself prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import torch


def main() -> None:
    """Read a request, call the function, and write its results or one sentence about the error."""
    request = json.load(sys.stdin)
    results = os.dup(1)
    os.dup2(2, 1)  # print() of the file must not mix with the results
    with os.fdopen(results, "w", encoding="utf-8") as stream:
        json.dump(_call_function(request), stream)


def _call_function(request: dict[str, Any]) -> dict[str, Any]:
    path = Path(request["file"])
    sys.path.insert(0, str(path.parent))  # as Python does for a script
    try:
        function = runpy.run_path(str(path)).get(request["function"])
        if not callable(function):
            return {"error": f"it does not define a function {request['function']}()"}
        return {"results": [_flatten(function(*map(_decode, arguments))) for arguments in request["calls"]]}
    except (Exception, SystemExit) as error:
        return {"error": _describe_error(error, path)}


def _decode(argument: Any) -> Any:
    if isinstance(argument, dict):
        return torch.tensor(argument["tensor"], dtype=getattr(torch, argument["dtype"]))
    return argument


def _flatten(outcome: object) -> list[Any]:
    parts = outcome if isinstance(outcome, tuple | list) else (outcome,)
    return [torch.as_tensor(part).detach().double().tolist() for part in parts]


def _describe_error(error: BaseException, path: Path) -> str:
    """Return the error with the last line of the person's file that led to it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError):
        lines.append(error.lineno)
    location = f"line {lines[-1]}: " if lines else ""
    return f"{location}{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
