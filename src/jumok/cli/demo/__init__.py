"""The command ``jumok demo``: translate, look at the attention, train a small GPT, and find the head that matters."""

from .demo_command import demo

__all__ = ["demo"]
