"""The oracle against finite differences and examples worked by hand."""

import math
from typing import Any

import numpy as np
import pytest

from oracle import (
    Additive,
    Concat,
    Dot,
    EluKernel,
    General,
    ScaledDot,
    attention,
    gradients,
    mask_allows,
    mask_dense,
    random_hash,
    random_keys,
)

BATCH, HEADS, GROUPS, QUERIES, KEYS = 2, 4, 2, 2, 4
QUERY_WIDTH, KEY_WIDTH, VALUE_WIDTH, HIDDEN = 3, 5, 2, 2
STEP = 1e-5


def everything(b: int, h: int, i: int, j: int) -> bool:
    return True


def some(b: int, h: int, i: int, j: int) -> bool:
    """Irregular over all four axes, with row 1 of batch 0, head 2 wholly forbidden."""
    return (b, h, i) != (0, 2, 1) and (b + 2 * h + 3 * i + 5 * j) % 4 != 0


def make_score(name: str, random: np.random.Generator) -> Any:
    def draw(*shape: int) -> np.ndarray:
        return random.normal(size=shape)

    match name:
        case "scaled_dot":
            return ScaledDot()
        case "scaled_dot_given":
            return ScaledDot(0.3)
        case "dot":
            return Dot()
        case "general":
            return General(draw(HEADS, QUERY_WIDTH, KEY_WIDTH))
        case "general_shared":
            return General(draw(1, QUERY_WIDTH, KEY_WIDTH))
        case "additive":
            return Additive(draw(HEADS, HIDDEN, QUERY_WIDTH), draw(HEADS, HIDDEN, KEY_WIDTH), draw(HEADS, HIDDEN))
        case "additive_shared":
            return Additive(draw(1, HIDDEN, QUERY_WIDTH), draw(1, HIDDEN, KEY_WIDTH), draw(1, HIDDEN))
        case "concat":
            return Concat(draw(HEADS, HIDDEN, QUERY_WIDTH + KEY_WIDTH), draw(HEADS, HIDDEN))
        case "concat_shared":
            return Concat(draw(1, HIDDEN, QUERY_WIDTH + KEY_WIDTH), draw(1, HIDDEN))
        case "elu_kernel":
            return EluKernel()
    raise ValueError(name)


ONE_WIDTH = ["scaled_dot", "scaled_dot_given", "dot", "elu_kernel"]
TWO_WIDTHS = ["general", "general_shared", "additive", "additive_shared", "concat", "concat_shared"]


@pytest.mark.parametrize("extras", ["plain", "bias_sink_softcap"])
@pytest.mark.parametrize("name", ONE_WIDTH + TWO_WIDTHS)
def test_gradients_by_finite_differences(name: str, extras: str) -> None:
    random = np.random.default_rng(7)
    key_width = QUERY_WIDTH if name in ONE_WIDTH else KEY_WIDTH
    scores = make_score(name, random)
    query = random.normal(size=(BATCH, HEADS, QUERIES, QUERY_WIDTH))
    key = random.normal(size=(BATCH, GROUPS, KEYS, key_width))
    value = random.normal(size=(BATCH, GROUPS, KEYS, VALUE_WIDTH))
    grad_output = random.normal(size=(BATCH, HEADS, QUERIES, VALUE_WIDTH))
    bias = random.normal(size=(BATCH, HEADS, QUERIES, KEYS))
    sink = random.normal(size=HEADS)
    options: dict[str, Any] = {"allowed": some, "scores": scores}
    if extras != "plain":
        options |= {"bias": lambda *cell: bias[cell], "sink": sink, "softcap": 1.7}

    def loss() -> float:
        return float((attention(query, key, value, **options)[0] * grad_output).sum())

    exact = gradients(query, key, value, grad_output, **options)
    pairs = [(query, exact["query"]), (key, exact["key"]), (value, exact["value"])]
    assert exact["parameters"].keys() == scores.parameters.keys()
    pairs += [(scores.parameters[each], exact["parameters"][each]) for each in scores.parameters]
    if extras != "plain":
        pairs += [(bias, exact["bias"]), (sink, exact["sink"])]
    for variable, gradient in pairs:
        assert gradient.shape == variable.shape
        assert np.any(gradient != 0)
        for index in np.ndindex(variable.shape):
            kept = variable[index]
            variable[index] = kept + STEP
            above = loss()
            variable[index] = kept - STEP
            below = loss()
            variable[index] = kept
            assert gradient[index] == pytest.approx((above - below) / (2 * STEP), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ONE_WIDTH + TWO_WIDTHS)
