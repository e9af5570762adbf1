"""Compare the model ``korean`` with a 5-gram model on held-out stories, and print continuations.

    python bench/language/korean.py [--model korean] [--stories 60000] [--seed 1]

Both read the same tokens. The 5-gram model is interpolated Kneser-Ney (Chen and Goodman, 1999) and learns from the
stories of the training run. The held-out stories are of another seed, without those of the training run.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterable

import torch

import jumok
from jumok.data.datasets.korean.stories import read_korean_stories

ORDER = 5
DISCOUNT = 0.75
PROMPTS = [
    "나는 학교에",
    "저는 어제 시장에서",
    "민수의 생일이었다. 유나는 민수에게",
    "옛날 옛날에",
    "“안녕하세요?” 하고",
]


class KneserNey:
    """An n-gram model of tokens with interpolated Kneser-Ney smoothing."""

    def __init__(self, sequences: Iterable[list[int]], vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(ORDER)]
        for sequence in sequences:
            for end in range(1, len(sequence) + 1):
                self.counts[-1][tuple(sequence[max(0, end - ORDER) : end])] += 1
        for order in range(ORDER - 1, 0, -1):  # lower orders count the different words before, not the occurrences
            for words in self.counts[order]:
                if len(words) == order + 1:
                    self.counts[order - 1][words[1:]] += 1
                else:  # at the beginning of a text
                    self.counts[order - 1][words] += self.counts[order][words]
        self.totals: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(ORDER)]
        self.kinds: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(ORDER)]
        for order, counts in enumerate(self.counts):
            for words, count in counts.items():
                self.totals[order][words[:-1]] += count
                self.kinds[order][words[:-1]] += 1

    def compute_probability(self, context: tuple[int, ...], word: int) -> float:
        """Return the probability of a word after the last words."""
        probability = 1 / self.vocabulary
        for order in range(min(len(context), ORDER - 1) + 1):
            before = context[len(context) - order :]
            total = self.totals[order][before]
            if total == 0:
                break
            count = max(self.counts[order][(*before, word)] - DISCOUNT, 0)
            probability = (count + DISCOUNT * self.kinds[order][before] * probability) / total
        return probability


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
        for end in range(1, len(ids)):
            context = tuple(ids[max(1, end - ORDER + 1) : end])
            losses[f"{ORDER}-gram"] -= math.log(ngrams.compute_probability(context, ids[end]))
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
