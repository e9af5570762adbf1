"""Classify a model's heads on three kinds of text: the given one, repeated random tokens, and annotated sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data.tokenizers.token_labels import group_words
from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture
from jumok.lens.lens import Lens
from jumok.models import Model
from jumok.reporting import Progress, Report

from .head_kinds import HeadKind, classify_heads, sample_repeated_tokens
from .head_statistics import subtract_uniform
from .sentence_margins import ENGLISH_SENTENCES, KOREAN_SENTENCES, AnnotatedSentence, Head, SentenceMargin, WordPairs

REPEATED_LENGTH = 50  # random tokens, which are then repeated once

TokenizeWords = Callable[[str], tuple[list[int], list[range]]]  # a text's token ids, and the tokens of each word


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
    """Classifies the heads of a model with a single stack on built-in texts and on a given text."""

    def __init__(
        self,
        lens: Lens,
        tokenize_words: TokenizeWords | None = None,
        sites: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Run the model on repeated tokens and annotated sentences.

        Without ``tokenize_words`` no head is scored as syntactic; without ``sites`` all attentions are classified.
        """
        progress = progress or (lambda done, total: None)
        self._lens = lens
        self.on_repeats = _classify_on_repeats(lens, sites, progress)
        self.syntactic: dict[Head, float] = {}  # the mean score over the annotated sentences
        self.margins: dict[Head, SentenceMargin] = {}  # of related words of these sentences over control pairs
        if tokenize_words is not None:
            self.syntactic, self.margins = _score_sentences(lens, tokenize_words, sites, progress)

    def classify_on_text(
        self, capture: Capture, tokens: Sequence[int], site: str, queries: Tensor | None = None
    ) -> list[HeadKind]:
        """Classify the heads of one attention on a text, by all of its rows or those of some queries."""
        vectors = embed_tokens(self._lens, tokens)
        kinds = classify_heads(capture, list(tokens), vectors=vectors, sites=[site], queries=queries)
        return [self._add_sentence_scores(kind) for kind in kinds]

    def _add_sentence_scores(self, kind: HeadKind) -> HeadKind:
        head = (kind.site, kind.head)
        if head not in self.syntactic:
            return kind
        margins: dict[str, float | None] = {}
        if margin := self.margins.get(head):
            margins = {"syntactic_margin": margin.syntactic, "semantic_margin": margin.semantic}
        return replace(
            kind,
            scores={**kind.scores, "syntactic": self.syntactic[head], **margins},
            scores_without_first={**kind.scores_without_first, **margins},
        )


def build_profiler(
    lens: Lens,
    sites: Sequence[str] | None = None,
    progress: Progress | None = None,
    report: Report | None = None,
) -> HeadProfiler | None:
    """Return a profiler that finds words with the lens's tokenizer; None for a model that cannot read built-in texts.

    ``progress`` is called with the number of finished steps and their total, and ``report`` with a sentence about a
    model that cannot.
    """
    tokenizer = lens.tokenizer
    if tokenizer is None:
        return None

    def tokenize_words(text: str) -> tuple[list[int], list[range]]:
        token_ids = tokenizer.encode(text)
        # special tokens around the text do not belong to a word
        words = [positions for word, positions in group_words(tokenizer, token_ids) if word in text]
        return token_ids, words

    try:
        return HeadProfiler(lens, tokenize_words, sites, progress)
    except Exception as error:  # random tokens or the sentences may not fit a model of transformers
        if isinstance(lens.model, Model):
            raise
        if report is not None:
            report(f"heads are classified on this text only: {error}")
        return None


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


def _score_sentences(
    lens: Lens, tokenize_words: TokenizeWords, sites: Sequence[str] | None, progress: Progress
) -> tuple[dict[Head, float], dict[Head, SentenceMargin]]:
    """Compute the mean syntactic score over the sentences, as head_kinds.py defines it, and the margins in English.

    The Korean sentences have too few pairs of each relation for margins.
    """
    scores: dict[Head, list[float]] = {}
    english = WordPairs()
    sentences = (*ENGLISH_SENTENCES, *KOREAN_SENTENCES)
    limit = lens.facts.context_length
    for number, sentence in enumerate(sentences):
        progress(number, len(sentences))
        tokens, words = tokenize_words(sentence.text)
        arcs = expand_arcs(sentence, words)
        if not arcs or (limit is not None and len(tokens) > limit):
            continue
        capture = lens.run(tokens)
        ends = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
        ends[tuple(torch.tensor(arcs).T)] = True
        ends |= ends.T.clone()
        weights_by_head: dict[Head, Tensor] = {}
        for site in capture.sites.names if sites is None else sites:
            allowed = capture.attentions[site].evaluate_mask(0, 0, slice(None), slice(None)).cpu()
            for head in range(capture.heads(site)):
                weights_by_head[site, head] = capture.weights(site, head).float().cpu()
                weight = (weights_by_head[site, head] * ends).sum(-1)
                excess, is_defined = subtract_uniform(weight, ends, allowed)
                if is_defined.any():
                    scores.setdefault((site, head), []).append(float(excess[is_defined].mean()))
        if sentence in ENGLISH_SENTENCES:
            english.add_sentence(sentence, words, weights_by_head, allowed, embed_tokens(lens, tokens))
    return {head: sum(values) / len(values) for head, values in scores.items()}, english.compute_margins()


def embed_tokens(lens: Lens, tokens: Sequence[int]) -> Float[Tensor, "token width"] | None:
    """Return the rows of a model's embedding for some tokens; None if the model has no token embedding."""
    embedding = lens.facts.embedding
    if embedding is None:
        return None
    return embedding[torch.tensor(list(tokens), device=embedding.device)].detach().float().cpu()


def expand_arcs(sentence: AnnotatedSentence, words: Sequence[range]) -> list[tuple[int, int]]:
    """Convert the arcs between words to pairs of tokens (dependent, governor); empty if the number of words differs."""
    if len(words) != len(sentence.words):
        return []
    return [
        (dependent_token, governor_token)
        for dependent, governor in sentence.arcs
        for dependent_token in words[dependent]
        for governor_token in words[governor]
    ]
