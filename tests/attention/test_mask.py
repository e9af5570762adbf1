"""Masks against the oracle's cell-by-cell evaluation, and as text."""

from __future__ import annotations

import operator
import time
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from cases import MASKS, build_mask, make_expressions
from jumok.attention import attend, mask
from jumok.attention.backends import block_plan
from jumok.attention.grid import BlockGrid, Grid
from jumok.attention.mask.base import EMPTY, FULL, MASK_FUNCTIONS, MAX_NESTING
from jumok.attention.mask.notation import draw
from jumok.errors import ArgumentError, ShapeError

SIZE, BATCH, HEADS = 11, 2, 3


@settings(max_examples=300)
@given(make_expressions(SIZE, BATCH, HEADS))
def test_dense_mask_equals_the_loops(expression: Any) -> None:
    built_mask = build_mask(expression)
    dense = built_mask.dense(SIZE, SIZE, heads=HEADS, batch=BATCH)
    assert dense.dtype == torch.bool
    expected = oracle.evaluate_mask(expression, BATCH, HEADS, range(SIZE), range(SIZE))
    assert np.array_equal(dense.numpy(), expected), repr(built_mask)


@settings(max_examples=150)
@given(make_expressions(SIZE, BATCH, HEADS), st.permutations(range(SIZE)), st.permutations(range(SIZE)))
def test_dense_mask_at_any_positions_equals_the_loops(expression: Any, queries: list[int], keys: list[int]) -> None:
    built_mask = build_mask(expression)
    queries, keys = queries[:5], keys[:7]
    dense = built_mask.dense(queries, keys, heads=HEADS, batch=BATCH)
    expected = oracle.evaluate_mask(expression, BATCH, HEADS, queries, keys)
    assert np.array_equal(dense.numpy(), expected), repr(built_mask)


