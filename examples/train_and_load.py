"""Train a model, then load it from its folder and use it.

You learn: a recipe trains into a run folder; that folder is a model, which load() and run() take as it is.
"""

import tempfile
from pathlib import Path

import jumok

folder = Path(tempfile.mkdtemp()) / "plus-two"

# The recipe `numbers` learns to add 2 to each of five numbers. Any field of the recipe, the model and the training
# settings may be an argument; `jumok train --list numbers` shows them.
outcome = jumok.train("numbers", out=folder, steps=40, evaluate_every=20)
print("steps:", outcome.report["steps"])
print("metrics:", sorted(outcome.metrics))

# The folder holds the checkpoints, the metrics and a report.
print("files:", sorted(path.name for path in folder.iterdir() if path.suffix == ".json"))

# The folder is also a model. outcome.model is the same one.
loaded = jumok.load(folder)
print("family:", loaded.family, "with", f"{loaded.model.parameter_count:,}", "parameters")

answer = jumok.run(folder, "10, 20, 30, 40, 50")
print("an answer of", len(answer), "numbers")
