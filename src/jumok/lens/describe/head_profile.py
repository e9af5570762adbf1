"""Classify a model's heads on three kinds of text: the given one, repeated random tokens, and annotated sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture
from jumok.lens.lens import Lens

from .annotated_sentences import ENGLISH_SENTENCES, KOREAN_SENTENCES, AnnotatedSentence
from .head_kinds import HeadKind, classify_heads, sample_repeated_tokens
from .head_statistics import subtract_uniform

REPEATED_LENGTH = 50  # random tokens, which are then repeated once

TokenizeWords = Callable[[str], tuple[list[int], list[range]]]  # a text's token ids, and the tokens of each word
Progress = Callable[[int, int], None]  # finished steps, total
Head = tuple[str, int]  # site, head


@dataclass(frozen=True)
class HeadProfile:
    """The kinds of one head.

    Attributes:
        site: The attention's site name.
        head: The head.
        on_text: Its kind on the text.
        on_repeats: Its kind on repeated random tokens; None where the model's context is too short for them.
    """

    site: str
    head: int
    on_text: HeadKind
    on_repeats: HeadKind | None


class HeadProfiler:
    """Classifies the heads of a model with a single stack on built-in texts and on a given text.

    Attributes:
        on_repeats: The kind of each head on repeated random tokens, by (site, head).
        syntactic: The mean syntactic score of each head over the annotated sentences, by (site, head).
    """

    def __init__(
        self,
        lens: Lens,
        tokenize_words: TokenizeWords | None = None,
        sites: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Run the model on repeated tokens and annotated sentences.

        Args:
            lens: An open lens.
            tokenize_words: Returns a text's token ids and the tokens of each word; without it no head is scored as
                syntactic.
            sites: Only these attentions; default: all.
            progress: Called with the number of finished steps and their total.
        """
        report = progress or (lambda done, total: None)
        self._embedding = lens.facts.embedding
        self.on_repeats = _classify_on_repeats(lens, sites, report)
        self.syntactic = {} if tokenize_words is None else _score_syntactic(lens, tokenize_words, sites, report)

    def classify_on_text(self, capture: Capture, tokens: Sequence[int], site: str) -> list[HeadKind]:
        """Classify the heads of one attention on a text.

        Args:
            capture: A capture of the text.
            tokens: The token ids of the text.
            site: The attention's site name.
        """
        vectors = None
        if self._embedding is not None:
            vectors = self._embedding[torch.tensor(list(tokens), device=self._embedding.device)]
        kinds = classify_heads(capture, list(tokens), vectors=vectors, sites=[site])
        return [self._add_syntactic_score(kind) for kind in kinds]

    def _add_syntactic_score(self, kind: HeadKind) -> HeadKind:
        score = self.syntactic.get((kind.site, kind.head))
        return kind if score is None else replace(kind, scores={**kind.scores, "syntactic": score})


def profile_heads(
    lens: Lens, capture: Capture, tokens: Sequence[int], tokenize_words: TokenizeWords | None = None
) -> list[HeadProfile]:
    """Classify every head on a text, on repeated random tokens and on annotated sentences.

    Args:
        lens: An open lens.
        capture: A capture of the text, made by this lens.
        tokens: The token ids of the text.
        tokenize_words: Returns a text's token ids and the tokens of each word; without it no head is scored as
            syntactic.
    """
    if not isinstance(lens, Lens) or not isinstance(capture, Capture):
        raise ArgumentError("profile_heads needs an open lens, a capture made by it, and the captured token ids")
    profiler = HeadProfiler(lens, tokenize_words)
    return [
        HeadProfile(site, kind.head, kind, profiler.on_repeats.get((site, kind.head)))
        for site in capture.sites.names
        for kind in profiler.classify_on_text(capture, tokens, site)
    ]


def _fits(lens: Lens, length: int) -> bool:
    """Return whether a text of this length fits into the model's context."""
    return lens.facts.context_length is None or length <= lens.facts.context_length


def _classify_on_repeats(lens: Lens, sites: Sequence[str] | None, progress: Progress) -> dict[Head, HeadKind]:
    """Classify heads on repeated random tokens; empty where the model reads no tokens or its context is too short."""
    limit = lens.facts.context_length
    length = REPEATED_LENGTH if limit is None else min(REPEATED_LENGTH, limit // 2)
    if length < 2 or lens.facts.vocabulary is None:
        return {}
    tokens = sample_repeated_tokens(lens.facts.vocabulary, length).tolist()
    capture = lens.run(tokens)
    selected = capture.sites.names if sites is None else list(sites)
    kinds: dict[Head, HeadKind] = {}
    for number, site in enumerate(selected):
        kinds |= {(kind.site, kind.head): kind for kind in classify_heads(capture, tokens, sites=[site])}
        progress(number + 1, len(selected))
    return kinds


def _score_syntactic(
    lens: Lens, tokenize_words: TokenizeWords, sites: Sequence[str] | None, progress: Progress
) -> dict[Head, float]:
    """Compute the mean syntactic score over the sentences, as head_kinds.py defines it."""
    scores: dict[Head, list[float]] = {}
    sentences = (*ENGLISH_SENTENCES, *KOREAN_SENTENCES)
    for number, sentence in enumerate(sentences):
        progress(number, len(sentences))
        tokens, words = tokenize_words(sentence.text)
        arcs = expand_arcs(sentence, words)
        if not arcs or not _fits(lens, len(tokens)):
            continue
        capture = lens.run(tokens)
        ends = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
        ends[tuple(torch.tensor(arcs).T)] = True
        ends |= ends.T.clone()
        for site in capture.sites.names if sites is None else sites:
            allowed = capture.attentions[site].evaluate_mask(0, 0, slice(None), slice(None)).cpu()
            for head in range(capture.heads(site)):
                weight = (capture.weights(site, head).float().cpu() * ends).sum(-1)
                excess, is_defined = subtract_uniform(weight, ends, allowed)
                if is_defined.any():
                    scores.setdefault((site, head), []).append(float(excess[is_defined].mean()))
    return {head: sum(values) / len(values) for head, values in scores.items()}


def expand_arcs(sentence: AnnotatedSentence, words: Sequence[range]) -> list[tuple[int, int]]:
    """Convert a sentence's arcs between words to pairs of tokens.

    Args:
        sentence: The sentence.
        words: The tokens of each word.

    Returns:
        All pairs (token of the dependent, token of the governor); empty if the number of words differs.
    """
    if len(words) != len(sentence.words):
        return []
    return [
        (dependent_token, governor_token)
        for dependent, governor in sentence.arcs
        for dependent_token in words[dependent]
        for governor_token in words[governor]
    ]
