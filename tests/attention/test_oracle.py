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
    compute_attention,
    compute_gradients,
    draw_random_keys,
    evaluate_mask,
    hash_position,
    is_allowed,
)

BATCH, HEADS, GROUPS, QUERIES, KEYS = 2, 4, 2, 2, 4
QUERY_WIDTH, KEY_WIDTH, VALUE_WIDTH, HIDDEN = 3, 5, 2, 2
STEP = 1e-5


def allow_all(b: int, h: int, i: int, j: int) -> bool:
    return True


def allow_irregularly(b: int, h: int, i: int, j: int) -> bool:
    """Irregular over all four axes, with row 1 of batch 0, head 2 forbidden everywhere."""
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
def test_gradients_equal_finite_differences(name: str, extras: str) -> None:
    random = np.random.default_rng(7)
    key_width = QUERY_WIDTH if name in ONE_WIDTH else KEY_WIDTH
    scores = make_score(name, random)
    query = random.normal(size=(BATCH, HEADS, QUERIES, QUERY_WIDTH))
    key = random.normal(size=(BATCH, GROUPS, KEYS, key_width))
    value = random.normal(size=(BATCH, GROUPS, KEYS, VALUE_WIDTH))
    grad_output = random.normal(size=(BATCH, HEADS, QUERIES, VALUE_WIDTH))
    bias = random.normal(size=(BATCH, HEADS, QUERIES, KEYS))
    sink = random.normal(size=HEADS)
    options: dict[str, Any] = {"allowed": allow_irregularly, "scores": scores}
    if extras != "plain":
        options |= {"bias": lambda *cell: bias[cell], "sink": sink, "softcap": 1.7}

    def compute_loss() -> float:
        return float((compute_attention(query, key, value, **options)[0] * grad_output).sum())

    exact = compute_gradients(query, key, value, grad_output, **options)
    pairs = [(query, exact["query"]), (key, exact["key"]), (value, exact["value"])]
    assert exact["parameters"].keys() == scores.parameters.keys()
    pairs += [
        (scores.parameters[parameter_name], exact["parameters"][parameter_name]) for parameter_name in scores.parameters
    ]
    if extras != "plain":
        pairs += [(bias, exact["bias"]), (sink, exact["sink"])]
    for variable, gradient in pairs:
        assert gradient.shape == variable.shape
        assert np.any(gradient != 0)
        for index in np.ndindex(variable.shape):
            original = variable[index]
            variable[index] = original + STEP
            above = compute_loss()
            variable[index] = original - STEP
            below = compute_loss()
            variable[index] = original
            assert gradient[index] == pytest.approx((above - below) / (2 * STEP), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ONE_WIDTH + TWO_WIDTHS)
def test_score_gradient_of_a_pair_equals_finite_differences(name: str) -> None:
    random = np.random.default_rng(11)
    scores = make_score(name, random)
    q = random.normal(size=QUERY_WIDTH)
    k = random.normal(size=QUERY_WIDTH if name in ONE_WIDTH else KEY_WIDTH)
    for h in range(HEADS):
        to_query, to_key, to_parameters = scores.gradient(h, q, k)
        pairs = [(q, to_query), (k, to_key)]
        pairs += [
            (scores.parameters[parameter_name], to_parameters[parameter_name]) for parameter_name in scores.parameters
        ]
        for variable, gradient in pairs:
            assert gradient.shape == variable.shape
            for index in np.ndindex(variable.shape):
                original = variable[index]
                variable[index] = original + STEP
                above = scores(h, q, k)
                variable[index] = original - STEP
                below = scores(h, q, k)
                variable[index] = original
                assert gradient[index] == pytest.approx((above - below) / (2 * STEP), rel=1e-6, abs=1e-8)


def make_table_score(table: list[list[float]]) -> Any:
    """Scores looked up in a table: query and key vectors hold their own position."""
    return lambda h, q, k: table[int(q[0])][int(k[0])]


def positions(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float64).reshape(1, 1, count, 1)


def test_weighted_mean_of_values() -> None:
    value = np.array([[[[10.0, 10.0], [100.0, 100.0], [5.0, 5.0]]]])
    scores = make_table_score([[math.log(0.1), math.log(0.8), math.log(0.1)]])
    output, weights, logsumexp = compute_attention(positions(1), positions(3), value, allowed=allow_all, scores=scores)
    assert output[0, 0, 0] == pytest.approx([81.5, 81.5])
    assert weights[0, 0, 0] == pytest.approx([0.1, 0.8, 0.1])
    assert logsumexp[0, 0, 0] == pytest.approx(0.0, abs=1e-15)


