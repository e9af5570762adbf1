"""What a command was given: texts, files, standard input; a model, and what it is to read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .command import waiting

if TYPE_CHECKING:
    from jumok.tasks.labelled_input import LabelledInput

TEXTS, PICTURES = (".txt", ".md"), (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
DEFAULT = "tiny"  # the model that comes with the package


def inputs(given: tuple[str, ...]) -> list[str]:
    """The arguments, or standard input where there are none."""
    from jumok.errors import ArgumentError

    if given and given != ("-",):
        return list(given)
    if sys.stdin.isatty():
        raise ArgumentError("nothing was given; give it as an argument, as a file, or on standard input")
    raw = getattr(sys.stdin, "buffer", None)  # some consoles have a stream of text alone
    try:
        told = sys.stdin.read() if raw is None else raw.read().decode()
    except UnicodeDecodeError as wrong:
        raise ArgumentError(f"standard input is not UTF-8 text (byte {wrong.start})") from None
    if not told.strip():
        raise ArgumentError("standard input is empty; there is nothing to do")
    return [told.rstrip("\n")]


def content(told: str) -> str:
    """A text as it is, or that of the file which it names."""
    from jumok.errors import ArgumentError

    path = Path(told)
    if len(told) >= 256 or path.suffix.lower() not in (*TEXTS, *PICTURES) or told != told.strip():
        return told
    if not path.is_file():
        if len(told.split()) > 1:
            return told
        raise ArgumentError(f"there is no file {told}; a text that only looks like one has a space in front of it")
    if path.suffix.lower() in PICTURES:
        return told
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except UnicodeDecodeError as wrong:
        raise ArgumentError(f"{path} is not UTF-8 text (byte {wrong.start}); save it as UTF-8") from None


def seen_by_model(words: tuple[str, ...], limit: int, quiet: bool) -> tuple[Any, LabelledInput]:
    """[MODEL] INPUT: the model, and what it sees; one word alone is for the model that comes with the package."""
    from jumok.errors import ArgumentError

    if len(words) > 2:
        raise ArgumentError(f"give a model and one input; {len(words)} words came: put a text in quotes")
    if len(words) == 1 and _names_a_model(words[0]):
        raise ArgumentError(f'{words[0]} is a model; give it something to read: {words[0]} "a text"')
    if len(words) == 2 and _names_a_model(words[1]) and not _names_a_model(words[0]):
        raise ArgumentError(f"the model comes first, and then what it reads: {words[1]} {words[0]!r}")
    model, given = words if len(words) == 2 else (DEFAULT, words[0])
    if given == "-":
        (given,) = inputs((given,))
    with waiting(f"loading {model}", quiet):
        from jumok.checkpoint import load
        from jumok.tasks import reads
        from jumok.tasks.labelled_input import prepare_input

        loaded = load(model)
    with waiting("reading", quiet):
        found = prepare_input(loaded, content(given) if reads(loaded) in ("text", "numbers") else given, limit)
    return loaded, found


def _names_a_model(word: str) -> bool:
    """A model of the catalogue, or a folder with one."""
    from jumok.data.catalogue import list_entries

    if word == DEFAULT or any(one.name == word and one.kind == "model" for one in list_entries()):
        return True
    return len(word) < 256 and any((Path(word) / name).is_file() for name in ("config.json", "run.json"))
