"""Measure where the thresholds of syntactic and semantic heads lie: heads of a model against random control pairs.

    python bench/head_kinds.py smollm2

The controls are random pairs of unrelated words at equal distances (syntactic), and similarities that are exchanged
among pairs of equal distance (semantic). A good threshold is exceeded by several heads and, by chance, by none.
"""

from __future__ import annotations

import argparse
from collections import Counter

import torch

import jumok
from jumok.data.tokenizers.token_labels import group_words
from jumok.lens import Lens
from jumok.lens.describe.head_profile import embed_tokens
from jumok.lens.describe.sentence_margins import (
    ENGLISH_SENTENCES,
    WordPairs,
    compute_semantic_margins,
    compute_syntactic_margins,
)

DRAWS = 50
THRESHOLDS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)


def collect_pairs(model: str) -> WordPairs:
    """Run the model on the annotated English sentences."""
    loaded = jumok.load(model)
    tokenizer = loaded.require_tokenizer()
    pairs = WordPairs()
    with Lens(loaded) as lens:
        for sentence in ENGLISH_SENTENCES:
            tokens = tokenizer.encode(sentence.text)
            words = [positions for word, positions in group_words(tokenizer, tokens) if word in sentence.text]
            capture = lens.run(tokens)
            weights = {
                (site, head): capture.weights(site, head)
                for site in capture.sites.names
                for head in range(capture.heads(site))
            }
            attention = capture.attentions[capture.sites.names[0]]
            allowed = attention.evaluate_mask(0, 0, slice(None), slice(None))
            pairs.add_sentence(sentence, words, weights, allowed, embed_tokens(lens, tokens))
    return pairs


def draw_control_relations(
    distances: torch.Tensor, relations: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Move each relation to a random unrelated pair at the same distance; the related pairs are left out."""
    controls = relations.clone()
    controls[relations >= 0] = -2  # neither related nor a control
    for distance in distances.unique():
        related = ((distances == distance) & (relations >= 0)).nonzero().flatten()
        unrelated = ((distances == distance) & (relations < 0)).nonzero().flatten()
        order = unrelated[torch.randperm(len(unrelated), generator=generator)]
        count = min(len(related), len(order) // 2)  # at least as many controls remain
        controls[order[:count]] = relations[related[:count]]
    return controls


def main() -> None:
    """Print how many heads, and how many by chance, exceed each threshold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    pairs = collect_pairs(parser.parse_args().model)
    weights, distances = torch.cat(pairs.weights, 1), torch.tensor(pairs.distances)
    relations, similarities = pairs.number_relations(), torch.tensor(pairs.similarities)
    names = sorted(set(pairs.relations) - {""})
    counts = Counter(name for name in pairs.relations if name)
    print(f"{len(weights)} heads, {len(distances)} pairs of words; relations {dict(counts.most_common())}")

    syntactic = compute_syntactic_margins(weights, distances, relations, len(names)).nan_to_num(-1).amax(0)
    semantic = compute_semantic_margins(weights, distances, similarities)
    generator = torch.Generator().manual_seed(0)
    syntactic_controls, semantic_controls = [], []
    for _ in range(DRAWS):
        drawn = draw_control_relations(distances, relations, generator)
        usable = drawn > -2
        margins = compute_syntactic_margins(weights[:, usable], distances[usable], drawn[usable], len(names))
        syntactic_controls.append(margins.nan_to_num(-1).amax(0))
        exchanged = similarities.clone()
        for distance in distances.unique():
            indices = ((distances == distance) & similarities.isfinite()).nonzero().flatten()
            exchanged[indices] = similarities[indices[torch.randperm(len(indices), generator=generator)]]
        margins_by_chance = compute_semantic_margins(weights, distances, exchanged)
        assert margins_by_chance is not None
        semantic_controls.append(margins_by_chance)

    print(f"{'threshold':>9}  {'syntactic':>9}  {'by chance':>9}  {'semantic':>9}  {'by chance':>9}")
    for threshold in THRESHOLDS:
        cells = [int((syntactic >= threshold).sum()), _count_mean(syntactic_controls, threshold)]
        cells += [
            0 if semantic is None else int((semantic >= threshold).sum()),
            _count_mean(semantic_controls, threshold),
        ]
        print(f"{threshold:>9}  " + "  ".join(f"{cell:>9.3g}" for cell in cells))
    margins_by_head = pairs.compute_margins()
    print("largest syntactic margins:")
    for head, margin in sorted(margins_by_head.items(), key=lambda row: -(row[1].syntactic or 0))[:12]:
        print(f"  {head[0]} {head[1]}: {margin.syntactic:.2f} ({margin.relation})")
    print("largest semantic margins:")
    for head, margin in sorted(margins_by_head.items(), key=lambda row: -(row[1].semantic or 0))[:6]:
        print(f"  {head[0]} {head[1]}: {margin.semantic:.2f}")


def _count_mean(draws: list[torch.Tensor], threshold: float) -> float:
    return sum(int((draw >= threshold).sum()) for draw in draws) / len(draws)


if __name__ == "__main__":
    main()
