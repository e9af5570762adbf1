"""Run a model on its task: continue, translate, caption, transcribe, fill, classify, score, embed or predict."""

from .model_inputs import ModelInput, read_input
from .run import GenerationSettings, parse_settings, run, run_task, stream_answer

__all__ = [
    "GenerationSettings",
    "ModelInput",
    "parse_settings",
    "read_input",
    "run",
    "run_task",
    "stream_answer",
]
