"""Kinds of heads: scores equal to plain loops over the weights, and right about heads that are known."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import jumok
from jumok.errors import ArgumentError
from jumok.lens import Lens
from jumok.lens.describe import head_kinds
from jumok.lens.describe.head_kinds import classify_heads, draw_repeated_tokens
from jumok.models.gpt import GPT, GPTConfig


@pytest.fixture(scope="module")
def tiny() -> Any:
    return jumok.load("tiny")


def test_the_heads_of_tiny_are_what_they_are_known_to_be(tiny: Any) -> None:
    tokens = draw_repeated_tokens(256, 60, seed=3)
    with Lens(tiny) as lens:
        found = classify_heads(lens.run(tokens[None]), tokens)
    names = {(one.site, one.head): one.name for one in found}
    assert names[("blocks.0.attention", 0)] == "previous"
    assert names[("blocks.1.attention", 0)] == "induction"
    assert names[("blocks.1.attention", 1)] == "uniform", "it was never trained"
    induction = found[2].scores["induction"]
    assert induction is not None and induction > 0.9


def test_scores_are_those_of_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=6, length=16, width=16, layers=1, heads=2, hidden=16))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)
    tokens = [1, 2, 3, 1, 2, 4, 5, 1, 3, 3, 0, 2]
    n, arcs, vectors = len(tokens), [(4, 1), (7, 9)], torch.randn(12, 5)
    with Lens(model) as lens:
        run = lens.run(tokens)
    monkeypatch.setattr(head_kinds, "AT_ONCE", 30)  # several blocks of rows
    found = classify_heads(run, tokens, separators=[0, 5], arcs=arcs, vectors=vectors)
    for head in range(2):
        weights = run.weights(0, head)

        def mean(looked_at: Any, weights: Any = weights) -> float:
            sums = []
            for i in range(n):
                cells = [j for j in range(n) if looked_at(i, j)]
                if cells:
                    sums.append(sum(float(weights[i, j]) for j in cells))
            return sum(sums) / len(sums)

        scores = found[head].scores
        loops = {
            "previous": lambda i, j: j == i - 1,
            "own": lambda i, j: j == i,
            "first": lambda i, j: j == 0 and i > 0,
            "local": lambda i, j: abs(i - j) <= 3,
            "duplicate": lambda i, j: j < i and tokens[j] == tokens[i],
            "induction": lambda i, j: 0 < j <= i and j - 1 < i and tokens[j - 1] == tokens[i],
            "separator": lambda i, j: j in (0, 5) and j <= i,
        }
        for name, looked_at in loops.items():
            assert scores[name] == pytest.approx(mean(looked_at), abs=1e-5), name
        beyond = []
        for i in range(n):
            ends = [j for j in range(i + 1) if (i, j) in arcs or (j, i) in arcs]
            if ends:
                even = len(ends) / (i + 1)
                beyond.append((sum(float(weights[i, j]) for j in ends) - even) / (1 - even))
        assert scores["syntactic"] == pytest.approx(sum(beyond) / len(beyond), abs=1e-5)
        entropy = [-sum(float(w) * math.log(w) for w in row.tolist() if w > 0) for row in weights]
        assert found[head].entropy == pytest.approx(sum(entropy) / n, abs=1e-5)
        assert scores["uniform"] == pytest.approx(
            sum(one / math.log(i + 1) for i, one in enumerate(entropy) if i) / (n - 1), abs=1e-5
        )
        distance = sum(float(weights[i, j]) * abs(i - j) for i in range(n) for j in range(n)) / n
        assert found[head].distance == pytest.approx(distance, abs=1e-5)
        cells = [(i, j) for i in range(n) for j in range(i + 1)]
        cosines = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
        both = torch.tensor([[float(weights[i, j]), float(cosines[i, j])] for i, j in cells]).T
        assert scores["semantic"] == pytest.approx(float(torch.corrcoef(both)[0, 1]), abs=1e-4)
        mean_at = [sum(float(weights[i, i - d]) for i in range(d, n)) / (n - d) for d in range(n)]
        close = []
        for i in range(1, n):
            expected = [mean_at[i - j] for j in range(i + 1)]
            expected = [one / sum(expected) for one in expected]
            close.append(1 - sum(abs(float(weights[i, j]) - expected[j]) for j in range(i + 1)) / 2)
        assert scores["positional"] == pytest.approx(sum(close) / len(close), abs=1e-5)


def test_a_text_without_repeats_says_nothing_of_induction(tiny: Any) -> None:
    with Lens(tiny) as lens:
        found = classify_heads(lens.run(list(range(10))), list(range(10)))
    assert found[0].scores["duplicate"] is None and found[0].scores["induction"] is None


def test_what_does_not_fit_is_refused(tiny: Any) -> None:
    with Lens(tiny) as lens:
        run = lens.run(list(range(10)))
    with pytest.raises(ArgumentError, match="looks from 9 tokens"):
        classify_heads(run, list(range(9)))
    with pytest.raises(ArgumentError, match="99 is none of them"):
        classify_heads(run, list(range(10)), separators=[99])
    with pytest.raises(ArgumentError, match="give one for each"):
        classify_heads(run, list(range(10)), vectors=torch.randn(3, 4))


def test_repeats_are_the_same_twice() -> None:
    tokens = draw_repeated_tokens(100, 20, seed=1, start=7)
    assert tokens[0] == 7 and torch.equal(tokens[1:21], tokens[21:]) and len(tokens) == 41


def test_sentences_are_trees_and_their_arcs_reach_tokens() -> None:
    from jumok.data.tokenizers.token_labels import group_words
    from jumok.data.tokenizers.tokenizer import Tokenizer
    from jumok.lens.describe.annotated_sentences import ENGLISH_SENTENCES, KOREAN_SENTENCES
    from jumok.lens.describe.head_profile import expand_arcs

    tokenizer = Tokenizer.for_bytes()
    for sentence in (*ENGLISH_SENTENCES, *KOREAN_SENTENCES):
        assert sorted(sentence.governors)[:2].count(-1) == 1, "one root"
        for word in range(len(sentence.words)):
            seen = set()
            while word >= 0:  # every word leads to the root
                assert word not in seen
                seen.add(word)
                word = sentence.governors[word]
        ids = tokenizer.encode(sentence.text)
        places = [one for _, one in group_words(tokenizer, ids)]
        arcs = set(expand_arcs(sentence, places))
        for dependent, governor in sentence.arcs:
            assert (places[dependent][-1], places[governor][0]) in arcs
        assert expand_arcs(sentence, places[1:]) == [], "words that are not its own"


def test_a_profile_tries_heads_on_more_than_the_text() -> None:
    import jumok

    tiny = jumok.load("tiny")
    with jumok.Lens(tiny) as lens:
        ids = tiny.tokenizer.encode("abcdefgh")  # nothing repeats here
        found = {(one.site, one.head): one for one in profile(lens, lens.run(ids), ids)}
    head = found["blocks.1.attention", 0]
    assert head.on_text.scores["induction"] is None and head.on_text.name != "induction"
    assert head.on_repeats is not None and head.on_repeats.name == "induction"
    assert found["blocks.1.attention", 1].on_text.name == "uniform"


def test_sentences_are_scored_as_kinds_scores_them() -> None:
    import jumok
    from jumok.data.tokenizers.token_labels import group_words
    from jumok.lens.describe.annotated_sentences import ENGLISH_SENTENCES, KOREAN_SENTENCES
    from jumok.lens.describe.head_profile import HeadProfiler, expand_arcs

    tiny = jumok.load("tiny")

    def tokens_of(text: str) -> tuple[list[int], list[range]]:
        ids = tiny.tokenizer.encode(text)
        return ids, [places for _, places in group_words(tiny.tokenizer, ids)]

    sums: dict[tuple[str, int], list[float]] = {}
    with jumok.Lens(tiny) as lens:
        found = HeadProfiler(lens, tokens_of).syntactic
        for sentence in (*ENGLISH_SENTENCES, *KOREAN_SENTENCES):
            ids, places = tokens_of(sentence.text)
            for one in classify_heads(lens.run(ids), ids, arcs=expand_arcs(sentence, places)):
                score = one.scores["syntactic"]
                assert score is not None
                sums.setdefault((one.site, one.head), []).append(score)
    assert found == pytest.approx({place: sum(some) / len(some) for place, some in sums.items()}, abs=1e-6)
