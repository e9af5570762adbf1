"""Generate text while a head is silenced, and find out which positions of a text matter by patching.

You learn: edits hold at every step of generation; the capture has a row for every token that was read; the residual
stream of one text can be copied into another, position by position.
"""

import jumok
from jumok import Ablate, KnockOut
from jumok.lens import sweep_patches
from jumok.lens.effects.metrics import LogProbability

text = "the cat sat; the cat"

with jumok.Lens("tiny") as lens:
    clean = lens.generate(text, limit=4)
    print("clean:", repr(clean.text))
    print("weights of one head:", list(clean.capture.weights(layer=1, head=0).shape))

    # Head 1.0 copies what followed the earlier "cat". Without it, the model continues with something else.
    silent = lens.generate(text, limit=4, edits=[Ablate(layer=1, head=0)])
    print("without head 1.0 the same:", silent.text == clean.text)

    # Key 8, the "s" of "sat", cannot be read by any row, neither of the prompt nor of the generated text.
    cut = lens.generate(text, limit=4, edits=[KnockOut(key=8)])
    print("weights on the removed key:", cut.capture.weights(layer=1, head=0)[:, 8].sum().item())

# Which characters decide that "s" follows "the cat "? Another text has another word there.
sweep = sweep_patches("tiny", text + " ", "the cat did; the cat ", metric=LogProbability("s"))
print("table:", list(sweep.effects.shape), "blocks:", sweep.blocks)
best = sweep.effects[0].argmax().item()
print(f"the largest effect: position {best}, {text[best]!r}")
