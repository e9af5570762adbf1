"""Training: a task in, a run folder out; what is in the folder is enough to go on."""

from .errors import TrainingError
from .loop import Outcome, train
from .parallel import World, world
from .settings import Settings, rate
from .task import IGNORED, Batch, Batches, Task, number_loss, part_of, token_loss

__all__ = [
    "IGNORED",
    "Batch",
    "Batches",
    "Outcome",
    "Settings",
    "Task",
    "TrainingError",
    "World",
    "number_loss",
    "part_of",
    "rate",
    "token_loss",
    "train",
    "world",
]
