"""What stands around attention in a block: positions, norms, feed-forward, residual paths."""

from .block import BareBlock, DecoderBlock, EncoderBlock
from .feedforward import FeedForward, GatedFeedForward
from .norm import LayerNorm, RMSNorm
from .output import MaskedOutput
from .patches import Patches
from .position import Learned, Rotary, Sinusoidal
from .recurrent import RecurrentEncoder, StateAttention, lstm

__all__ = [
    "BareBlock",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "GatedFeedForward",
    "LayerNorm",
    "Learned",
    "MaskedOutput",
    "Patches",
    "RMSNorm",
    "RecurrentEncoder",
    "Rotary",
    "Sinusoidal",
    "StateAttention",
    "lstm",
]