def test_score_gradient_of_one_pair(name: str) -> None:
    random = np.random.default_rng(11)
    scores = make_score(name, random)
    q = random.normal(size=QUERY_WIDTH)
    k = random.normal(size=QUERY_WIDTH if name in ONE_WIDTH else KEY_WIDTH)
    for h in range(HEADS):
        to_query, to_key, to_parameters = scores.gradient(h, q, k)
        pairs = [(q, to_query), (k, to_key)]
        pairs += [(scores.parameters[each], to_parameters[each]) for each in scores.parameters]
        for variable, gradient in pairs:
            assert gradient.shape == variable.shape
            for index in np.ndindex(variable.shape):
                kept = variable[index]
                variable[index] = kept + STEP
                above = scores(h, q, k)
                variable[index] = kept - STEP
                below = scores(h, q, k)
                variable[index] = kept
                assert gradient[index] == pytest.approx((above - below) / (2 * STEP), rel=1e-6, abs=1e-8)


def from_table(table: list[list[float]]) -> Any:
    """Scores looked up in a table: query and key vectors hold their own position."""
    return lambda h, q, k: table[int(q[0])][int(k[0])]


def positions(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float64).reshape(1, 1, count, 1)


def test_weighted_mean_of_values() -> None:
    value = np.array([[[[10.0, 10.0], [100.0, 100.0], [5.0, 5.0]]]])
    scores = from_table([[math.log(0.1), math.log(0.8), math.log(0.1)]])
    output, weights, logsumexp = attention(positions(1), positions(3), value, allowed=everything, scores=scores)
    assert output[0, 0, 0] == pytest.approx([81.5, 81.5])
    assert weights[0, 0, 0] == pytest.approx([0.1, 0.8, 0.1])
    assert logsumexp[0, 0, 0] == pytest.approx(0.0, abs=1e-15)


def test_third_causal_row() -> None:
    scores = from_table([[0.7, 1.8, 2.2, 1.4]] * 4)
    _, weights, _ = attention(
        positions(4),
        positions(4),
        positions(4),
        allowed=lambda *cell: mask_allows(("causal",), *cell),
        scores=scores,
    )
    assert weights[0, 0, 2] == pytest.approx([0.118, 0.354, 0.528, 0.0], abs=5e-4)
    assert weights[0, 0, 0].tolist() == [1, 0, 0, 0]
    assert weights.sum(axis=-1) == pytest.approx(np.ones((1, 1, 4)))


@pytest.mark.parametrize(("scores", "expected"), [(Dot(), 0.576), (ScaledDot(), 0.471)])
def test_one_hot_words(scores: Any, expected: float) -> None:
    words = np.eye(3).reshape(1, 1, 3, 3)
    _, weights, _ = attention(words, words, words, allowed=everything, scores=scores)
    for i in range(3):
        assert weights[0, 0, i, i] == pytest.approx(expected, abs=5e-4)
    assert weights.sum(axis=-1) == pytest.approx(np.ones((1, 1, 3)))


def test_sink_takes_its_share() -> None:
    scores = from_table([[math.log(1.0), math.log(2.0)]])
    _, weights, logsumexp = attention(
        positions(1), positions(2), positions(2), allowed=everything, scores=scores, sink=[math.log(5.0)]
    )
    assert weights[0, 0, 0] == pytest.approx([1 / 8, 2 / 8])
    assert logsumexp[0, 0, 0] == pytest.approx(math.log(8.0))


def test_softcap_comes_before_bias() -> None:
    _, _, logsumexp = attention(
        positions(1),
        positions(1),
        positions(1),
        allowed=everything,
        scores=lambda h, q, k: 6.0,
        bias=lambda b, h, i, j: 10.0,
        softcap=2.0,
    )
    assert logsumexp[0, 0, 0] == pytest.approx(2.0 * math.tanh(3.0) + 10.0)


