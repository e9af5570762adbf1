"""The command ``jumok look``: show where every head attends, in tables and in pictures."""

from .look_command import look as look