@settings(max_examples=300)
@given(make_expressions(SIZE, BATCH, HEADS), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))
def test_block_classes_hold_for_every_cell(expression: Any, rows: int, columns: int, start: int) -> None:
    built_mask = build_mask(expression)
    grid = Grid(range(BATCH), range(HEADS), range(start, SIZE), range(SIZE))
    blocks = BlockGrid(grid, rows, columns)
    classes = built_mask.classify_blocks(blocks)
    shape = (BATCH, HEADS, -(-(SIZE - start) // rows), -(-SIZE // columns))
    classes = classes.expand(shape)
    cells = torch.as_tensor(oracle.evaluate_mask(expression, BATCH, HEADS, range(start, SIZE), range(SIZE)))
    for row in range(shape[2]):
        for column in range(shape[3]):
            block = cells[:, :, row * rows : (row + 1) * rows, column * columns : (column + 1) * columns].flatten(2)
            assert not block.any(-1)[classes[:, :, row, column] == EMPTY].any(), repr(built_mask)
            assert block.all(-1)[classes[:, :, row, column] == FULL].all(), repr(built_mask)
    if built_mask.allows_all(grid):
        assert cells.all(), repr(built_mask)


@pytest.mark.usefixtures("tiny_blocks")
@settings(max_examples=100)
@given(make_expressions(SIZE, BATCH, HEADS))
def test_every_backend_applies_any_expression(expression: Any) -> None:
    built_mask = build_mask(expression)
    torch.manual_seed(0)
    query, key, value = torch.randn(3, BATCH, HEADS, SIZE, 5, dtype=torch.float64).requires_grad_()
    allowed = torch.as_tensor(oracle.evaluate_mask(expression, BATCH, HEADS, range(SIZE), range(SIZE)))
    scores = (query @ key.mT / 5**0.5).masked_fill(~allowed, -1e300)  # rows without allowed keys are zeroed below
    expected = (scores.softmax(-1) * allowed) @ value
    for backend in ("explicit", "sdpa", "blocked"):
        actual = attend(query, key, value, mask=built_mask, backend=backend)
        assert torch.allclose(actual, expected, atol=1e-12), (backend, repr(built_mask))


def test_relative_masks_are_recognised() -> None:
    assert (mask.causal & ~mask.window(3)).relative
    assert not (mask.causal & mask.prefix(2)).relative


def test_window_allows_n_keys_if_causal_and_both_sides_alone() -> None:
    assert (mask.causal & mask.window(4)).dense(9, 9)[0, 0].sum(-1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4]
    assert mask.window(4).dense(9, 9)[0, 0, 4].sum() == 7


def test_dense_is_always_batch_head_query_key() -> None:
    longformer = mask.causal & (mask.window(4) | mask.global_at([0]))
    assert longformer.dense(queries=7, keys=7).shape == (1, 1, 7, 7)
    assert mask.causal.dense([5], 7, heads=3, batch=2).shape == (2, 3, 1, 7)


def test_random_keys_are_distinct_and_a_pure_function() -> None:
    random_mask = mask.random_keys(5, seed=3, length=100)
    dense = random_mask.dense(100, 100)[0, 0]
    assert (dense.sum(-1) == 5).all()
    assert torch.equal(random_mask.dense([40], 100)[0, 0, 0], dense[40])
    assert not torch.equal(dense, mask.random_keys(5, seed=4, length=100).dense(100, 100)[0, 0])
    # the draws are about uniform: 500 draws over 100 keys
    assert dense.sum(0).max() < 20


def test_random_blocks_are_shared_by_the_queries_of_a_block() -> None:
    dense = mask.random_keys(2, seed=3, length=23, block=5).dense(25, 27)[0, 0]
    expected = oracle.evaluate_mask(("random_keys", 2, 3, 23, 5), 1, 1, range(25), range(27))[0, 0]
    assert torch.equal(dense, torch.tensor(expected))
    assert not dense[:, 23:].any()  # the last block ends with the text
    for start in range(0, 25, 5):
        assert (dense[start : start + 5] == dense[start]).all()
        assert len({key // 5 for key in dense[start].nonzero().flatten().tolist()}) == 2
    assert mask.random_keys(5, 0, 23, block=5).dense(7, 23).all()
    assert repr(mask.random_keys(2, 0, 64, 8)) == "random_keys(2, 0, 64, 8)"


def test_blocked_backend_skips_most_tiles_of_random_blocks_but_not_of_random_keys() -> None:
    grid = Grid(range(1), range(1), range(8192), range(8192))
    single, block = (block_plan.compute_coverage(mask.random_keys(3, 0, 8192, size), grid) for size in (1, 64))
    assert single > 0.9 and block < 0.06, (single, block)


def test_masks_print_their_expression_and_drawing() -> None:
    assert repr(mask.causal & (mask.window(4) | ~mask.global_at([0]))) == "causal & (window(4) | ~global_at([0]))"
    assert str(mask.causal & mask.window(2)).splitlines()[:4] == [
        "causal & window(2)",
        "■ · · · · · · ·",
        "■ ■ · · · · · ·",
        "· ■ ■ · · · · ·",
    ]
    for case in MASKS.values():
        if case.ours is not None:
            assert len(str(case.ours).splitlines()) > 4


@settings(max_examples=100)
@given(make_expressions(SIZE, 1, 1))
def test_printed_masks_can_be_parsed(expression: Any) -> None:
    built_mask = build_mask(expression)
    text = repr(built_mask)
    if "bool" in text:  # tables are printed without their contents
        return
    again = mask.parse(text)
    assert torch.equal(again.dense(SIZE, SIZE), built_mask.dense(SIZE, SIZE)), text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "causal and window(3)",
        "window",
        "window(-1)",
        "window(x)",
        "open('x')",
        "causal.__class__",
        "window(3)(4)",
        "causal & 3",
        "(lambda: causal)()",
        "window(size=3, other=4)",
        "causal +",
        "given([1])",
        "documents([[0, 1], [2]])",
        "documents(['a'])",
        f"window({10**30})",
        "~" * 3000 + "causal",
        "padding(5)",
        "edge(query='a')",
    ],
)
def test_parse_refuses_other_text(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"\w+ \w+"):
        mask.parse(text)


def test_equal_masks_compare_equal_and_hash_equal() -> None:
    first, second = (mask.causal & mask.blocks(3, shift=1) for _ in range(2))
    assert first == second and hash(first) == hash(second) and first != mask.causal & mask.blocks(3)
    assert mask.given(torch.ones(3, 3).bool()) == mask.given(torch.ones(3, 3).bool())
    assert mask.padding(torch.ones(1, 3).bool()) != mask.padding(torch.zeros(1, 3).bool())
    with pytest.raises(TypeError):
        hash(mask.given(torch.ones(3, 3).bool()))


def test_python_and_or_not_raise() -> None:
    with pytest.raises(TypeError, match=r"& \| ~"):
        _ = mask.causal and mask.window(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mask.window(-1), "at least 1, not -1"),
        (lambda: mask.window(0), "at least 1"),
        (lambda: mask.prefix(-2), "at least 0"),
        (lambda: mask.global_at([-1]), "at least 0"),
        (lambda: mask.blocks((2, 2)), "grid"),
        (lambda: mask.blocks(0), "at least 1"),
        (lambda: mask.edge(query=[]), "empty"),
        (lambda: mask.random_keys(2, 0, 0), "at least 1"),
        (lambda: mask.padding([]), "at least one"),
        (lambda: mask.given(torch.zeros(3, 3)), "boolean"),
        (lambda: mask.given(torch.ones(3).bool()), r"\[3\]"),
        (lambda: mask.padding(torch.ones(3).bool()), r"bool\[3\]"),
        (lambda: mask.padding(torch.ones(3)), "integer lengths"),
        (lambda: mask.documents(torch.ones(3)), "integer ids"),
    ],
)
def test_wrong_arguments_raise(make: object, message: str) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("wrong_mask", "message"),
    [
        (mask.given(torch.ones(4, 7).bool()), "covers 4 query positions, but there is a query at 4"),
        (mask.given(torch.ones(5, 6).bool()), "covers 6 key positions, but there is a key at 6"),
        (mask.given(torch.ones(1, 4, 5, 7).bool()), "4 on the head axis, but the query has 6"),
        (mask.given(torch.ones(3, 1, 5, 7).bool()), "3 on the batch axis, but the query has 2"),
        (mask.padding([3, 4, 5]), "3 on the batch axis, but the query has 2"),
        (mask.padding(torch.ones(2, 6).bool()), "covers 6 key positions"),
        (mask.documents([0, 0, 1, 1, 1]), "covers 5 key positions"),
        (mask.causal & ~mask.blocks((2, 2), grid=(1, 6)), "blocks covers 6 key positions"),
    ],
)
def test_mask_of_the_wrong_size_raises(wrong_mask: mask.Mask, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        attend(torch.randn(2, 6, 5, 4), torch.randn(2, 6, 7, 4), torch.randn(2, 6, 7, 4), mask=wrong_mask)


def test_negative_positions_are_not_looked_up_in_tables() -> None:
    query = torch.randn(1, 1, 5, 4)
    for table_mask in (
        mask.documents([0] * 7),
        mask.given(torch.ones(5, 5).bool()),
        mask.padding(torch.ones(1, 5).bool()),
    ):
        with pytest.raises(ShapeError, match="at -1"):
            attend(query, query, query, mask=table_mask, query_positions=range(-1, 4), key_positions=range(-1, 4))


def test_blocked_skips_forbidden_blocks() -> None:
    def compute_share(pattern: mask.Mask, size: int = 4096) -> float:
        return block_plan.compute_coverage(pattern, Grid(range(1), range(1), range(size), range(size)))

    assert compute_share(mask.causal & mask.window(128)) < 0.08
    assert compute_share(mask.blocks(64)) < 0.04
    assert compute_share(mask.window(64) | mask.global_at([0])) < 0.12
    assert compute_share(~mask.edge()) == 0
    assert compute_share(mask.documents([position // 500 for position in range(4096)])) < 0.2
    assert 0.5 < compute_share(mask.causal) < 0.56


@pytest.mark.parametrize("symbol", ["&", "|"])
def test_chain_of_thousands_of_masks(symbol: str) -> None:
    parts = [mask.causal, *(mask.window(3 + index % 7) for index in range(3000))]
    chain = reduce(operator.and_ if symbol == "&" else operator.or_, parts)
    expected = mask.causal & mask.window(3) if symbol == "&" else mask.causal | mask.window(9)
    assert torch.equal(chain.dense(12, 12), expected.dense(12, 12))
    assert hash(chain) == hash(reduce(operator.and_ if symbol == "&" else operator.or_, parts))
    assert mask.parse(repr(chain)) == chain
    assert str(chain).splitlines()[1:] == draw(expected, 12, 12).splitlines()[1:]
    inputs = torch.randn(3, 1, 2, 12, 4)
    assert torch.allclose(attend(*inputs, mask=chain), attend(*inputs, mask=expected), atol=1e-6)


def test_a_long_chain_is_parsed_in_linear_time() -> None:
    start = time.monotonic()
    for symbol in "&|":
        chain = mask.parse(f"causal {symbol} window(3) {symbol} ".join(["", *[""] * 10_000]) + "prefix(2)")
        assert len(chain.parts) == 20_001 and chain.parts[-1] == mask.prefix(2)
    assert time.monotonic() - start < 10  # 1 s; it took 60 s while each term copied the chain before it


def test_deeply_nested_masks_work_up_to_the_limit() -> None:
    nested = mask.causal
    for _ in range(MAX_NESTING // 2):
        nested = ~(nested & mask.window(3))
    assert nested.nesting == MAX_NESTING
    hash(nested)
    str(nested)
    assert mask.parse(repr(nested)) == nested
    for _ in range(3000):
        nested = ~nested
    attend(*torch.randn(3, 1, 2, 6, 4), mask=nested, backend="blocked")
    with pytest.raises(ArgumentError, match="more than 100 levels deep; simplify it, or pass the cells"):
        ~(nested & mask.window(3))


@pytest.mark.parametrize("text", ["~" * 3000 + "causal", "(" * 3000 + "causal" + ")" * 3000, "causal & " * 3000])
def test_expressions_that_cannot_be_parsed_raise_a_short_message(text: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        mask.parse(text)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("name", [*MASK_FUNCTIONS, "given", "parse"])
def test_mask_function_without_its_call_is_explained(name: str) -> None:
    function: Any = getattr(mask, name)
    message = rf"mask\.{name} is a function, not yet a mask; call it with its arguments, for example mask\.{name}\("
    for join in (operator.and_, operator.or_):
        for left, right in ((mask.causal, function), (function, mask.causal), (function, mask.window(3) | mask.causal)):
            with pytest.raises(ArgumentError, match=message):
                join(left, right)
    with pytest.raises(ArgumentError, match=message):
        attend(*torch.randn(3, 1, 2, 5, 4), mask=function)


def test_operands_that_are_not_masks_are_refused() -> None:
    cells: Any = torch.ones(5, 5, dtype=torch.bool)
    for left, right in ((mask.causal, cells), (cells, mask.causal)):
        with pytest.raises(ArgumentError, match=r"write mask\.given\(tensor\)"):
            left & right
    number: Any = 3
    with pytest.raises(TypeError, match="unsupported operand"):
        mask.causal & number
