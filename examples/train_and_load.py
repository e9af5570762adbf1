"""Train a model, then load it from its folder and use it.

You learn: a recipe trains into a run folder; that folder is a model, which load() and run() take as it is.
"""

import tempfile
from pathlib import Path

import jumok
from jumok.recipes import TrainingRequest, start_run

folder = Path(tempfile.mkdtemp()) / "plus-two"

# The recipe `numbers` learns to add 2 to each of five numbers. `changes` may set any field of the training settings.
request = TrainingRequest("numbers", folder, changes={"steps": 40, "evaluate_every": 20})
outcome = start_run(request)
print("steps:", outcome.progress.step)
print("metrics:", sorted(outcome.metrics))

# The folder holds the checkpoints, the metrics and a report.
print("files:", sorted(path.name for path in folder.iterdir() if path.suffix == ".json"))

loaded = jumok.load(folder)
print("family:", loaded.family, "with", f"{loaded.model.parameter_count:,}", "parameters")

answer = jumok.run(folder, "10, 20, 30, 40, 50")
print("an answer of", len(answer), "numbers")
