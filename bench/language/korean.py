"""Compare the model ``korean`` with a 5-gram model on held-out stories, and print continuations.

    python bench/language/korean.py [--model korean] [--stories 60000] [--seed 1]

Both read the same tokens. The 5-gram model is interpolated Kneser-Ney (Chen and Goodman, 1999) and learns from the
stories of the training run. The held-out stories are of another seed, without those of the training run.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict

import torch
from ngrams import ORDER, KneserNey

import jumok
from jumok.data.datasets.korean.stories import read_korean_stories

PROMPTS = [
    "나는 학교에",
    "저는 어제 시장에서",
    "민수의 생일이었다. 유나는 민수에게",
    "옛날 옛날에",
    "“안녕하세요?” 하고",
]


def main() -> None:
    """Print perplexities and continuations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="korean")
    parser.add_argument("--stories", type=int, default=60_000, help="stories that the 5-gram model learns from")
    parser.add_argument("--seed", type=int, default=1, help="of the held-out stories")
    options = parser.parse_args()
    loaded = jumok.load(options.model)
    tokenizer = loaded.require_tokenizer()

    training = set(read_korean_stories("train", options.stories))
    held_out = [text for text in read_korean_stories("held-out", 10_000, options.seed) if text not in training]
    ngrams = KneserNey((tokenizer.encode(f"{text}\n") for text in training), tokenizer.vocabulary)
    losses: dict[str, float] = defaultdict(float)
    tokens = letters = 0
    for text in held_out:
        ids = tokenizer.encode(f"\n{text}\n")
        with torch.inference_mode():
            logits = loaded.model(torch.tensor([ids[:-1]])).logits[0]
        losses["GPT"] += torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").item()
        losses[f"{ORDER}-gram"] += ngrams.compute_loss(ids[1:], 0)  # its sequences begin without the line break
        tokens += len(ids) - 1
        letters += len(text) + 1
    print(f"{len(held_out):,} held-out stories, {tokens:,} tokens, {letters:,} letters")
    print("| model | nats a token | perplexity | bits a letter |\n|---|---|---|---|")
    for name, loss in losses.items():
        print(f"| {name} | {loss / tokens:.3f} | {math.exp(loss / tokens):.2f} | {loss / letters / math.log(2):.3f} |")
    for prompt in PROMPTS:
        print(prompt, "->", jumok.run(loaded, prompt, limit=60, temperature=0.7, seed=0))


if __name__ == "__main__":
    main()
