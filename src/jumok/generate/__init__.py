"""Text generation: decoding loops, sampling, beam search, speculative decoding and 8-bit quantization."""

from .beam import beam_search
from .loop import generate, stream_tokens
from .quantize import quantize
from .sampling import Sampling, greedy
from .speculative import DraftModel, PromptLookup, speculate
from .text_stream import stream_text

__all__ = [
    "DraftModel",
    "PromptLookup",
    "Sampling",
    "beam_search",
    "generate",
    "greedy",
    "quantize",
    "speculate",
    "stream_text",
    "stream_tokens",
]
