"""A slow, simple implementation of attention, as the reference of all tests.

Nothing here is vectorised and nothing is shared with the code under test: numpy only holds float64
numbers, and every formula is written out as loops over single cells.

Layout: query [batch, head, query, query_width], key [batch, group, key, key_width],
value [batch, group, key, value_width]. Head h reads group h // (head // group).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Vector = Sequence[float] | Array
PairGradient = tuple[Array, Array, dict[str, Array]]
Allowed = Callable[[int, int, int, int], bool]
Bias = Callable[[int, int, int, int], float]
ScoreFunction = Callable[[int, Array, Array], float]
Expression = tuple[Any, ...]


class DifferentiableScore(Protocol):
    """A score of one pair, with its derivatives."""

    parameters: dict[str, Array]

    def __call__(self, h: int, q: Vector, k: Vector) -> float: ...

    def gradient(self, h: int, q: Vector, k: Vector) -> PairGradient: ...


# Scores ------------------------------------------------------------------------------------------------


def _get_row(parameter: Array, h: int) -> int:
    """Return the row of a parameter that head h uses; a single row is shared by all heads."""
    return 0 if len(parameter) == 1 else h


def _dot(left: Vector, right: Vector) -> float:
    total = 0.0
    for a, b in zip(left, right, strict=True):
        total += float(a) * float(b)
    return total


class ScaledDot:
    """scale * q.k; the scale is 1 / sqrt(width) by default."""

    def __init__(self, scale: float | None = None) -> None:
        self.scale = scale
        self.parameters: dict[str, Array] = {}

    def _factor(self, q: Vector) -> float:
        return 1.0 / math.sqrt(len(q)) if self.scale is None else self.scale

    def __call__(self, h: int, q: Vector, k: Vector) -> float:
        return self._factor(q) * _dot(q, k)

    def gradient(self, h: int, q: Vector, k: Vector) -> PairGradient:
        factor = self._factor(q)
        return np.array([factor * b for b in k]), np.array([factor * a for a in q]), {}


class Dot(ScaledDot):
    """q.k without a scale."""

    def __init__(self) -> None:
        super().__init__(1.0)


class General:
    """q^T M k, with matrix [heads or 1, query_width, key_width]."""

    def __init__(self, matrix: Any) -> None:
        self.matrix: Array = np.array(matrix, dtype=np.float64)
        self.parameters = {"matrix": self.matrix}

    def __call__(self, h: int, q: Vector, k: Vector) -> float:
        matrix = self.matrix[_get_row(self.matrix, h)]
        total = 0.0
        for a, row in zip(q, matrix, strict=True):
            total += float(a) * _dot(row, k)
        return total

    def gradient(self, h: int, q: Vector, k: Vector) -> PairGradient:
        row = _get_row(self.matrix, h)
        matrix = self.matrix[row]
        to_query, to_key, to_matrix = np.zeros(len(q)), np.zeros(len(k)), np.zeros_like(self.matrix)
        for a in range(len(q)):
            for b in range(len(k)):
                to_query[a] += matrix[a, b] * k[b]
                to_key[b] += q[a] * matrix[a, b]
                to_matrix[row, a, b] = q[a] * k[b]
        return to_query, to_key, {"matrix": to_matrix}


class Additive:
    """v^T tanh(W q + U k).

    Shapes: query_matrix W [heads or 1, hidden, query_width], key_matrix U [heads or 1, hidden, key_width],
    vector v [heads or 1, hidden].
    """

    def __init__(self, query_matrix: Any, key_matrix: Any, vector: Any) -> None:
        self.query_matrix: Array = np.array(query_matrix, dtype=np.float64)
        self.key_matrix: Array = np.array(key_matrix, dtype=np.float64)
        self.vector: Array = np.array(vector, dtype=np.float64)
        self.parameters = {
            "query_matrix": self.query_matrix,
            "key_matrix": self.key_matrix,
            "vector": self.vector,
        }

    def _hidden(self, h: int, q: Vector, k: Vector) -> list[float]:
        query_matrix = self.query_matrix[_get_row(self.query_matrix, h)]
        key_matrix = self.key_matrix[_get_row(self.key_matrix, h)]
        return [math.tanh(_dot(w, q) + _dot(u, k)) for w, u in zip(query_matrix, key_matrix, strict=True)]

    def __call__(self, h: int, q: Vector, k: Vector) -> float:
        return _dot(self.vector[_get_row(self.vector, h)], self._hidden(h, q, k))

    def gradient(self, h: int, q: Vector, k: Vector) -> PairGradient:
        query_row, key_row = _get_row(self.query_matrix, h), _get_row(self.key_matrix, h)
        vector_row = _get_row(self.vector, h)
        to_query, to_key = np.zeros(len(q)), np.zeros(len(k))
        to_parameters = {name: np.zeros_like(parameter) for name, parameter in self.parameters.items()}
        for unit, activation in enumerate(self._hidden(h, q, k)):
            slope = self.vector[vector_row, unit] * (1.0 - activation * activation)
            to_parameters["vector"][vector_row, unit] = activation
            for a in range(len(q)):
                to_query[a] += slope * self.query_matrix[query_row, unit, a]
                to_parameters["query_matrix"][query_row, unit, a] = slope * q[a]
            for b in range(len(k)):
                to_key[b] += slope * self.key_matrix[key_row, unit, b]
                to_parameters["key_matrix"][key_row, unit, b] = slope * k[b]
        return to_query, to_key, to_parameters


class Concat:
    """v^T tanh(W [q; k]), with matrix W [heads or 1, hidden, query_width + key_width]."""

    def __init__(self, matrix: Any, vector: Any) -> None:
        self.matrix: Array = np.array(matrix, dtype=np.float64)
        self.vector: Array = np.array(vector, dtype=np.float64)
        self.parameters = {"matrix": self.matrix, "vector": self.vector}

    def _hidden(self, h: int, joined: Vector) -> list[float]:
        return [math.tanh(_dot(w, joined)) for w in self.matrix[_get_row(self.matrix, h)]]

    def __call__(self, h: int, q: Vector, k: Vector) -> float:
        joined = [*q, *k]
        return _dot(self.vector[_get_row(self.vector, h)], self._hidden(h, joined))

    def gradient(self, h: int, q: Vector, k: Vector) -> PairGradient:
        joined = [*q, *k]
        row, vector_row = _get_row(self.matrix, h), _get_row(self.vector, h)
        to_joined = np.zeros(len(joined))
        to_matrix, to_vector = np.zeros_like(self.matrix), np.zeros_like(self.vector)
        for unit, activation in enumerate(self._hidden(h, joined)):
            slope = self.vector[vector_row, unit] * (1.0 - activation * activation)
            to_vector[vector_row, unit] = activation
            for c in range(len(joined)):
                to_joined[c] += slope * self.matrix[row, unit, c]
                to_matrix[row, unit, c] = slope * joined[c]
        return to_joined[: len(q)], to_joined[len(q) :], {"matrix": to_matrix, "vector": to_vector}


def _phi(x: float) -> float:
    """elu(x) + 1, which is always positive."""
    return x + 1.0 if x > 0.0 else math.exp(x)


def _phi_slope(x: float) -> float:
    return 1.0 if x > 0.0 else math.exp(x)


class EluKernel:
    """log(phi(q).phi(k)): the softmax undoes the logarithm and leaves phi(q).phi(k) / sum."""

    def __init__(self) -> None:
        self.parameters: dict[str, Array] = {}

    def __call__(self, h: int, q: Vector, k: Vector) -> float:
        return math.log(_dot([_phi(a) for a in q], [_phi(b) for b in k]))

    def gradient(self, h: int, q: Vector, k: Vector) -> PairGradient:
        product = _dot([_phi(a) for a in q], [_phi(b) for b in k])
        to_query = [_phi_slope(a) * _phi(b) / product for a, b in zip(q, k, strict=True)]
        to_key = [_phi(a) * _phi_slope(b) / product for a, b in zip(q, k, strict=True)]
        return np.array(to_query), np.array(to_key), {}


# Attention ---------------------------------------------------------------------------------------------


def _heads_per_group(query: Array, key: Array, value: Array) -> int:
    heads, groups = query.shape[1], key.shape[1]
    if heads % groups:
        raise ValueError(f"{heads} heads cannot be split evenly into {groups} groups")
    if key.shape[:3] != value.shape[:3] or key.shape[0] != query.shape[0]:
        raise ValueError(f"shapes disagree: {query.shape}, {key.shape}, {value.shape}")
    return int(heads // groups)


def compute_attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    allowed: Allowed,
    scores: ScoreFunction,
    bias: Bias | None = None,
    sink: Sequence[float] | Array | None = None,
    softcap: float | None = None,
) -> tuple[Array, Array, Array]:
    """Return output, weights and logsumexp of every row.

    Order in one cell: score, softcap, bias, softmax over the allowed cells. A sink adds exp(sink[h]) to the
    denominator. A row without allowed keys has zero weights and output; its logsumexp is the
    sink, or -inf without one.
    """
    per_group = _heads_per_group(query, key, value)
    batch, heads, queries = query.shape[:3]
    keys, value_width = value.shape[2:]
    output = np.zeros((batch, heads, queries, value_width))
    weights = np.zeros((batch, heads, queries, keys))
    logsumexp = np.full((batch, heads, queries), -math.inf)

    for b, h, i in np.ndindex(batch, heads, queries):
        group = h // per_group
        # Forbidden cells are left out, not multiplied by zero: 0 * NaN would spread.
        open_keys = [j for j in range(keys) if allowed(b, h, i, j)]
        if not open_keys:
            if sink is not None:
                logsumexp[b, h, i] = sink[h]
            continue

        row: list[float] = []
        for j in open_keys:
            score = float(scores(h, query[b, h, i], key[b, group, j]))
            if softcap is not None:
                score = softcap * math.tanh(score / softcap)
            if bias is not None:
                score += float(bias(b, h, i, j))
            row.append(score)

        # Subtracting the largest number keeps exp() from overflowing and cancels in the quotient.
        peak = max(row) if sink is None else max(*row, float(sink[h]))
        exponentials = [math.exp(score - peak) for score in row]
        denominator = 0.0
        for exponential in exponentials:
            denominator += exponential
        if sink is not None:
            denominator += math.exp(float(sink[h]) - peak)

        logsumexp[b, h, i] = peak + math.log(denominator)
        for j, exponential in zip(open_keys, exponentials, strict=True):
            weights[b, h, i, j] = exponential / denominator
            for c in range(value_width):
                output[b, h, i, c] += weights[b, h, i, j] * value[b, group, j, c]
    return output, weights, logsumexp


def compute_gradients(
    query: Array,
    key: Array,
    value: Array,
    grad_output: Array,
    *,
    allowed: Allowed,
    scores: DifferentiableScore,
    bias: Bias | None = None,
    sink: Sequence[float] | Array | None = None,
    softcap: float | None = None,
) -> dict[str, Any]:
    """Return the gradients of sum(output * grad_output).

    Keys: "query", "key", "value", "parameters" (name -> array), "bias" [batch, head, query, key] (filled
    with or without a bias: it is the gradient of the capped score) and "sink" [head] (0 without a sink).
    """
    per_group = _heads_per_group(query, key, value)
    batch, heads, queries = query.shape[:3]
    keys, value_width = value.shape[2:]
    _, weights, logsumexp = compute_attention(
        query, key, value, allowed=allowed, scores=scores, bias=bias, sink=sink, softcap=softcap
    )
    to_query, to_key, to_value = np.zeros(query.shape), np.zeros(key.shape), np.zeros(value.shape)
    to_bias, to_sink = np.zeros(weights.shape), np.zeros(heads)
    to_parameters = {name: np.zeros(parameter.shape) for name, parameter in scores.parameters.items()}

    for b, h, i in np.ndindex(batch, heads, queries):
        group = h // per_group
        open_keys = [j for j in range(keys) if allowed(b, h, i, j)]
        if not open_keys:
            continue  # the output is the constant 0

        # output = sum_j p_j value_j, so d loss / d p_j = grad_output . value_j
        to_weight = {j: _dot(grad_output[b, h, i], value[b, group, j]) for j in open_keys}
        mean = 0.0
        for j in open_keys:
            mean += weights[b, h, i, j] * to_weight[j]
        if sink is not None:
            # The sink is a cell whose value is zero, so its own d loss / d p is zero.
            to_sink[h] += math.exp(float(sink[h]) - logsumexp[b, h, i]) * (0.0 - mean)

        for j in open_keys:
            weight = weights[b, h, i, j]
            for c in range(value_width):
                to_value[b, group, j, c] += weight * grad_output[b, h, i, c]
            slope = weight * (to_weight[j] - mean)
            to_bias[b, h, i, j] = slope
            q, k = query[b, h, i], key[b, group, j]
            if softcap is not None:
                slope *= 1.0 - math.tanh(float(scores(h, q, k)) / softcap) ** 2
            score_to_query, score_to_key, score_to_parameters = scores.gradient(h, q, k)
            for a in range(len(q)):
                to_query[b, h, i, a] += slope * score_to_query[a]
            for a in range(len(k)):
                to_key[b, group, j, a] += slope * score_to_key[a]
            for name, score_to_parameter in score_to_parameters.items():
                for index in np.ndindex(score_to_parameter.shape):
                    to_parameters[name][index] += slope * score_to_parameter[index]

    return {
        "query": to_query,
        "key": to_key,
        "value": to_value,
        "parameters": to_parameters,
        "bias": to_bias,
        "sink": to_sink,
    }


# Masks -------------------------------------------------------------------------------------------------

_WORD = 2**64


def hash_position(seed: int, i: int, r: int) -> int:
    """Hash seed, query position and draw by the finaliser of splitmix64."""
    z = (seed * 0x9E3779B97F4A7C15 + i * 0xBF58476D1CE4E5B9 + r * 0x94D049BB133111EB) % _WORD
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 % _WORD
    z ^= z >> 27
    z = z * 0x94D049BB133111EB % _WORD
    z ^= z >> 31
    return z


def draw_random_keys(count: int, seed: int, length: int, i: int) -> set[int]:
    """Draw the distinct keys in range(length) of query position i, by Floyd's algorithm."""
    if count >= length:
        return set(range(length))
    chosen: set[int] = set()
    for r in range(count):
        upper = length - count + r
        candidate = (hash_position(seed, i, r) >> 1) % (upper + 1)
        # upper cannot have been drawn: every earlier draw was below it.
        chosen.add(upper if candidate in chosen else candidate)
    return chosen


