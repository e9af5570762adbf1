"""Write what a head of SmolLM2 does that links "it" to "animal": ``python pronoun_head.py``.

Writes pronoun_head.json beside this file, for the cell "attention" of the home page. It needs ``jumok data get
smollm2``; the result is committed, so that building the site does not.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

import jumok
from jumok import Remask

TARGET = Path(__file__).with_suffix(".json")
SENTENCE = "The animal didn't cross the street because it was too tired"
MODEL, LAYER, HEAD = "smollm2", 13, 8  # of all heads the one with the largest weight from "it" to "animal"
DIGITS = 3


def main() -> None:
    """Write the tokens, and the scores of each with each, also of those that the causal mask forbids."""
    with torch.no_grad(), jumok.Lens(MODEL) as lens:
        capture = lens.run(SENTENCE, edits=Remask(layer=LAYER, head=HEAD, mask=None))
    words = [token.removeprefix("␣") for token in capture.label_axes(LAYER)[0]]
    # the logarithms of a row of weights are its scores, but for a number that the softmax removes
    scores = capture.weights(LAYER, HEAD).log()
    rows = [[round(number, DIGITS) for number in row] for row in scores.tolist()]
    TARGET.write_text(json.dumps({"words": words, "scores": rows}, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
