"""numbers: the rule "+2" learned from examples, real numbers in and real numbers out. The model is judged by sequences
that it has never seen, and that it decodes by itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from jumok.errors import ArgumentError
from jumok.models import Model
from jumok.models.numeric import Numeric, NumericConfig
from jumok.recipes.recipe import Defaults, recipe
from jumok.recipes.request import TrainingRequest
from jumok.training import Batch, Task

LENGTH = 5
SHOWN = [10.0, 20.0, 30.0, 40.0, 50.0]
HELD_OUT = 1_000


def numbers_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings."""
    settings = {
        "steps": 6000, "batch": 64, "learning_rate": 1e-2, "final_rate": 0.0, "warmup": 200, "decay": 0.0, "clip": 1.0,
        "beta2": 0.999, "evaluate_every": 500, "save_every": 1000,
    }  # fmt: skip
    return Defaults(settings, () if request.start is not None else (NumericConfig(),))


@recipe(numbers_defaults)
def numbers(asked: TrainingRequest) -> Task:
    """Learn to add 2 to each of 5 numbers from 0 to 100."""
    asked.refuse_data()
    defaults = numbers_defaults(asked)
    settings = asked.settings(**defaults.settings)
    loaded = asked.load_start()
    model = asked.model(Numeric, asked.config(defaults.configs[0]), settings) if loaded is None else loaded.model
    if not isinstance(model, Numeric):
        raise ArgumentError(f"the recipe numbers goes on with a numeric; {asked.start} is a {model.family}")

    def batches(step: int, part: int, parts: int) -> Batch:
        draw = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        source = drawn(settings.batch, draw).chunk(parts)[part]
        answer = source + 2
        return Batch({"source": source, "target": answer[:, :-1]}, answer, answer.numel())

    def evaluate(model: Model) -> dict[str, float]:
        assert isinstance(model, Numeric)
        source = drawn(HELD_OUT, torch.Generator().manual_seed(2**40))  # no training step draws with this seed
        wrong = (model.predict(source.to(model.device), LENGTH).cpu() - (source + 2)).abs()
        return {"error": float(wrong.mean()), "right": float((wrong < 0.5).all(-1).float().mean())}

    def report(model: Model, folder: Any) -> dict[str, Any]:
        assert isinstance(model, Numeric)
        decoded = model.predict(torch.tensor([SHOWN], device=model.device), LENGTH)[0].tolist()
        return {
            **evaluate(model),
            "what": f"every number within 0.5, of {HELD_OUT:,} unseen sequences that the model decoded by itself",
            "try": ",".join(f"{number:g}" for number in SHOWN),
            "example": {"given": SHOWN, "decoded": [round(number, 2) for number in decoded]},
        }

    data = {"rule": "+2", "length": LENGTH, "from": 0, "to": 100}
    return Task(model, settings, batches, squared, evaluate, "error", data=data, report=report)


def drawn(count: int, draw: torch.Generator) -> Tensor:
    return torch.rand(count, LENGTH, generator=draw) * 100


def squared(model: nn.Module, batch: Batch) -> Tensor:
    """In hundreds, as the model has them inside, so that the gradients are of ordinary size."""
    found = model(**batch.inputs).numbers
    return functional.mse_loss(found / 100, batch.targets / 100, reduction="sum")
