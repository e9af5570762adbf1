"""Open a Hugging Face model in the lens.

You learn: the lens takes a transformers model as it is, captures every attention exactly, and edits it. The model here
is small and untrained, so that the example runs offline; AutoModelForCausalLM.from_pretrained(...) works the same way.
This example needs `pip install ".[transformers]"`.
"""

import torch

import jumok
from jumok import Ablate, KnockOut

try:
    from transformers import GPT2Config, GPT2LMHeadModel
except ModuleNotFoundError:
    raise SystemExit('this example needs transformers; install it with: pip install ".[transformers]"') from None

torch.manual_seed(0)
config = GPT2Config(vocab_size=50, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config).eval()
input_ids = torch.tensor([[3, 14, 15, 9, 26, 5]])

with torch.no_grad():
    expected = model(input_ids=input_ids).logits

with jumok.Lens(model) as lens:
    clean = lens.run(input_ids=input_ids, logits=True)
    print("attention modules:", clean.sites.names)
    print("logits unchanged: ", torch.allclose(clean.logits, expected, atol=1e-5))

    weights = clean.weights("transformer.h.1.attn", head=2)
    print("weights of one head:", list(weights.shape), "future:", weights.triu(1).sum().item())

    # Remove one edge: query position 5 may no longer attend to key position 0. The row is renormalised.
    cut = lens.run(input_ids=input_ids, logits=True, edits=[KnockOut(layer=1, head=2, query=5, key=0)])
    print("weight of the removed edge:", cut.weights(1, head=2)[5, 0].item())

    # Silence a whole head.
    silent = lens.run(input_ids=input_ids, logits=True, edits=[Ablate(layer=1, head=2)])
    print("logits change:", not torch.allclose(silent.logits, clean.logits))