def _matches(selected: int | Sequence[int] | None, actual: int) -> bool:
    if selected is None:
        return True
    if isinstance(selected, int):
        return actual == selected
    return actual in selected


def _get_shared(table: Any, index: int) -> Any:
    """Return the entry of a table that may hold one entry for all indices."""
    return table[0] if len(table) == 1 else table[index]


def is_allowed(expression: Expression, b: int, h: int, i: int, j: int) -> bool:
    """Return whether query position i may attend to key position j, in batch row b and head h."""
    match expression:
        case ("causal",):
            return j <= i
        case ("window", size):
            return bool(abs(i - j) < size)
        case ("prefix", size):
            return bool(j < size)
        case ("global_at", positions):
            return i in positions or j in positions
        case ("padding_lengths", lengths):
            return bool(j < lengths[b])
        case ("padding_table", table):
            return bool(table[b][j])
        case ("documents", ids):
            row = _get_shared(ids, b)
            return bool(row[i] == row[j])
        case ("blocks", size, shift):
            return bool((i - shift) // size == (j - shift) // size)
        case ("blocks2d", (row_size, column_size), (_, columns), (row_shift, column_shift)):
            same_row = (i // columns - row_shift) // row_size == (j // columns - row_shift) // row_size
            same_column = (i % columns - column_shift) // column_size == (j % columns - column_shift) // column_size
            return bool(same_row and same_column)
        case ("random_keys", count, seed, length):
            return j in draw_random_keys(count, seed, length, i)
        case ("random_keys", count, seed, length, block):
            blocks = draw_random_keys(count, seed, -(-length // block), i // block)
            return j < length and j // block in blocks
        case ("edge", query, key, head, batch):
            return _matches(query, i) and _matches(key, j) and _matches(head, h) and _matches(batch, b)
        case ("given", table):
            return bool(_get_shared(_get_shared(table, b), h)[i][j])
        case ("and", left, right):
            return is_allowed(left, b, h, i, j) and is_allowed(right, b, h, i, j)
        case ("or", left, right):
            return is_allowed(left, b, h, i, j) or is_allowed(right, b, h, i, j)
        case ("not", inner):
            return not is_allowed(inner, b, h, i, j)
    raise ValueError(f"unknown mask expression: {expression!r}")


def evaluate_mask(
    expression: Expression, batch: int, heads: int, queries: Sequence[int], keys: Sequence[int]
) -> NDArray[np.bool_]:
    """Return the mask [batch, head, query, key] at these query and key positions."""
    dense = np.zeros((batch, heads, len(queries), len(keys)), dtype=np.bool_)
    for b, h, row, column in np.ndindex(dense.shape):
        dense[b, h, row, column] = is_allowed(expression, b, h, queries[row], keys[column])
    return dense
