"""Read the arguments of a command: texts, files, standard input; a model and its input, and describe that input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults
from jumok.bilingual_text import Text, Texts

from .command import show_status
from .command_output import CommandOutput

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded
    from jumok.checkpoint.transformers_folder import LoadedTransformers
    from jumok.tasks.labelled_input import LabelledInput

TEXTS = Texts(__file__)
TEXT_SUFFIXES = (".txt", ".md")
MEDIA_SUFFIXES = (*defaults.IMAGE_EXTENSIONS, *defaults.AUDIO_EXTENSIONS)
DEFAULT_MODEL = "tiny"  # comes with the package

limit_option = click.option("--limit", type=click.IntRange(1))


def read_arguments(arguments: tuple[str, ...]) -> list[str]:
    """Return the arguments, or the text of standard input if there are none or only "-"."""
    from jumok.errors import ArgumentError

    if arguments and arguments != ("-",):
        return list(arguments)
    if sys.stdin.isatty():
        raise ArgumentError("no input; give it as an argument, as a file, or on standard input")
    try:
        # sys.stdin of some consoles has no byte buffer
        text = sys.stdin.buffer.read().decode() if hasattr(sys.stdin, "buffer") else sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ArgumentError(
            f"standard input is not UTF-8 text (byte {error.start}); give images and audio as files"
        ) from None
    if not text.strip():
        raise ArgumentError("standard input is empty; give the model an input")
    return [text.rstrip("\n")]


def read_if_text_file(argument: str) -> str:
    """Return the content of the text file that an argument names; any other argument is returned unchanged."""
    from jumok.errors import ArgumentError

    path = Path(argument)
    suffix = path.suffix.lower()
    if suffix not in (*TEXT_SUFFIXES, *MEDIA_SUFFIXES) or argument != argument.strip():
        return argument
    if not _is_file(path):
        if len(argument.split()) > 1:
            return argument
        raise ArgumentError(f"there is no file {argument}; if it is text rather than a path, put a space before it")
    if suffix in MEDIA_SUFFIXES:
        return argument
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def load_and_prepare(
    arguments: tuple[str, ...], limit: int | None, quiet: bool, begin: float = 0.0
) -> tuple[Loaded | LoadedTransformers, LabelledInput]:
    """Load the model and prepare its input from the arguments [MODEL] INPUT.

    Args:
        limit: The largest number of answer tokens; None for the default.
        begin: Of audio, the second at which the window that is read begins.
    """
    model, text = split_model_and_input(arguments)
    if text == "-":
        (text,) = read_arguments((text,))

    with show_status(f"loading {model}", quiet):
        from jumok.checkpoint import Loaded
        from jumok.checkpoint.transformers_folder import open_model
        from jumok.tasks.labelled_input import prepare_input

        loaded = open_model(model, CommandOutput().warn)

    with show_status("reading", quiet):
        reads = loaded.model.reads if isinstance(loaded, Loaded) else loaded.reads
        if reads in ("text", "numbers"):
            text = read_if_text_file(text)
        labelled = prepare_input(loaded, text, limit, begin=begin)
    if labelled.warning:
        CommandOutput().warn(labelled.warning)
    return loaded, labelled


def parse_layer(layer: str) -> int | str:
    """Return the value of --layer: the number of a layer, or the name of an attention.

    >>> parse_layer("-1"), parse_layer("decoder.0.cross")
    (-1, 'decoder.0.cross')
    """
    return int(layer) if layer.removeprefix("-").isdecimal() else layer


def read_page_input(arguments: tuple[str, ...]) -> tuple[str, str | None]:
    """Return the model and the input of a page from the arguments [MODEL] [INPUT], without importing torch.

    Without an input, the page begins with its own.
    """
    if len(arguments) <= 1 and all(map(_is_model_name, arguments)):
        model, text = (*arguments, DEFAULT_MODEL)[0], None
    else:
        model, text = split_model_and_input(arguments)
    if text == "-":
        (text,) = read_arguments((text,))
    elif text is not None:
        text = read_if_text_file(text)
    _check_model_exists(model)
    return model, text


def _check_model_exists(name: str) -> None:
    """Raise an error if there is no such model. Only an unusual name takes the time to import torch."""
    from jumok.data.catalogue import locate_entry

    path = Path(name)
    if name in defaults.INCLUDED_MODELS or path.is_dir() or (path.suffix == ".gguf" and _is_file(path)):
        return
    if name in defaults.LOADABLE_MODELS and locate_entry(name) is not None:
        return
    from jumok.checkpoint.resolve import resolve_model_path

    resolve_model_path(name)


def split_model_and_input(arguments: tuple[str, ...]) -> tuple[str, str]:
    """Return the model (by default "tiny") and the input of the arguments [MODEL] INPUT."""
    from jumok.errors import ArgumentError

    if len(arguments) > 2:
        raise ArgumentError(f"expected [MODEL] INPUT, but got {len(arguments)} arguments; put the text in quotes")
    if len(arguments) == 1:
        (text,) = arguments
        if _is_model_name(text):
            raise ArgumentError(f'{text} is a model; give it an input too: {text} "a text"')
        return DEFAULT_MODEL, text
    model, text = arguments
    if _is_model_name(text) and not _is_model_name(model):
        raise ArgumentError(f"the model comes first, then its input: {text} {model!r}")
    return model, text


def _is_model_name(word: str) -> bool:
    """Return True for a model of the package or the catalogue, and for a folder that holds a model."""
    from jumok.data.catalogue import list_entries

    if word in defaults.INCLUDED_MODELS or any(
        entry.name == word and entry.kind == "model" for entry in list_entries()
    ):
        return True
    return any(_is_file(Path(word) / name) for name in ("config.json", "run.json"))


def _is_file(path: Path) -> bool:
    """Return True if the path is a file; False also for a text that is too long to be a path."""
    try:
        return path.is_file()
    except OSError:
        return False


def input_to_json(labelled: LabelledInput) -> dict[str, Any]:
    """Return the labels of the source and, for a model that answers, the answer."""
    fields: dict[str, Any] = {"source": labelled.source, "unknown": labelled.unknown}
    fields |= {"unknown_words": list(labelled.unknown_words), "warning": labelled.warning or None}
    if labelled.target:
        fields |= {"target": labelled.target, "answer": labelled.answer, "unfinished": labelled.unfinished}
    return fields


def summarize_input(labelled: LabelledInput) -> Text:
    """Return one line: the number of positions, and the answer."""
    count = len(labelled.source)
    summary = TEXTS("position" if count == 1 else "positions", count=count)
    if labelled.audio is not None:
        summary = TEXTS("audio", seconds=labelled.audio.seconds, count=count)
    if labelled.unknown:
        from jumok.data.tokenizers.token_labels import format_unknown_words

        named = format_unknown_words(labelled.unknown_words)
        summary = TEXTS("unknown", summary=summary, count=labelled.unknown, words=f": {named}" if named else "")
    if labelled.target:
        summary = TEXTS("answer", summary=summary, answer=labelled.answer)
    if labelled.unfinished:
        summary = TEXTS("unfinished", summary=summary, count=labelled.answer_length)
    return summary
