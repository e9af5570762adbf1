"""Find out what each head does, and whether it matters.

You learn: naming heads by where they attend; measuring the effect of removing each head; the difference between the
two. The model `tiny` comes with the package: two blocks on bytes, trained to repeat what it has read.
"""

import jumok
from jumok.lens import classify_heads, sample_repeated_tokens
from jumok.lens.effects.metrics import LogProbability

tiny = jumok.load("tiny")

# On random tokens that occur twice, only attending to the earlier occurrence helps.
tokens = sample_repeated_tokens(256, length=60)
with jumok.Lens(tiny) as lens:
    for kind in classify_heads(lens.run(tokens[None]), tokens):
        print(kind.site, "head", kind.head, "->", kind.name)

# Remove each head and measure how the log-probability of the right answer, a space, changes.
text = "Mary gave John a book; Mary"
effects = jumok.effect(tiny, text, metric=LogProbability(" "))
for effect in effects.top(4):
    print(f"layer {effect.layer} head {effect.head}: {effect.effect:+.2f}")