def test_third_causal_row() -> None:
    scores = make_table_score([[0.7, 1.8, 2.2, 1.4]] * 4)
    _, weights, _ = compute_attention(
        positions(4),
        positions(4),
        positions(4),
        allowed=lambda *cell: is_allowed(("causal",), *cell),
        scores=scores,
    )
    assert weights[0, 0, 2] == pytest.approx([0.118, 0.354, 0.528, 0.0], abs=5e-4)
    assert weights[0, 0, 0].tolist() == [1, 0, 0, 0]
    assert weights.sum(axis=-1) == pytest.approx(np.ones((1, 1, 4)))


@pytest.mark.parametrize(("scores", "expected"), [(Dot(), 0.576), (ScaledDot(), 0.471)])
def test_one_hot_words(scores: Any, expected: float) -> None:
    words = np.eye(3).reshape(1, 1, 3, 3)
    _, weights, _ = compute_attention(words, words, words, allowed=allow_all, scores=scores)
    for i in range(3):
        assert weights[0, 0, i, i] == pytest.approx(expected, abs=5e-4)
    assert weights.sum(axis=-1) == pytest.approx(np.ones((1, 1, 3)))


def test_sink_reduces_the_weights() -> None:
    scores = make_table_score([[math.log(1.0), math.log(2.0)]])
    _, weights, logsumexp = compute_attention(
        positions(1), positions(2), positions(2), allowed=allow_all, scores=scores, sink=[math.log(5.0)]
    )
    assert weights[0, 0, 0] == pytest.approx([1 / 8, 2 / 8])
    assert logsumexp[0, 0, 0] == pytest.approx(math.log(8.0))


def test_softcap_comes_before_bias() -> None:
    _, _, logsumexp = compute_attention(
        positions(1),
        positions(1),
        positions(1),
        allowed=allow_all,
        scores=lambda h, q, k: 6.0,
        bias=lambda b, h, i, j: 10.0,
        softcap=2.0,
    )
    assert logsumexp[0, 0, 0] == pytest.approx(2.0 * math.tanh(3.0) + 10.0)


def test_large_scores_do_not_overflow() -> None:
    scores = make_table_score([[5000.0, 5000.0 + math.log(3.0)]])
    _, weights, logsumexp = compute_attention(
        positions(1), positions(2), positions(2), allowed=allow_all, scores=scores
    )
    assert weights[0, 0, 0] == pytest.approx([0.25, 0.75])
    assert logsumexp[0, 0, 0] == pytest.approx(5000.0 + math.log(4.0))


@pytest.mark.parametrize("sink", [None, [0.5]])
def test_row_without_allowed_keys_is_zero(sink: list[float] | None) -> None:
    inputs = positions(2)
    options: dict[str, Any] = {"allowed": lambda b, h, i, j: i == 1, "scores": Dot(), "sink": sink}
    output, weights, logsumexp = compute_attention(inputs, inputs, inputs, **options)
    assert output[0, 0, 0].tolist() == [0]
    assert weights[0, 0, 0].tolist() == [0, 0]
    assert logsumexp[0, 0, 0] == (-math.inf if sink is None else 0.5)
    exact = compute_gradients(inputs, inputs, inputs, np.ones((1, 1, 2, 1)), **options)
    assert exact["query"][0, 0, 0].tolist() == [0]
    assert exact["bias"][0, 0, 0].tolist() == [0, 0]


def test_forbidden_nan_does_not_spread() -> None:
    random = np.random.default_rng(3)
    query, key, value = (random.normal(size=(1, 1, 3, 2)) for _ in range(3))
    key[0, 0, 1] = value[0, 0, 1] = math.nan

    def is_not_key_one(b: int, h: int, i: int, j: int) -> bool:
        return j != 1

    for array in compute_attention(query, key, value, allowed=is_not_key_one, scores=Dot()):
        assert np.isfinite(array).all()
    exact = compute_gradients(query, key, value, np.ones((1, 1, 3, 2)), allowed=is_not_key_one, scores=Dot())
    for name in ("query", "key", "value", "bias"):
        assert np.isfinite(exact[name]).all()


def test_heads_use_the_keys_of_their_group() -> None:
    # Three heads to each of two groups, so that the two counts cannot be mixed up.
    query = np.zeros((1, 6, 1, 1))
    key = np.zeros((1, 2, 1, 1))
    value = np.array([10.0, 20.0]).reshape(1, 2, 1, 1)
    output, _, _ = compute_attention(query, key, value, allowed=allow_all, scores=Dot())
    assert output.ravel().tolist() == [10, 10, 10, 20, 20, 20]
    exact = compute_gradients(query, key, value, np.ones((1, 6, 1, 1)), allowed=allow_all, scores=Dot())
    assert exact["value"].ravel().tolist() == [3, 3]
    with pytest.raises(ValueError, match="heads"):
        compute_attention(query[:, :5], key, value, allowed=allow_all, scores=Dot())


