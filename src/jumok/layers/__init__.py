"""What stands around attention in a block: positions, norms, feed-forward, residual paths."""

from .block import BareBlock, DecoderBlock, EncoderBlock
from .feedforward import FeedForward, GatedFeedForward
from .masked_output import MaskedOutput
from .norm import LayerNorm, RMSNorm
from .patches import Patches
from .position_encoding import Learned, Rotary, Sinusoidal
from .recurrent import RecurrentEncoder, StateAttention, lstm
from .rotary_scaling import ByTurns, Scaling, Yarn

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
