"""The baseline of the language models: an interpolated Kneser-Ney model of tokens (Chen and Goodman, 1999)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

ORDER = 5
DISCOUNT = 0.75


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

    def compute_loss(self, ids: list[int], begin: int) -> float:
        """Return the loss in nats, summed over the tokens from ``begin`` on, each after the tokens before it."""
        contexts = (tuple(ids[max(0, end - ORDER + 1) : end]) for end in range(begin, len(ids)))
        return -sum(math.log(self.compute_probability(c, word)) for c, word in zip(contexts, ids[begin:], strict=True))
