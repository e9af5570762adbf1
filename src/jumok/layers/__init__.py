"""The layers around attention: blocks, feed-forward networks, norms, position encodings, patches and LSTMs."""

from .block import BareBlock, DecoderBlock, EncoderBlock
from .feedforward import FeedForward, GatedFeedForward
from .masked_output import MaskedOutput
from .norm import LayerNorm, RMSNorm
from .patches import PatchEmbedding
from .position_encoding import LearnedPositions, RotaryPositions, SinusoidalPositions
from .recurrent import RecurrentEncoder, StateAttention, make_lstm
from .rotary_scaling import Llama3Scaling, RotaryScaling, YarnScaling

__all__ = [
    "BareBlock",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "GatedFeedForward",
    "LayerNorm",
    "LearnedPositions",
    "Llama3Scaling",
    "MaskedOutput",
    "PatchEmbedding",
    "RMSNorm",
    "RecurrentEncoder",
    "RotaryPositions",
    "RotaryScaling",
    "SinusoidalPositions",
    "StateAttention",
    "YarnScaling",
    "make_lstm",
]
