"""One of several processes of tests/test_parallel.py: trains the toy task and writes down what it saw.

python parallel_child.py KIND FOLDER JSON; KIND is none, ddp or fsdp, JSON has "config", "fields" and "stop".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from jumok.models.gpt import GPTConfig
from jumok.training import connect_world, fit, loop
from toys import CONFIG, StopAt, toy


def main() -> None:
    kind, folder, told = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    torch.set_num_threads(1)
    config = GPTConfig.from_json({**CONFIG.to_json(), **told.get("config", {})})
    task = toy(config, **told.get("fields", {}))
    gradients: list[dict[str, torch.Tensor]] = []
    real = loop._norm

    def heard(model: Any, clip: float) -> float:
        whole = {}
        for name, one in model.named_parameters():
            grad = one.grad.full_tensor() if hasattr(one.grad, "full_tensor") else one.grad
            whole[name] = grad.detach().clone()
        gradients.append(whole)
        return real(model, clip)

    loop._norm = heard
    with connect_world(kind, torch.device("cpu")) as ours:
        fit(task, folder, ours, StopAt(told["stop"]) if told.get("stop") else None)
        if ours.is_main:
            save_file(
                {f"{step}.{name}": one for step, seen in enumerate(gradients) for name, one in seen.items()},
                folder / "gradients.safetensors",
            )


if __name__ == "__main__":
    main()
