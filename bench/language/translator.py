"""Count the held-out sentences that the model ``translator`` translates exactly, by pattern and direction.

    python bench/language/translator.py [--model translator] [--sentences 4000]

The sentences are of another seed than those of the training run, and their combinations of words are not in its data.
"Lost not" are negative sentences whose translation has no negation.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter

import jumok
from jumok.data.datasets.korean_english_sentences import SentencePair, make_sentence_pairs
from jumok.recipes.language.translate import translate_texts

SEED = 5
NEGATION = re.compile(r"n't\b|\bnot\b|\bno\b|않|아니|아닙|없")


def name_reading(pair: SentencePair, is_korean: bool) -> str:
    """Return how the source differs from the sentence that the model would write."""
    if is_korean:
        return "same" if pair.variant == pair.korean else "variant"
    return "same" if pair.english_variant == pair.english else "variant"


def main() -> None:
    """Translate and print one row for each direction, pattern and reading."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="translator")
    parser.add_argument("--sentences", type=int, default=4000)
    options = parser.parse_args()
    loaded = jumok.load(options.model)
    pairs = make_sentence_pairs(options.sentences, "held-out", SEED)
    counts, exact, lost = Counter[str](), Counter[str](), Counter[str]()
    for is_korean in (True, False):
        sources = [pair.variant if is_korean else pair.english_variant for pair in pairs]
        translations = translate_texts(loaded.model, loaded.require_tokenizer(), sources)
        for pair, translation in zip(pairs, translations, strict=True):
            pattern = pair.pattern.rpartition(", ")[0]
            row = f"{'ko-en' if is_korean else 'en-ko'} | {pattern} | {name_reading(pair, is_korean)}"
            for key in (row, "all"):
                counts[key] += 1
                exact[key] += translation == (pair.english if is_korean else pair.korean)
                lost[key] += "negat" in pattern and NEGATION.search(translation) is None
    print("| direction | pattern | source | sentences | exact | lost not |\n|---|---|---|---|---|---|")
    for key in [*sorted(set(counts) - {"all"}), "all"]:
        print(f"| {key} | {counts[key]:,} | {exact[key] / counts[key]:.1%} | {lost[key]:,} |")


if __name__ == "__main__":
    main()
