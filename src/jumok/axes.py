"""Shapes by name. One word for each axis, everywhere: in signatures, errors, drawings and documents.

batch, head, group (key/value heads), query, key, width (of the model), head_width, vocab, layer, patch.
The layout at the door is always ``batch head query head_width``.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

Query = Float[Tensor, "batch head query head_width"]
Key = Float[Tensor, "batch group key key_width"]
Value = Float[Tensor, "batch group key value_width"]
Output = Float[Tensor, "batch head query value_width"]
Scores = Float[Tensor, "batch head query key"]
Weights = Float[Tensor, "batch head query key"]
LogSumExp = Float[Tensor, "batch head query"]
Hidden = Float[Tensor, "batch query width"]
Source = Float[Tensor, "batch key source_width"]
Allowed = Bool[Tensor, "#batch #head #query #key"]  # broadcasts to batch head query key
BiasValues = Float[Tensor, "#batch #head #query #key"]
Places = Int[Tensor, "*batch length"]  # where tokens stand

__all__ = [
    "Allowed",
    "BiasValues",
    "Hidden",
    "Key",
    "LogSumExp",
    "Output",
    "Places",
    "Query",
    "Scores",
    "Source",
    "Value",
    "Weights",
]
