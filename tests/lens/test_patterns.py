"""Kinds of heads: scores equal plain loops over the weights, and heads of a known kind are recognised."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import jumok
from jumok.errors import ArgumentError
from jumok.lens import Lens, classify_heads, profile_heads, sample_repeated_tokens
from jumok.lens.describe import head_statistics
from jumok.models.gpt import GPT, GPTConfig


@pytest.fixture(scope="module")
def tiny() -> Any:
    return jumok.load("tiny")


def test_the_heads_of_tiny_are_recognised(tiny: Any) -> None:
    tokens = sample_repeated_tokens(256, 60, seed=3)
    with Lens(tiny) as lens:
        kinds = classify_heads(lens.run(tokens[None]), tokens)
    names = {(kind.site, kind.head): kind.name for kind in kinds}
    assert names[("blocks.0.attention", 0)] == "previous"
    assert names[("blocks.1.attention", 0)] == "induction"
    assert names[("blocks.1.attention", 1)] == "uniform", "it was never trained"
    induction = kinds[2].scores["induction"]
    assert induction is not None and induction > 0.9


def test_scores_equal_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=6, length=16, width=16, layers=1, heads=2, hidden=16))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)
    tokens = [1, 2, 3, 1, 2, 4, 5, 1, 3, 3, 0, 2]
    n, arcs, vectors = len(tokens), [(4, 1), (7, 9)], torch.randn(12, 5)
    with Lens(model) as lens:
        capture = lens.run(tokens)
    monkeypatch.setattr(head_statistics, "MAX_WEIGHTS", 30)  # several tiles
    kinds = classify_heads(capture, tokens, separators=[0, 5], arcs=arcs, vectors=vectors)
    for head in range(2):
        weights = capture.weights(0, head)

        def average(belongs: Any, weights: Any = weights) -> float:
            sums = []
            for i in range(n):
                cells = [j for j in range(n) if belongs(i, j)]
                if cells:
                    sums.append(sum(float(weights[i, j]) for j in cells))
            return sum(sums) / len(sums)

        scores = kinds[head].scores
        loops = {
            "previous": lambda i, j: j == i - 1,
            "own": lambda i, j: j == i,
            "first": lambda i, j: j == 0 and i > 0,
            "local": lambda i, j: abs(i - j) <= 3,
            "duplicate": lambda i, j: j < i and tokens[j] == tokens[i],
            "induction": lambda i, j: 0 < j <= i and j - 1 < i and tokens[j - 1] == tokens[i],
            "separator": lambda i, j: j in (0, 5) and j <= i,
        }
        for name, belongs in loops.items():
            assert scores[name] == pytest.approx(average(belongs), abs=1e-5), name
        excess = []
        for i in range(n):
            ends = [j for j in range(i + 1) if (i, j) in arcs or (j, i) in arcs]
            if ends:
                uniform = len(ends) / (i + 1)
                excess.append((sum(float(weights[i, j]) for j in ends) - uniform) / (1 - uniform))
        assert scores["syntactic"] == pytest.approx(sum(excess) / len(excess), abs=1e-5)
        entropy = [-sum(float(w) * math.log(w) for w in row.tolist() if w > 0) for row in weights]
        assert kinds[head].entropy == pytest.approx(sum(entropy) / n, abs=1e-5)
        assert scores["uniform"] == pytest.approx(
            sum(row / math.log(i + 1) for i, row in enumerate(entropy) if i) / (n - 1), abs=1e-5
        )
        distance = sum(float(weights[i, j]) * abs(i - j) for i in range(n) for j in range(n)) / n
        assert kinds[head].distance == pytest.approx(distance, abs=1e-5)
        cells = [(i, j) for i in range(n) for j in range(i)]  # a token is most similar to itself
        cosines = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
        pairs = torch.tensor([[float(weights[i, j]), float(cosines[i, j])] for i, j in cells]).T
        assert scores["semantic"] == pytest.approx(float(torch.corrcoef(pairs)[0, 1]), abs=1e-4)
        profile = [sum(float(weights[i, i - d]) for i in range(d, n)) / (n - d) for d in range(n)]
        similarities = []
        for i in range(1, n):
            expected = [profile[i - j] for j in range(i + 1)]
            expected = [weight / sum(expected) for weight in expected]
            similarities.append(1 - sum(abs(float(weights[i, j]) - expected[j]) for j in range(i + 1)) / 2)
        assert scores["positional"] == pytest.approx(sum(similarities) / len(similarities), abs=1e-5)


def test_a_text_without_repetition_has_no_induction_score(tiny: Any) -> None:
    with Lens(tiny) as lens:
        kinds = classify_heads(lens.run(list(range(10))), list(range(10)))
    assert kinds[0].scores["duplicate"] is None and kinds[0].scores["induction"] is None


def test_invalid_arguments_raise(tiny: Any) -> None:
    with Lens(tiny) as lens:
        capture = lens.run(list(range(10)))
    with pytest.raises(ArgumentError, match="no self-attention over 9 tokens"):
        classify_heads(capture, list(range(9)))
    with pytest.raises(ArgumentError, match="position 99 does not exist"):
        classify_heads(capture, list(range(10)), separators=[99])
    with pytest.raises(ArgumentError, match="give one vector per token"):
        classify_heads(capture, list(range(10)), vectors=torch.randn(3, 4))


def test_repeated_tokens_repeat_once() -> None:
    tokens = sample_repeated_tokens(100, 20, seed=1, start=7)
    assert tokens[0] == 7 and torch.equal(tokens[1:21], tokens[21:]) and len(tokens) == 41


def test_annotated_sentences_are_trees_and_their_arcs_expand_to_tokens() -> None:
    from jumok.data.tokenizers.token_labels import group_words
    from jumok.data.tokenizers.tokenizer import Tokenizer
    from jumok.lens.describe.head_profile import expand_arcs
    from jumok.lens.describe.sentence_margins import ENGLISH_SENTENCES, KOREAN_SENTENCES

    tokenizer = Tokenizer.for_bytes()
    for sentence in (*ENGLISH_SENTENCES, *KOREAN_SENTENCES):
        assert sorted(sentence.governors)[:2].count(-1) == 1, "one root"
        for word in range(len(sentence.words)):
            visited = set()
            while word >= 0:  # every word leads to the root
                assert word not in visited
                visited.add(word)
                word = sentence.governors[word]
        ids = tokenizer.encode(sentence.text)
        words = [tokens for _, tokens in group_words(tokenizer, ids)]
        arcs = set(expand_arcs(sentence, words))
        for dependent, governor in sentence.arcs:
            assert (words[dependent][-1], words[governor][0]) in arcs
        assert expand_arcs(sentence, words[1:]) == [], "another number of words"


def test_a_profile_classifies_heads_on_further_texts(tiny: Any) -> None:
    with Lens(tiny) as lens:
        tokens = tiny.tokenizer.encode("abcdefgh")  # nothing repeats
        profiles = {(head.site, head.head): head for head in profile_heads(lens, lens.run(tokens), tokens)}
    head = profiles["blocks.1.attention", 0]
    assert head.on_text.scores["induction"] is None and head.on_text.name != "induction"
    assert head.on_repeats is not None and head.on_repeats.name == "induction"
    assert profiles["blocks.1.attention", 1].on_text.name == "uniform"


def test_annotated_sentences_are_scored_as_by_classify_heads(tiny: Any) -> None:
    from jumok.data.tokenizers.token_labels import group_words
    from jumok.lens.describe.head_profile import HeadProfiler, expand_arcs
    from jumok.lens.describe.sentence_margins import ENGLISH_SENTENCES, KOREAN_SENTENCES

    def tokenize_words(text: str) -> tuple[list[int], list[range]]:
        tokens = tiny.tokenizer.encode(text)
        return tokens, [word_tokens for _, word_tokens in group_words(tiny.tokenizer, tokens)]

    scores: dict[tuple[str, int], list[float]] = {}
    with Lens(tiny) as lens:
        syntactic = HeadProfiler(lens, tokenize_words).syntactic
        for sentence in (*ENGLISH_SENTENCES, *KOREAN_SENTENCES):
            tokens, words = tokenize_words(sentence.text)
            for kind in classify_heads(lens.run(tokens), tokens, arcs=expand_arcs(sentence, words)):
                score = kind.scores["syntactic"]
                assert score is not None
                scores.setdefault((kind.site, kind.head), []).append(score)
    expected = {head: sum(head_scores) / len(head_scores) for head, head_scores in scores.items()}
    assert syntactic == pytest.approx(expected, abs=1e-6)
