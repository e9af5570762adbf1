"""Tensor types with named axes: one name per axis in signatures, errors, figures and documents.

The axes are batch, head, group (key/value heads), query, key, width (of the model), head_width, vocab, layer and patch.
The layout at ``attend()`` is always ``batch head query head_width``.
"""

from jaxtyping import Bool, Float
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
