"""Masks, scores and biases for the tests, each with its counterpart in the oracle.

The sizes are different primes, so that no axis can be mistaken for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies
from torch import Tensor, nn

import oracle
from jumok.attention import bias, mask, score
from jumok.attention.mask import Mask

BATCH, HEADS, GROUPS, QUERIES, KEYS, WIDTH, VALUE_WIDTH = 2, 6, 3, 5, 7, 11, 13

# Bounds relative to max(1, largest |number|). Half precision: the rounding of the output.
BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def assert_close(actual: Tensor, expected: np.ndarray | Tensor, bound: float) -> None:
    """Assert that two tensors are equal within ``bound`` x max(1, largest number)."""
    reference = torch.as_tensor(expected, dtype=torch.float64).detach()
    actual = actual.detach().double()
    assert actual.shape == reference.shape, f"shapes {list(actual.shape)} and {list(reference.shape)}"
    if not reference.numel():
        return
    assert torch.isfinite(actual).all() or not torch.isfinite(reference).all(), "some numbers are not finite"
    difference = (
        (actual - reference).abs().nan_to_num(nan=0.0 if torch.equal(actual.isinf(), reference.isinf()) else 1e9)
    )
    allowed = bound * max(
        1.0, float(reference[reference.isfinite()].abs().max()) if reference.isfinite().any() else 1.0
    )
    worst = int(difference.argmax())
    assert difference.max() <= allowed, f"off by {difference.max():.2e} (> {allowed:.0e}) at flat index {worst}"


class Tensors(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor


def make_tensors(
    dtype: torch.dtype = torch.float64, seed: int = 0, queries: int = QUERIES, keys: int = KEYS, **sizes: int
) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    width, value_width = sizes.get("width", WIDTH), sizes.get("value_width", VALUE_WIDTH)
    heads, groups, batch = sizes.get("heads", HEADS), sizes.get("groups", GROUPS), sizes.get("batch", BATCH)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    return Tensors(
        draw(batch, heads, queries, width), draw(batch, groups, keys, width), draw(batch, groups, keys, value_width)
    )


class MaskCase(NamedTuple):
    ours: Mask | None
    theirs: Any  # the oracle's nested tuple; None = everything


IDS = [[0, 0, 1, 1, 1, 2, 2], [3, 3, 3, 4, 4, 4, 4]]
REAL = [[False, True, True, True, True, True, False], [True, True, False, True, False, True, True]]
TABLE = (torch.rand(2, 6, 5, 7, generator=torch.Generator().manual_seed(7)) < 0.6).tolist()
WINDOWED = ("and", ("causal",), ("window", 3))

MASKS: dict[str, MaskCase] = {
    "none": MaskCase(None, None),
    "causal": MaskCase(mask.causal, ("causal",)),
    "window": MaskCase(mask.window(2), ("window", 2)),
    "causal window": MaskCase(mask.causal & mask.window(3), WINDOWED),
    "prefix": MaskCase(mask.prefix(2) | mask.causal, ("or", ("prefix", 2), ("causal",))),
    "padding lengths": MaskCase(mask.padding([4, 7]), ("padding_lengths", (4, 7))),
    "padding table": MaskCase(mask.padding(torch.tensor(REAL)), ("padding_table", REAL)),
    "documents": MaskCase(mask.documents(torch.tensor(IDS)), ("documents", IDS)),
    "longformer": MaskCase(mask.window(2) | mask.global_at([1]), ("or", ("window", 2), ("global_at", (1,)))),
    "bigbird": MaskCase(
        mask.window(1) | mask.global_at([0]) | mask.random_keys(2, 5, 7),
        ("or", ("or", ("window", 1), ("global_at", (0,))), ("random_keys", 2, 5, 7)),
    ),
    "random blocks": MaskCase(mask.random_keys(1, 4, 7, block=2), ("random_keys", 1, 4, 7, 2)),
    "blocks": MaskCase(mask.blocks(3, shift=1), ("blocks", 3, 1)),
    "swin": MaskCase(mask.blocks((2, 2), grid=(2, 4), shift=(1, 1)), ("blocks2d", (2, 2), (2, 4), (1, 1))),
    "cut edge": MaskCase(
        mask.causal & ~mask.edge(query=3, key=1, head=2), ("and", ("causal",), ("not", ("edge", 3, 1, 2, None)))
    ),
    "given": MaskCase(mask.given(torch.tensor(TABLE)), ("given", TABLE)),
    "nothing": MaskCase(~mask.edge(), ("not", ("edge", None, None, None, None))),
    "empty rows": MaskCase(
        mask.causal & ~mask.edge(query=[0, 2]), ("and", ("causal",), ("not", ("edge", (0, 2), None, None, None)))
    ),
    "not causal": MaskCase(~mask.causal, ("not", ("causal",))),
}


def make_predicate(case: MaskCase) -> Callable[[int, int, int, int], bool]:
    if case.theirs is None:
        return lambda b, h, i, j: True
    return lambda b, h, i, j: oracle.is_allowed(case.theirs, b, h, i, j)


def make_score_case(name: str, dtype: torch.dtype = torch.float64) -> tuple[score.Score, Any, dict[str, nn.Parameter]]:
    """Return our score, the oracle's, and our parameters by the oracle's names."""
    torch.manual_seed(3)
    ours: Any
    match name:
        case "scaled_dot":
            return score.ScaledDot(), oracle.ScaledDot(), {}
        case "scale":
            return score.ScaledDot(scale=0.7), oracle.ScaledDot(0.7), {}
        case "dot":
            return score.Dot(), oracle.Dot(), {}
        case "kernel":
            return score.Kernel(), oracle.EluKernel(), {}
        case "general":
            ours = score.General(WIDTH, WIDTH, heads=HEADS).to(dtype)
            return ours, oracle.General(_to_numpy(ours.matrix)), {"matrix": ours.matrix}
        case "additive":
            ours = score.Additive(WIDTH, WIDTH, hidden=3).to(dtype)
            named = {"query_matrix": ours.query_matrix, "key_matrix": ours.key_matrix, "vector": ours.vector}
        case "additive per head":
            ours = score.Additive(WIDTH, WIDTH, hidden=3, heads=HEADS).to(dtype)
            named = {"query_matrix": ours.query_matrix, "key_matrix": ours.key_matrix, "vector": ours.vector}
        case "concat":
            ours = score.Concat(WIDTH, WIDTH, hidden=3).to(dtype)
            named = {"matrix": ours.matrix, "vector": ours.vector}
        case _:
            raise AssertionError(name)
    reference_score = (oracle.Concat if name == "concat" else oracle.Additive)(
        *(_to_numpy(parameter) for parameter in named.values())
    )
    return ours, reference_score, named


SCORES = ("scaled_dot", "scale", "dot", "general", "additive", "additive per head", "concat", "kernel")
DOT_SCORES = ("scaled_dot", "scale", "dot", "general")


def _to_numpy(parameter: Tensor) -> np.ndarray:
    return parameter.detach().double().numpy()


def make_bias_case(name: str) -> tuple[bias.Bias | None, Callable[[int, int, int, int], float] | None, Tensor | None]:
    """Return our bias, the oracle's, and the tensor that gets a gradient."""
    generator = torch.Generator().manual_seed(11)
    match name:
        case "none":
            return None, None, None
        case "given":
            table = torch.randn(1, HEADS, QUERIES, KEYS, generator=generator, dtype=torch.float64).requires_grad_()
            return bias.given(table), lambda b, h, i, j: float(table.detach()[0, h, i, j]), table
        case "alibi + given":
            table = torch.randn(QUERIES, KEYS, generator=generator, dtype=torch.float64).requires_grad_()
            slopes = [2 ** (-8 * (step + 1) / 4) for step in range(4)] + [2 ** (-1), 2 ** (-3)]
            summed = bias.alibi(HEADS) + bias.given(table)
            return summed, lambda b, h, i, j: -slopes[h] * abs(i - j) + float(table.detach()[i, j]), table
    raise AssertionError(name)


