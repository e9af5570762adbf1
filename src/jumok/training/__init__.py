"""Train a model: ``fit`` runs a task in a folder, from which training can resume."""

from jumok.errors import TrainingError

from .loop import Outcome, fit
from .parallel import World, connect_world, select_device
from .settings import Settings, compute_rate_factor
from .task import (
    IGNORE_INDEX,
    Batch,
    Batches,
    DataSummary,
    Loss,
    TrainingTask,
    apply_epochs,
    compute_mean_loss,
    compute_token_loss,
    select_part,
)

__all__ = [
    "IGNORE_INDEX",
    "Batch",
    "Batches",
    "DataSummary",
    "Loss",
    "Outcome",
    "Settings",
    "TrainingError",
    "TrainingTask",
    "World",
    "apply_epochs",
    "compute_mean_loss",
    "compute_rate_factor",
    "compute_token_loss",
    "connect_world",
    "fit",
    "select_device",
    "select_part",
]
