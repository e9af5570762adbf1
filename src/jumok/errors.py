"""The errors Jumok raises. Each message says what is wrong, where, and what to do; the command line prints it alone."""


class JumokError(Exception):
    """Base class of every error that Jumok raises on purpose."""


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


class TokenizerError(ArgumentError):
    """A folder contains no usable tokenizer."""


class DrawError(JumokError):
    """A figure cannot be drawn from these inputs or with the installed packages."""