# Random expressions are drawn as the oracle's tuples and converted into our masks inside the test: the conversion calls
# functions with runtime type checks, which draw random numbers, and a strategy must not.


def make_expressions(size: int, batch: int, heads: int) -> strategies.SearchStrategy[Any]:
    number = strategies.integers
    positions = strategies.lists(number(0, size - 1), min_size=1, max_size=4).map(
        lambda numbers: tuple(sorted(set(numbers)))
    )
    maybe = strategies.one_of(strategies.none(), positions)
    just = strategies.just

    def rows(entries: strategies.SearchStrategy[Any]) -> strategies.SearchStrategy[list[list[Any]]]:
        line = strategies.lists(entries, min_size=size, max_size=size)
        return strategies.lists(line, min_size=batch, max_size=batch)

    def square(numbers: tuple[int, int, int, int, int]) -> Any:
        height, width, down, right, columns = numbers
        return ("blocks2d", (height, width), (-(-size // columns), columns), (down, right))

    def table(bits: int) -> Any:
        cells = iter(f"{bits:0{batch * heads * size * size}b}")
        return (
            "given",
            [
                [[[next(cells) == "1" for _ in range(size)] for _ in range(size)] for _ in range(heads)]
                for _ in range(batch)
            ],
        )

    leaves = strategies.one_of(
        just(("causal",)),
        strategies.tuples(just("window"), number(1, size)),
        strategies.tuples(just("prefix"), number(0, size)),
        strategies.tuples(just("global_at"), positions),
        strategies.tuples(just("random_keys"), number(0, 4), number(0, 2**70), number(1, size)),
        strategies.tuples(just("random_keys"), number(0, 2), number(0, 9), number(1, size), number(1, 5)),
        strategies.tuples(just("blocks"), number(1, size), number(0, size)),
        strategies.tuples(number(1, 3), number(1, 3), number(0, 3), number(0, 3), number(1, size)).map(square),
        strategies.tuples(
            just("edge"),
            maybe,
            maybe,
            strategies.one_of(strategies.none(), number(0, heads - 1)),
            strategies.one_of(strategies.none(), number(0, batch - 1)),
        ),
        strategies.tuples(
            just("padding_lengths"), strategies.lists(number(0, size + 2), min_size=batch, max_size=batch).map(tuple)
        ),
        strategies.tuples(just("padding_table"), rows(strategies.booleans())),
        strategies.tuples(just("documents"), rows(number(0, 2))),
        number(0, 2 ** (batch * heads * size * size) - 1).map(table),
    )

    def nest(inner: strategies.SearchStrategy[Any]) -> strategies.SearchStrategy[Any]:
        return strategies.one_of(
            strategies.tuples(just("and"), inner, inner),
            strategies.tuples(just("or"), inner, inner),
            strategies.tuples(just("not"), inner),
        )

    return strategies.recursive(leaves, nest, max_leaves=6)


def build_mask(expression: Any) -> Mask:
    """Return our mask for an expression of the oracle."""
    match expression:
        case ("and", left, right):
            return build_mask(left) & build_mask(right)
        case ("or", left, right):
            return build_mask(left) | build_mask(right)
        case ("not", inner):
            return ~build_mask(inner)
        case ("causal",):
            return mask.causal
        case ("blocks", size, shift):
            return mask.blocks(size, shift=shift)
        case ("blocks2d", size, grid, shift):
            return mask.blocks(size, grid=grid, shift=shift)
        case ("padding_lengths", lengths):
            return mask.padding(lengths)
        case ("padding_table", table):
            return mask.padding(torch.tensor(table))
        case ("documents" | "given" as word, table):
            return getattr(mask, word)(torch.tensor(table))
        case (word, *arguments):
            return getattr(mask, word)(*arguments)
    raise AssertionError(expression)
