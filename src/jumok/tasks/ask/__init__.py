"""Answer questions from an index of the user's files, and measure which passage each answer depends on."""

from .answer import Answer, CutPassage
from .answer_question import AskSettings, SearchableIndex, ask
from .fusion_reader import FusionReader
from .prompt_reader import PromptReader
from .reader_choice import create_reader
from .reading import Reader, Reading
from .verdict import Verdict, VerdictRule

__all__ = [
    "Answer",
    "AskSettings",
    "CutPassage",
    "FusionReader",
    "PromptReader",
    "Reader",
    "Reading",
    "SearchableIndex",
    "Verdict",
    "VerdictRule",
    "ask",
    "create_reader",
]
