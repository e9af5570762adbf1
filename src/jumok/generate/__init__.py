"""Generation: one token after another, from any model that gives logits."""

from .beam import beam_search
from .loop import generate
from .quantize import quantize
from .sampling import Sampling, greedy
from .speculative import Draft, Lookup, speculate
from .text_stream import text_pieces
from .token_stream import stream

__all__ = [
    "Draft",
    "Lookup",
    "Sampling",
    "beam_search",
    "generate",
    "greedy",
    "quantize",
    "speculate",
    "stream",
    "text_pieces",
]
