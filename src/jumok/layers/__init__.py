"""What stands around attention in a block: positions, norms, feed-forward, residual paths."""

from .block import BareBlock, DecoderBlock, EncoderBlock
from .feedforward import FeedForward, GatedFeedForward
from .norm import LayerNorm, RMSNorm
from .position import Learned, Rotary, Sinusoidal

__all__ = [
    "BareBlock",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "GatedFeedForward",
    "LayerNorm",
    "Learned",
    "RMSNorm",
    "Rotary",
    "Sinusoidal",
]
