"""What goes wrong, said to a person: what was wrong, where, and what to do."""


class JumokError(Exception):
    """What somebody asked for cannot be done, or cannot be meant. The command line prints it as one sentence."""


class ShapeError(JumokError, ValueError):
    """Tensors, masks or biases whose sizes do not fit each other."""


class BackendError(JumokError, ValueError):
    """A backend was asked for something it cannot do; the sentence names one that can."""


class ArgumentError(JumokError, ValueError):
    """A number or a name that cannot be meant: a negative window, an unknown activation."""