def test_large_scores_do_not_overflow() -> None:
    scores = from_table([[5000.0, 5000.0 + math.log(3.0)]])
    _, weights, logsumexp = attention(positions(1), positions(2), positions(2), allowed=everything, scores=scores)
    assert weights[0, 0, 0] == pytest.approx([0.25, 0.75])
    assert logsumexp[0, 0, 0] == pytest.approx(5000.0 + math.log(4.0))


@pytest.mark.parametrize("sink", [None, [0.5]])
def test_row_with_nothing_allowed(sink: list[float] | None) -> None:
    inputs = positions(2)
    options: dict[str, Any] = {"allowed": lambda b, h, i, j: i == 1, "scores": Dot(), "sink": sink}
    output, weights, logsumexp = attention(inputs, inputs, inputs, **options)
    assert output[0, 0, 0].tolist() == [0]
    assert weights[0, 0, 0].tolist() == [0, 0]
    assert logsumexp[0, 0, 0] == (-math.inf if sink is None else 0.5)
    exact = gradients(inputs, inputs, inputs, np.ones((1, 1, 2, 1)), **options)
    assert exact["query"][0, 0, 0].tolist() == [0]
    assert exact["bias"][0, 0, 0].tolist() == [0, 0]


def test_forbidden_nan_does_not_spread() -> None:
    random = np.random.default_rng(3)
    query, key, value = (random.normal(size=(1, 1, 3, 2)) for _ in range(3))
    key[0, 0, 1] = value[0, 0, 1] = math.nan

    def allowed(b: int, h: int, i: int, j: int) -> bool:
        return j != 1

    for result in attention(query, key, value, allowed=allowed, scores=Dot()):
        assert np.isfinite(result).all()
    exact = gradients(query, key, value, np.ones((1, 1, 3, 2)), allowed=allowed, scores=Dot())
    for name in ("query", "key", "value", "bias"):
        assert np.isfinite(exact[name]).all()


def test_heads_read_their_group() -> None:
    # Three heads to each of two groups, so that the two counts cannot be mixed up.
    query = np.zeros((1, 6, 1, 1))
    key = np.zeros((1, 2, 1, 1))
    value = np.array([10.0, 20.0]).reshape(1, 2, 1, 1)
    output, _, _ = attention(query, key, value, allowed=everything, scores=Dot())
    assert output.ravel().tolist() == [10, 10, 10, 20, 20, 20]
    exact = gradients(query, key, value, np.ones((1, 6, 1, 1)), allowed=everything, scores=Dot())
    assert exact["value"].ravel().tolist() == [3, 3]
    with pytest.raises(ValueError, match="heads"):
        attention(query[:, :5], key, value, allowed=everything, scores=Dot())


def test_scores_by_hand() -> None:
    assert Dot()(0, [1.0, 2.0], [3.0, 4.0]) == 11
    assert ScaledDot()(0, [1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0]) == 5.5
    # 1*(1*5 + 2*6 + 3*7) + 2*(0*5 + 1*6 + 0*7)
    matrix = [[[1, 2, 3], [0, 1, 0]]]
    assert General(matrix)(3, [1.0, 2.0], [5.0, 6.0, 7.0]) == 50
    additive = Additive([[[0.1, 0.2]]], [[[0.3, 0.0, 0.1]]], [[2.0]])
    assert additive(3, [1.0, 2.0], [1.0, 9.0, 2.0]) == pytest.approx(2 * math.tanh(0.5 + 0.5))
    concat = Concat([[[0.1, 0.2, 0.3, 0.0, 0.1]]], [[2.0]])
    assert concat(3, [1.0, 2.0], [1.0, 9.0, 2.0]) == pytest.approx(2 * math.tanh(0.5 + 0.5))
    # phi(1) phi(2) + phi(-1) phi(0)
    assert EluKernel()(0, [1.0, -1.0], [2.0, 0.0]) == pytest.approx(math.log(2 * 3 + math.exp(-1)))


def test_elu_kernel_weights_are_a_quotient() -> None:
    key = np.array([2.0, -1.0]).reshape(1, 1, 2, 1)
    _, weights, _ = attention(np.full((1, 1, 1, 1), 0.5), key, key, allowed=everything, scores=EluKernel())
    total = 1.5 * 3.0 + 1.5 * math.exp(-1)
    assert weights[0, 0, 0] == pytest.approx([1.5 * 3.0 / total, 1.5 * math.exp(-1) / total])


