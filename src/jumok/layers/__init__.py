"""The layers around attention: blocks, feed-forward networks, norms, position encodings, patches and LSTMs."""

from .block import BareBlock, DecoderBlock, EncoderBlock
from .feedforward import FeedForward, GatedFeedForward, MaskedOutput
from .norm import LayerNorm, RMSNorm
from .patches import PatchEmbedding
from .position_encoding import (
    LearnedPositions,
    Llama3Scaling,
    RotaryPositions,
    RotaryScaling,
    SinusoidalPositions,
    YarnScaling,
)
from .recurrent import RecurrentEncoder, StateAttention, make_lstm

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
