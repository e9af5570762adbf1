"""Training: a task in, a run folder out; what is in the folder is enough to go on."""

from jumok.errors import TrainingError

from .loop import Outcome, fit
from .parallel import World, connect_world
from .settings import Settings, compute_rate_factor
from .task import IGNORE_INDEX, Batch, Batches, Task, number_loss, select_part, token_loss

__all__ = [
    "IGNORE_INDEX",
    "Batch",
    "Batches",
    "Outcome",
    "Settings",
    "Task",
    "TrainingError",
    "World",
    "compute_rate_factor",
    "connect_world",
    "fit",
    "number_loss",
    "select_part",
    "token_loss",
]
