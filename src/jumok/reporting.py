"""How functions report to a person: callbacks of long work, and the language of messages."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

Progress = Callable[[int, int], None]  # takes the finished steps and all steps
StageProgress = Callable[[int, int, str], None]  # the same, and the name of the stage
Report = Callable[[str], None]  # takes one sentence for the person

LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # in the order in which POSIX reads them


_chosen_language: Literal["en", "ko"] | None = None
_language_of_block: ContextVar[str | None] = ContextVar("language", default=None)


def choose_language(language: Literal["en", "ko"] | None) -> None:
    """Set the language of messages in this process, as ``--language`` does; None = that of the locale."""
    global _chosen_language
    _chosen_language = language


@contextmanager
def use_language(language: str | None) -> Iterator[None]:
    """Write the messages of this block, in this thread, in a language; None changes nothing."""
    token = _language_of_block.set(language or _language_of_block.get())
    try:
        yield
    finally:
        _language_of_block.reset(token)


def get_chosen_language() -> Literal["en", "ko"] | None:
    """Return the language that ``choose_language`` has set; None if the locale decides."""
    return _chosen_language


def get_reader_language() -> str:
    """Return the language of messages: the chosen one, else "ko" in a Korean locale, else "en"."""
    if (block_language := _language_of_block.get()) is not None:
        return block_language
    if _chosen_language is not None:
        return _chosen_language
    locale = next((os.environ[name] for name in LOCALE_VARIABLES if os.environ.get(name)), "")
    return "ko" if locale.lower().startswith("ko") else "en"
