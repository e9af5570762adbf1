"""Measure the model ``translator``: held-out sentences by pattern and direction, and sixty everyday sentences.

    python bench/language/translator.py [--model translator] [--sentences 4000] [--level everyday]
    python bench/language/translator.py --everyday [--model translator]

The held-out sentences are of another seed than those of the training run, and their combinations of words are not in
its data. "Lost not" are negative sentences whose translation has no negation. The everyday sentences are in
``everyday.toml``, with the accepted translations; "seen" is one that the training data contains.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import jumok
from jumok.checkpoint import Loaded
from jumok.data.datasets.korean.sentences import (
    TRAINING_COUNT,
    SentencePair,
    list_phrase_pairs,
    make_sentence_pairs,
)
from jumok.errors import ArgumentError
from jumok.recipes.language.translate import translate_texts
from jumok.recipes.shared.text_scores import choose_bleu_tokenization, score_translations

SEED = 5
NEGATION = re.compile(r"n't\b|\bnot\b|\bno\b|않|아니|아닙|없|못|마세요")


def measure_patterns(loaded: Loaded, pairs: list[SentencePair]) -> None:
    """Translate and print one row for each direction and pattern."""
    print("| direction | pattern | sentences | exact | BLEU | chrF | lost not |\n|---|---|---|---|---|---|---|")
    for is_korean in (True, False):
        sources = [pair.variant if is_korean else pair.english_variant for pair in pairs]
        references = [pair.english if is_korean else pair.korean for pair in pairs]
        translations = translate_texts(loaded.model, loaded.require_tokenizer(), sources)
        rows = defaultdict(list)
        for index, pair in enumerate(pairs):
            for pattern in (pair.pattern.rpartition(", ")[0], "all"):
                rows[pattern].append(index)
        for pattern in [*sorted(set(rows) - {"all"}), "all"]:
            indices = rows[pattern]
            answers, expected = [translations[i] for i in indices], [references[i] for i in indices]
            scores = score_translations(answers, expected, choose_bleu_tokenization(references))
            exact = sum(a == b for a, b in zip(answers, expected, strict=True)) / len(indices)
            lost = sum(bool(NEGATION.search(references[i])) and not NEGATION.search(translations[i]) for i in indices)
            direction = "ko-en" if is_korean else "en-ko"
            print(
                f"| {direction} | {pattern} | {len(indices):,} | {exact:.1%} | {scores['bleu']:.1f} | "
                f"{scores['chrf']:.1f} | {lost:,} |"
            )


def measure_everyday(loaded: Loaded) -> None:
    """Translate the everyday sentences and print the answers as they are."""
    data = tomllib.loads(Path(__file__).with_name("everyday.toml").read_text("utf-8"))
    pairs = [*make_sentence_pairs(TRAINING_COUNT), *list_phrase_pairs()]
    sources = {text for pair in pairs for text in (pair.korean, pair.variant, pair.english, pair.english_variant)}
    for name, rows in data.items():
        print(f"\n| {name} | answer | right | seen |\n|---|---|---|---|")
        right = new = new_right = 0
        for source, *accepted in rows:
            try:
                answer = str(jumok.run(loaded, source))
            except ArgumentError as error:
                answer = f"refused: {error}"
            is_right, is_seen = answer in accepted, source in sources
            right += is_right
            new += not is_seen
            new_right += is_right and not is_seen
            print(f"| {source} | {answer} | {'yes' if is_right else 'no'} | {'yes' if is_seen else 'no'} |")
        print(f"\n{right} of {len(rows)} are right; of the {new} that the training data does not contain, {new_right}.")


def main() -> None:
    """Measure the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="translator")
    parser.add_argument("--sentences", type=int, default=4000)
    parser.add_argument("--level", choices=("everyday", "simple"), default="everyday")
    parser.add_argument("--everyday", action="store_true", help="translate the everyday sentences")
    options = parser.parse_args()
    loaded = jumok.load(options.model)
    if options.everyday:
        measure_everyday(loaded)
    else:
        measure_patterns(loaded, make_sentence_pairs(options.sentences, "held-out", SEED, options.level))


if __name__ == "__main__":
    main()
