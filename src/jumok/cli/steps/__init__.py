"""The command ``jumok steps``: attention step by step, on examples and on the user's own input."""

from .steps_command import steps as steps
