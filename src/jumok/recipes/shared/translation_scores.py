"""How near translations come to references: BLEU (Papineni et al. 2002) and chrF (Popovic 2015), by sacrebleu."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .exact_match import sacrebleu

# Hangul, kana and Chinese characters: texts whose words sacrebleu cannot cut without a dictionary
_EAST_ASIAN = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7a3]")


def choose_bleu_tokenization(references: Iterable[str]) -> str:
    """How BLEU cuts such texts into words: "13a", its own way; "char" where a fifth of the letters is Hangul or the
    like, because their words need a dictionary (ko-mecab) that is not everywhere."""
    letters = "".join("".join(one.split()) for one in references)
    return "char" if len(_EAST_ASIAN.findall(letters)) >= 0.2 * max(1, len(letters)) else "13a"


def score_translations(translations: list[str], references: list[str], cut: str) -> dict[str, float]:
    """bleu and chrf of all of them together, from 0 to 100.

    >>> scored(["파일 열기"], ["파일 열기"], "char")
    {'bleu': 100.0, 'chrf': 100.0}
    """
    metrics = {"bleu": sacrebleu().BLEU(tokenize=cut), "chrf": sacrebleu().CHRF()}
    return {
        name: round(float(metric.corpus_score(translations, [references]).score), 2) for name, metric in metrics.items()
    }


def describe_scores(cut: str) -> str:
    """What was counted, in sacrebleu's own words, so that others can compare."""
    made = []
    for name, metric in (("BLEU", sacrebleu().BLEU(tokenize=cut)), ("chrF", sacrebleu().CHRF())):
        metric.corpus_score(["a"], [["a"]])  # a signature is known when something was scored
        made.append(f"{name} {metric.get_signature()}")
    return "; ".join(made)
