"""Syntactic and semantic margins: heads built to follow syntax, similarity or distance only, and untrained heads."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from jumok.cli import cli
from jumok.data.tokenizers.token_labels import group_words
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.lens import Lens, classify_heads, profile_heads
from jumok.lens.describe.head_kinds import HeadKind
from jumok.lens.describe.sentence_margins import ENGLISH_SENTENCES, AnnotatedSentence, SentenceMargin, WordPairs
from jumok.models.gpt import GPT, GPTConfig

CAUSAL_HEADS = ("subject", "previous", "similar", "sink")


def build_tables(sentence: AnnotatedSentence, vectors: torch.Tensor) -> dict[tuple[str, int], torch.Tensor]:
    """Weights of causal heads with a known behaviour, one token for each word after a first token."""
    n = len(sentence.words) + 1
    subject, previous, similar = (torch.eye(n) for _ in range(3))
    for word, governor in sentence.arcs:
        if sentence.relations[word] == "nsubj" and word < governor:
            subject[governor + 1] = torch.eye(n)[word + 1]
    for row in range(1, n):
        previous[row] = torch.eye(n)[row - 1]
        if row > 1:
            similar[row] = 0
            similar[row, 1:row] = (8 * (vectors[1:row] @ vectors[row])).softmax(0)
    sink = 0.05 * subject
    sink[:, 0] += 0.95  # the subject head again, but with nearly all weight on the first token
    return {("site", index): table for index, table in enumerate((subject, previous, similar, sink))}


@pytest.fixture(scope="module")
def margins() -> dict[str, SentenceMargin]:
    generator = torch.Generator().manual_seed(0)
    words = {word.lower() for sentence in ENGLISH_SENTENCES for word in sentence.words}
    embedding = {word: torch.randn(8, generator=generator) for word in sorted(words)}
    pairs = WordPairs()
    for sentence in ENGLISH_SENTENCES:
        vectors = torch.stack([torch.zeros(8), *(embedding[word.lower()] for word in sentence.words)])
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
        n = len(vectors)
        token_ranges = [range(word + 1, word + 2) for word in range(n - 1)]
        allowed = torch.ones(n, n).tril().bool()
        pairs.add_sentence(sentence, token_ranges, build_tables(sentence, vectors), allowed, vectors)
    by_head = pairs.compute_margins()
    return {name: by_head["site", index] for index, name in enumerate(CAUSAL_HEADS)}


def test_a_head_that_follows_subjects_is_distinguished_from_one_that_follows_distance(margins: Any) -> None:
    assert margins["subject"].syntactic > 0.9 and margins["subject"].relation == "nsubj, backward"
    assert abs(margins["previous"].syntactic) < 1e-6, "the controls have the same distance"
    assert margins["subject"].semantic < 0.2


def test_a_head_that_follows_similarity_is_semantic(margins: Any) -> None:
    assert margins["similar"].semantic > 0.5
    assert abs(margins["previous"].semantic) < 1e-6


def test_the_first_token_does_not_hide_the_rest(margins: Any) -> None:
    assert margins["sink"].syntactic == pytest.approx(margins["subject"].syntactic, abs=1e-5)


def test_heads_are_named_by_their_margins() -> None:
    def name(**scores: float | None) -> str:
        return HeadKind("site", 0, dict(scores), 0.0, 0.0).name

    assert name(syntactic_margin=0.41, previous=0.40) == "syntactic" and name(syntactic_margin=0.39) == "mixed"
    assert name(syntactic_margin=0.41, previous=0.9) == "previous"
    assert name(semantic_margin=0.21, local=0.9) == "semantic" and name(semantic_margin=0.19, local=0.9) == "local"
    assert name(syntactic_margin=None, semantic_margin=None) == "mixed"


def test_an_untrained_model_has_no_syntactic_or_semantic_head() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=256, length=128, width=32, layers=3, heads=4, hidden=32))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)  # otherwise every head is uniform
    tokenizer = Tokenizer.for_bytes()

    def tokenize_words(text: str) -> tuple[list[int], list[range]]:
        tokens = tokenizer.encode(text)
        return tokens, [positions for _, positions in group_words(tokenizer, tokens)]

    tokens = tokenizer.encode("The bank can guarantee deposits")
    with Lens(model) as lens:
        profiles = profile_heads(lens, lens.run(tokens), tokens, tokenize_words)
    scores = [profile.on_text.scores for profile in profiles]
    assert all(row["syntactic_margin"] is not None and row["semantic_margin"] is not None for row in scores)
    names = {kind for profile in profiles for kind in (profile.on_text.name, profile.on_text.name_without_first)}
    assert not names & {"syntactic", "semantic"}


def test_scores_without_the_first_token_equal_plain_loops() -> None:
    torch.manual_seed(1)
    model = GPT(GPTConfig(vocabulary=7, length=16, width=16, layers=1, heads=2, hidden=16))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)
    tokens, vectors = [1, 2, 3, 1, 2, 4, 5, 1, 3], torch.randn(9, 5)
    with Lens(model) as lens:
        capture = lens.run(tokens)
    cosines = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
    for kind in classify_heads(capture, tokens, vectors=vectors):
        weights = capture.weights(0, kind.head)
        rows = [[float(cell) / max(float(row[1:].sum()), 1e-30) for cell in row] for row in weights]
        scores = kind.scores_without_first
        assert scores["previous"] == pytest.approx(sum(rows[i][i - 1] for i in range(2, 9)) / 7, abs=1e-4)
        assert scores["own"] == pytest.approx(sum(rows[i][i] for i in range(1, 9)) / 8, abs=1e-4)
        assert scores["first"] is None
        cells = [(i, j) for i in range(9) for j in range(1, i)]
        pairs = torch.tensor([[rows[i][j], float(cosines[i, j])] for i, j in cells]).T
        assert scores["semantic"] == pytest.approx(float(torch.corrcoef(pairs)[0, 1]), abs=1e-3)


def test_look_prints_all_scores() -> None:
    def run(*arguments: str) -> str:
        return CliRunner().invoke(cli, ["look", *arguments], catch_exceptions=False).output

    text = run("the cat sat; the cat", "--scores")
    heading = next(line for line in text.splitlines() if "syntactic_margin" in line)
    assert {"semantic_margin", "first", "uniform"} <= set(heading.split())
    shown = json.loads(run("the cat sat; the cat", "--json"))
    induction = shown["heads"][2]
    line = next(line for line in text.splitlines() if line.startswith("  1.0  ") and "(" not in line)
    assert f"{induction['scores']['induction']:.2f}" == line.split()[1]
    assert induction["kind_without_first"] == "induction" and "first" not in induction["scores_without_first"]
    assert "give one of them" in run("the cat", "--scores", "--query", "c")
