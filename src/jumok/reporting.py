"""How functions report to a person: callbacks of long work, and the language of messages."""

import os
from collections.abc import Callable

Progress = Callable[[int, int], None]  # takes the finished steps and all steps
StageProgress = Callable[[int, int, str], None]  # the same, and the name of the stage
Report = Callable[[str], None]  # takes one sentence for the person

LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # in the order in which POSIX reads them


def get_reader_language() -> str:
    """Return the language of the locale in which a message is written: "ko", or "en" for any other one."""
    locale = next((os.environ[name] for name in LOCALE_VARIABLES if os.environ.get(name)), "")
    return "ko" if locale.lower().startswith("ko") else "en"
