"""The errors and warnings of Jumok. An error says what is wrong, where, what to do."""

MAX_MESSAGE_LENGTH = 1000  # characters; names from files and arguments can be a million characters long


class JumokError(Exception):
    """Base class of every error that Jumok raises on purpose. The middle of a very long message is left out."""

    def __str__(self) -> str:
        return shorten_message(super().__str__())


class ShapeError(JumokError, ValueError):
    """Tensors, masks or biases have sizes that do not fit together."""


class BackendError(JumokError, ValueError):
    """The chosen backend cannot compute the request; the message names one that can."""


class ArgumentError(JumokError, ValueError):
    """An argument is invalid, such as a negative window or an unknown activation."""


class CheckpointError(JumokError, ValueError):
    """A checkpoint is missing, damaged, or unsafe to read."""


class TrainingError(JumokError):
    """Training cannot start or continue."""


class DataError(JumokError, ValueError):
    """A data file cannot be used; the message names the file and line."""


class FetchError(JumokError):
    """A catalogue entry could not be downloaded or verified; no part of it was stored."""


class ImageError(ArgumentError):
    """An image cannot be read, or exceeds the limits for untrusted files."""


class AudioError(ArgumentError):
    """An audio file cannot be read, contradicts its own header, or exceeds the limits for untrusted files."""


class TokenizerError(ArgumentError):
    """A folder contains no usable tokenizer."""


class DrawError(JumokError):
    """A figure cannot be drawn from these inputs or with the installed packages."""


class ContextWarning(UserWarning):
    """An input exceeds what the model can read or has learned: its context length, its vocabulary, the numbers of its
    training, or the language of a recording."""


class IncompleteWarning(UserWarning):
    """A lens records only some of the attentions of a model."""


class CheckpointWarning(UserWarning):
    """A model folder holds fewer or more parameters than its class has; the message names what is left out."""


def describe_type(value: object) -> str:
    """Return the type of a value in the words of an error message, with its article.

    >>> describe_type(3), describe_type([]), describe_type(None)
    ('an int', 'a list', 'None')
    """
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def shorten(text: str, limit: int = 80) -> str:
    """Return the first characters of a text, for an error message."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def shorten_message(message: str) -> str:
    """Return a message of at most MAX_MESSAGE_LENGTH characters, without the middle of a longer one.

    >>> shorten_message("no folder " + "x" * 10**6 + "; choose another name")[-30:]
    'xxxxxxxxx; choose another name'
    """
    if len(message) <= MAX_MESSAGE_LENGTH:
        return message
    end = MAX_MESSAGE_LENGTH // 4  # what to do often stands at the end
    return f"{message[: MAX_MESSAGE_LENGTH - end - 5]} ... {message[-end:]}"
