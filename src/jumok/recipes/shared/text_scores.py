"""Compare generated texts with references: exact match, word error rate, BLEU (Papineni et al. 2002) and chrF.

BLEU and chrF (Popovic 2015) are computed by the package sacrebleu, which is an optional dependency.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from jumok.errors import ArgumentError

# Hangul, kana and Chinese characters: sacrebleu cannot split such texts into words without a dictionary
_EAST_ASIAN = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7a3]")


def require_sacrebleu() -> None:
    """Raise an ArgumentError if sacrebleu is not installed. Recipes call this before they train."""
    try:
        import sacrebleu  # noqa: F401
    except ImportError:
        raise ArgumentError('BLEU and chrF need the package sacrebleu: pip install "jumok[train]"') from None


def compute_exact_match(texts: Sequence[str], references: Sequence[str]) -> float:
    """Return the share of texts that equal their references, from 0 to 1."""
    return sum(map(str.__eq__, texts, references)) / len(references)


def compute_word_error_rate(texts: Sequence[str], references: Sequence[str]) -> float:
    """Return the word error rate: the words to insert, delete or replace, over all words of the references.

    >>> compute_word_error_rate(["a cat sat", ""], ["the cat sat down", "no"])
    0.6
    """
    errors = sum(
        _count_edits(text.split(), reference.split()) for text, reference in zip(texts, references, strict=True)
    )
    return errors / sum(len(reference.split()) for reference in references)


def _count_edits(words: Sequence[str], reference: Sequence[str]) -> int:
    """Return the edit distance (Levenshtein 1966)."""
    distances = list(range(len(reference) + 1))
    for count, word in enumerate(words, 1):
        diagonal, distances[0] = distances[0], count
        for index, expected in enumerate(reference, 1):
            replaced = diagonal + (word != expected)
            diagonal = distances[index]
            distances[index] = min(replaced, diagonal + 1, distances[index - 1] + 1)
    return distances[-1]


def compute_bleu(texts: Sequence[str], references: Sequence[str], tokenization: str = "none") -> float:
    """Return the corpus BLEU of the texts, from 0 to 100; sacrebleu splits them at spaces ("none"), by "13a" or "char".

    >>> compute_bleu(["1 2 3 4 5"], ["1 2 3 4 5"]), compute_bleu(["5 4 3"], ["1 2 3 4 5"]) < 10
    (100.0, True)
    """
    require_sacrebleu()
    from sacrebleu import BLEU

    metric = BLEU(tokenize=tokenization, force=True)  # force: no warning about texts that are tokenized already
    score = metric.corpus_score(list(texts), [list(references)]).score
    return min(100.0, float(score))  # rounding in sacrebleu can exceed 100 by one bit


def compute_chrf(texts: Sequence[str], references: Sequence[str]) -> float:
    """Return the corpus chrF of the texts (F-score of character n-grams up to 6), from 0 to 100."""
    require_sacrebleu()
    from sacrebleu import CHRF

    return float(CHRF().corpus_score(list(texts), [list(references)]).score)


def score_translations(translations: list[str], references: list[str], tokenization: str) -> dict[str, float]:
    """Return the corpus BLEU and chrF, each from 0 to 100 and rounded to two decimals.

    >>> score_translations(["파일 열기"], ["파일 열기"], "char")
    {'bleu': 100.0, 'chrf': 100.0}
    """
    return {
        "bleu": round(compute_bleu(translations, references, tokenization), 2),
        "chrf": round(compute_chrf(translations, references), 2),
    }


def contains_hangul(text: str) -> bool:
    """Return True if a text contains a Korean syllable."""
    return any("가" <= letter <= "힣" for letter in text)


def choose_bleu_tokenization(references: Iterable[str]) -> str:
    """Return "char" if at least a fifth of the letters is East Asian, else "13a", sacrebleu's default.

    Korean words would need a dictionary (ko-mecab) that is not installed everywhere.
    """
    letters = "".join("".join(text.split()) for text in references)
    return "char" if len(_EAST_ASIAN.findall(letters)) >= 0.2 * max(1, len(letters)) else "13a"


def describe_scores(tokenization: str) -> str:
    """Return sacrebleu's signatures of BLEU and chrF, which make the scores reproducible."""
    require_sacrebleu()
    from sacrebleu import BLEU, CHRF

    signatures = []
    for name, metric in (("BLEU", BLEU(tokenize=tokenization)), ("chrF", CHRF())):
        metric.corpus_score(["a"], [["a"]])  # the signature is complete only after scoring a text
        signatures.append(f"{name} {metric.get_signature()}")
    return "; ".join(signatures)
