"""How functions report to a person: callbacks of long work, and the language of messages."""

import os
from collections.abc import Callable
from typing import Literal

Progress = Callable[[int, int], None]  # takes the finished steps and all steps
StageProgress = Callable[[int, int, str], None]  # the same, and the name of the stage
Report = Callable[[str], None]  # takes one sentence for the person

LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # in the order in which POSIX reads them


_chosen_language: Literal["en", "ko"] | None = None


def choose_language(language: Literal["en", "ko"] | None) -> None:
    """Set the language of messages in this process, as ``--language`` does; None = that of the locale."""
    global _chosen_language
    _chosen_language = language


def get_chosen_language() -> Literal["en", "ko"] | None:
    """Return the language that ``choose_language`` has set; None if the locale decides."""
    return _chosen_language


def get_reader_language() -> str:
    """Return the language of messages: the chosen one, else "ko" in a Korean locale, else "en"."""
    if _chosen_language is not None:
        return _chosen_language
    locale = next((os.environ[name] for name in LOCALE_VARIABLES if os.environ.get(name)), "")
    return "ko" if locale.lower().startswith("ko") else "en"
