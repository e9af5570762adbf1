"""Call attention on your own tensors.

You learn: the layout of query, key and value; how masks, scores and biases combine; that backends agree.
"""

import torch

from jumok import attend
from jumok.attention import bias, mask, score

torch.manual_seed(0)
batch, heads, queries, keys, head_width = 2, 4, 5, 7, 16
query = torch.randn(batch, heads, queries, head_width)
key = torch.randn(batch, heads, keys, head_width)
value = torch.randn(batch, heads, keys, head_width)

# The default is scaled dot-product attention. weights=True also returns the softmax weights.
output, weights = attend(query, key, value, weights=True)
print("output ", list(output.shape))
print("weights", list(weights.shape), "rows sum to", round(weights.sum(-1).mean().item(), 4))

# A mask is an expression: True = may attend. Here: no future keys, and only the last three.
_, weights = attend(query, key, value, mask=mask.causal & mask.window(3), weights=True)
print("weight on future keys:", weights.triu(1).sum().item())

# Another formula (Bahdanau et al. 2014) and a bias (ALiBi, Press et al. 2022) go through the same call.
additive = score.Additive(query_width=head_width, key_width=head_width, hidden=8)
output = attend(query, key, value, score=additive, bias=bias.alibi(heads), mask=mask.causal)
print("additive score with ALiBi:", list(output.shape))

# Backends compute the same function in different ways.
explicit = attend(query, key, value, mask=mask.causal, backend="explicit")
for backend in ("sdpa", "blocked"):
    other = attend(query, key, value, mask=mask.causal, backend=backend)
    print(f"{backend} equals explicit:", torch.allclose(other, explicit, atol=1e-5))
