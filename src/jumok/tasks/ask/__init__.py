"""Answer questions from an index of the user's files, and measure which passage each answer depends on."""

from .answer import Answer, CutPassage, Verdict, VerdictRule
from .answer_question import AskSettings, ask, create_reader
from .fusion_reader import FusionReader
from .prompt_reader import PromptReader
from .reading import Reader, Reading

__all__ = [
    "Answer",
    "AskSettings",
    "CutPassage",
    "FusionReader",
    "PromptReader",
    "Reader",
    "Reading",
    "Verdict",
    "VerdictRule",
    "ask",
    "create_reader",
]
