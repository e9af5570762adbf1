"""Run a model on its task: continue, translate, caption, transcribe, fill, classify, score, embed or predict."""

from .generate_text import GenerationSettings, parse_settings, stream_answer
from .model_inputs import ModelInput, read_input
from .run import run, run_task

__all__ = [
    "GenerationSettings",
    "ModelInput",
    "parse_settings",
    "read_input",
    "run",
    "run_task",
    "stream_answer",
]