def test_scores_equal_examples_by_hand() -> None:
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
    _, weights, _ = compute_attention(np.full((1, 1, 1, 1), 0.5), key, key, allowed=allow_all, scores=EluKernel())
    total = 1.5 * 3.0 + 1.5 * math.exp(-1)
    assert weights[0, 0, 0] == pytest.approx([1.5 * 3.0 / total, 1.5 * math.exp(-1) / total])


def draw_mask(expression: tuple[Any, ...], queries: int, keys: int, b: int = 0, h: int = 0) -> list[str]:
    dense = evaluate_mask(expression, b + 1, h + 1, range(queries), range(keys))
    return ["".join("#" if cell else "." for cell in row) for row in dense[b, h]]


def test_masks_equal_examples_by_hand() -> None:
    assert draw_mask(("causal",), 3, 3) == ["#..", "##.", "###"]
    assert draw_mask(("window", 2), 4, 4) == ["##..", "###.", ".###", "..##"]
    assert draw_mask(("prefix", 2), 2, 4) == ["##..", "##.."]
    assert draw_mask(("global_at", (1,)), 3, 3) == [".#.", "###", ".#."]
    assert draw_mask(("padding_lengths", (1, 2)), 1, 3, b=1) == ["##."]
    assert draw_mask(("padding_table", [[1, 1, 1], [0, 1, 0]]), 1, 3, b=1) == [".#."]
    assert draw_mask(("documents", [[0, 0, 1]]), 3, 3, b=1) == ["##.", "##.", "..#"]
    assert draw_mask(("documents", [[0, 0, 0], [0, 1, 1]]), 3, 3, b=1) == ["#..", ".##", ".##"]
    assert draw_mask(("blocks", 2, 0), 4, 4) == ["##..", "##..", "..##", "..##"]
    assert draw_mask(("blocks", 2, 1), 4, 4) == ["#...", ".##.", ".##.", "...#"]
    # A 2 x 4 grid in blocks of 2 x 2; then the columns shifted by one.
    assert draw_mask(("blocks2d", (2, 2), (2, 4), (0, 0)), 1, 8) == ["##..##.."]
    assert draw_mask(("blocks2d", (2, 2), (2, 4), (0, 1)), 2, 8) == ["#...#...", ".##..##."]
    assert draw_mask(("blocks2d", (2, 2), (2, 4), (1, 0)), 1, 8) == ["##......"]
    assert draw_mask(("edge", 1, (0, 2), None, None), 3, 3) == ["...", "#.#", "..."]
    assert draw_mask(("edge", None, 0, 1, (1, 2)), 1, 2, b=1, h=1) == ["#."]
    assert draw_mask(("edge", None, 0, 1, (0, 2)), 1, 2, b=1, h=1) == [".."]
    assert draw_mask(("edge", None, 0, 0, None), 1, 2, b=1, h=1) == [".."]
    assert draw_mask(("given", [[[[0, 1], [1, 0]]]]), 2, 2, b=1, h=1) == [".#", "#."]
    assert draw_mask(("given", [[[[0, 1]], [[1, 0]]]]), 1, 2, b=1, h=1) == ["#."]
    assert draw_mask(("and", ("causal",), ("window", 2)), 3, 3) == ["#..", "##.", ".##"]
    assert draw_mask(("or", ("causal",), ("prefix", 2)), 3, 3) == ["##.", "##.", "###"]
    assert draw_mask(("not", ("causal",)), 3, 3) == [".##", "..#", "..."]
    with pytest.raises(ValueError, match="unknown"):
        is_allowed(("casual",), 0, 0, 0, 0)


def test_dense_mask_uses_positions() -> None:
    dense = evaluate_mask(("causal",), 1, 1, [5, 2], [2, 3, 6])
    assert dense.tolist() == [[[[True, True, False], [True, False, False]]]]


def test_random_hash_is_splitmix64() -> None:
    # The first two published outputs of splitmix64 started from state 0.
    assert hash_position(1, 0, 0) == 0xE220A8397B1DCDAF
    assert hash_position(2, 0, 0) == 0x6E789E6AA1B965F4


def test_random_keys_are_distinct_and_depend_on_the_seed() -> None:
    length, count = 11, 4
    for seed in range(3):
        for i in range(20):
            chosen = draw_random_keys(count, seed, length, i)
            assert len(chosen) == count
            assert chosen <= set(range(length))
            row = evaluate_mask(("random_keys", count, seed, length), 1, 1, [i], range(length + 2))[0, 0, 0]
            assert set(np.flatnonzero(row).tolist()) == chosen
    draws = [[draw_random_keys(count, seed, length, i) for i in range(20)] for seed in range(3)]
    assert draws[0] != draws[1] != draws[2]
    assert len({frozenset(keys) for keys in draws[1]}) > 10
    assert set().union(*draws[1]) == set(range(length))
    for large_count in (length, length + 3):
        assert draw_random_keys(large_count, 0, length, 5) == set(range(length))