def cells(expression: tuple[Any, ...], queries: int, keys: int, b: int = 0, h: int = 0) -> list[str]:
    dense = mask_dense(expression, b + 1, h + 1, range(queries), range(keys))
    return ["".join("#" if cell else "." for cell in row) for row in dense[b, h]]


def test_masks_by_hand() -> None:
    assert cells(("causal",), 3, 3) == ["#..", "##.", "###"]
    assert cells(("window", 2), 4, 4) == ["##..", "###.", ".###", "..##"]
    assert cells(("prefix", 2), 2, 4) == ["##..", "##.."]
    assert cells(("global_at", (1,)), 3, 3) == [".#.", "###", ".#."]
    assert cells(("padding_lengths", (1, 2)), 1, 3, b=1) == ["##."]
    assert cells(("padding_table", [[1, 1, 1], [0, 1, 0]]), 1, 3, b=1) == [".#."]
    assert cells(("documents", [[0, 0, 1]]), 3, 3, b=1) == ["##.", "##.", "..#"]
    assert cells(("documents", [[0, 0, 0], [0, 1, 1]]), 3, 3, b=1) == ["#..", ".##", ".##"]
    assert cells(("blocks", 2, 0), 4, 4) == ["##..", "##..", "..##", "..##"]
    assert cells(("blocks", 2, 1), 4, 4) == ["#...", ".##.", ".##.", "...#"]
    # A 2 x 4 grid in blocks of 2 x 2; then the columns shifted by one.
    assert cells(("blocks2d", (2, 2), (2, 4), (0, 0)), 1, 8) == ["##..##.."]
    assert cells(("blocks2d", (2, 2), (2, 4), (0, 1)), 2, 8) == ["#...#...", ".##..##."]
    assert cells(("blocks2d", (2, 2), (2, 4), (1, 0)), 1, 8) == ["##......"]
    assert cells(("edge", 1, (0, 2), None, None), 3, 3) == ["...", "#.#", "..."]
    assert cells(("edge", None, 0, 1, (1, 2)), 1, 2, b=1, h=1) == ["#."]
    assert cells(("edge", None, 0, 1, (0, 2)), 1, 2, b=1, h=1) == [".."]
    assert cells(("edge", None, 0, 0, None), 1, 2, b=1, h=1) == [".."]
    assert cells(("given", [[[[0, 1], [1, 0]]]]), 2, 2, b=1, h=1) == [".#", "#."]
    assert cells(("given", [[[[0, 1]], [[1, 0]]]]), 1, 2, b=1, h=1) == ["#."]
    assert cells(("and", ("causal",), ("window", 2)), 3, 3) == ["#..", "##.", ".##"]
    assert cells(("or", ("causal",), ("prefix", 2)), 3, 3) == ["##.", "##.", "###"]
    assert cells(("not", ("causal",)), 3, 3) == [".##", "..#", "..."]
    with pytest.raises(ValueError, match="unknown"):
        mask_allows(("casual",), 0, 0, 0, 0)


def test_dense_mask_uses_positions() -> None:
    dense = mask_dense(("causal",), 1, 1, [5, 2], [2, 3, 6])
    assert dense.tolist() == [[[[True, True, False], [True, False, False]]]]


def test_random_hash_is_splitmix64() -> None:
    # The first two published outputs of splitmix64 started from state 0.
    assert random_hash(1, 0, 0) == 0xE220A8397B1DCDAF
    assert random_hash(2, 0, 0) == 0x6E789E6AA1B965F4


def test_random_keys() -> None:
    length, count = 11, 4
    for seed in range(3):
        for i in range(20):
            chosen = random_keys(count, seed, length, i)
            assert len(chosen) == count
            assert chosen <= set(range(length))
            row = mask_dense(("random_keys", count, seed, length), 1, 1, [i], range(length + 2))[0, 0, 0]
            assert set(np.flatnonzero(row).tolist()) == chosen
    drawn = [[random_keys(count, seed, length, i) for i in range(20)] for seed in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]
    assert len({frozenset(keys) for keys in drawn[1]}) > 10
    assert set().union(*drawn[1]) == set(range(length))
    for enough in (length, length + 3):
        assert random_keys(enough, 0, length, 5) == set(range(length))
