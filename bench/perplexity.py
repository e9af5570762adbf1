"""Measure how much 8-bit linear layers change SmolLM2's perplexity on 2,000 tokens of Shakespeare.

Run: jumok data get smollm2 shakespeare; python bench/perplexity.py
"""

from __future__ import annotations

import torch
from torch.nn import functional

import jumok
from jumok.data import catalogue
from jumok.generate import quantize
from jumok.models import Model


def compute_perplexity(model: Model, tokens: torch.Tensor) -> float:
    with torch.inference_mode():
        logits = model(tokens).logits[0, :-1].float()
    return float(functional.cross_entropy(logits, tokens[0, 1:]).exp())


def main() -> None:
    loaded = jumok.load("smollm2")
    text = sorted(catalogue.download_entry("shakespeare").rglob("*.txt"))[3].read_text(
        encoding="utf-8", errors="replace"
    )
    tokens = torch.tensor([loaded.tokenizer.encode(text[20_000:32_000])[:2000]])
    exact, small = compute_perplexity(loaded.model, tokens), compute_perplexity(quantize(loaded.model), tokens)
    print(f"perplexity {exact:.2f} in float32, {small:.2f} with 8-bit linear layers: {100 * (small / exact - 1):+.2f}%")


if __name__ == "__main__":
    main()
