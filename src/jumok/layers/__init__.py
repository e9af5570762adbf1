"""What stands around attention in a block: positions, norms, feed-forward, residual paths."""

from .block import BareBlock, DecoderBlock, EncoderBlock
from .feedforward import FeedForward, GatedFeedForward
from .norm import LayerNorm, RMSNorm
from .output import MaskedOutput
from .patches import Patches
from .position import Learned, Rotary, Sinusoidal
from .recurrent import RecurrentEncoder, StateAttention, lstm
from .scaling import ByTurns, Scaling, Yarn

__all__ = [
    "BareBlock",
    "ByTurns",
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
    "Scaling",
    "Sinusoidal",
    "StateAttention",
    "Yarn",
    "lstm",
]
