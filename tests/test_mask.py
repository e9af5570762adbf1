"""Masks against an evaluation written apart from them, cell by cell, and against what people write about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from cases import MASKS, expressions, ours
from jumok.attention import attend, mask
from jumok.attention.backends import block_plan
from jumok.attention.grid import BlockGrid, Grid
from jumok.attention.mask.base import EMPTY, FULL
from jumok.errors import ArgumentError, ShapeError

SIZE, BATCH, HEADS = 11, 2, 3


@settings(max_examples=300)
@given(expressions(SIZE, BATCH, HEADS))
def test_any_expression_is_what_the_loops_say(theirs: Any) -> None:
    made = ours(theirs)
    dense = made.dense(SIZE, SIZE, heads=HEADS, batch=BATCH)
    assert dense.dtype == torch.bool
    wanted = oracle.mask_dense(theirs, BATCH, HEADS, range(SIZE), range(SIZE))
    assert np.array_equal(dense.numpy(), wanted), repr(made)


@settings(max_examples=150)
@given(expressions(SIZE, BATCH, HEADS), st.permutations(range(SIZE)), st.permutations(range(SIZE)))
def test_any_positions_pick_rows_and_columns(theirs: Any, queries: list[int], keys: list[int]) -> None:
    made = ours(theirs)
    queries, keys = queries[:5], keys[:7]
    dense = made.dense(queries, keys, heads=HEADS, batch=BATCH)
    wanted = oracle.mask_dense(theirs, BATCH, HEADS, queries, keys)
    assert np.array_equal(dense.numpy(), wanted), repr(made)


@settings(max_examples=300)
@given(expressions(SIZE, BATCH, HEADS), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))
def test_what_is_said_of_a_block_holds_for_each_of_its_cells(theirs: Any, rows: int, columns: int, start: int) -> None:
    made = ours(theirs)
    grid = Grid(range(BATCH), range(HEADS), range(start, SIZE), range(SIZE))
    blocks = BlockGrid(grid, rows, columns)
    reach = made.classify_blocks(blocks)
    shape = (BATCH, HEADS, -(-(SIZE - start) // rows), -(-SIZE // columns))
    reach = reach.expand(shape)
    cells = torch.as_tensor(oracle.mask_dense(theirs, BATCH, HEADS, range(start, SIZE), range(SIZE)))
    for row in range(shape[2]):
        for column in range(shape[3]):
            block = cells[:, :, row * rows : (row + 1) * rows, column * columns : (column + 1) * columns].flatten(2)
            assert not block.any(-1)[reach[:, :, row, column] == EMPTY].any(), repr(made)
            assert block.all(-1)[reach[:, :, row, column] == FULL].all(), repr(made)
    if made.allows_all(grid):
        assert cells.all(), repr(made)


@pytest.mark.usefixtures("tiny_blocks")
@settings(max_examples=100)
@given(expressions(SIZE, BATCH, HEADS))
def test_every_backend_takes_any_expression(theirs: Any) -> None:
    made = ours(theirs)
    torch.manual_seed(0)
    query, key, value = torch.randn(3, BATCH, HEADS, SIZE, 5, dtype=torch.float64).requires_grad_()
    allowed = torch.as_tensor(oracle.mask_dense(theirs, BATCH, HEADS, range(SIZE), range(SIZE)))
    scores = (query @ key.mT / 5**0.5).masked_fill(~allowed, -1e300)  # float64, and rows of nothing are cleared below
    wanted = (scores.softmax(-1) * allowed) @ value
    for backend in ("explicit", "sdpa", "blocked"):
        found = attend(query, key, value, mask=made, backend=backend)
        assert torch.allclose(found, wanted, atol=1e-12), (backend, repr(made))


def test_relative_masks_are_told_from_others() -> None:
    assert (mask.causal & ~mask.window(3)).relative
    assert not (mask.causal & mask.prefix(2)).relative


def test_a_window_of_n_is_n_keys_when_causal_and_both_sides_alone() -> None:
    assert (mask.causal & mask.window(4)).dense(9, 9)[0, 0].sum(-1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4]
    assert mask.window(4).dense(9, 9)[0, 0, 4].sum() == 7


def test_dense_is_always_batch_head_query_key() -> None:
    expression = mask.causal & (mask.window(4) | mask.global_at([0]))
    assert expression.dense(queries=7, keys=7).shape == (1, 1, 7, 7)
    assert mask.causal.dense([5], 7, heads=3, batch=2).shape == (2, 3, 1, 7)


def test_random_keys_are_distinct_and_a_pure_function() -> None:
    drawn = mask.random_keys(5, seed=3, length=100)
    dense = drawn.dense(100, 100)[0, 0]
    assert (dense.sum(-1) == 5).all()
    assert torch.equal(drawn.dense([40], 100)[0, 0, 0], dense[40])
    assert not torch.equal(dense, mask.random_keys(5, seed=4, length=100).dense(100, 100)[0, 0])
    # every key about as often as another: 500 draws over 100 keys
    assert dense.sum(0).max() < 20


def test_masks_print_as_what_was_written_and_drawn() -> None:
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
@given(expressions(SIZE, 1, 1))
def test_what_is_printed_can_be_read_back(theirs: Any) -> None:
    made = ours(theirs)
    text = repr(made)
    if "bool" in text:  # a table is not written out
        return
    again = mask.parse(text)
    assert torch.equal(again.dense(SIZE, SIZE), made.dense(SIZE, SIZE)), text


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
def test_text_that_is_no_mask_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"\w+ \w+"):
        mask.parse(text)


def test_equal_masks_are_equal_and_hash_alike_where_they_can() -> None:
    one, two = (mask.causal & mask.blocks(3, shift=1) for _ in range(2))
    assert one == two and hash(one) == hash(two) and one != mask.causal & mask.blocks(3)
    assert mask.given(torch.ones(3, 3).bool()) == mask.given(torch.ones(3, 3).bool())
    assert mask.padding(torch.ones(1, 3).bool()) != mask.padding(torch.zeros(1, 3).bool())
    with pytest.raises(TypeError):
        hash(mask.given(torch.ones(3, 3).bool()))


def test_and_or_not_of_python_are_refused() -> None:
    with pytest.raises(TypeError, match=r"& \| ~"):
        _ = mask.causal and mask.window(3)
    with pytest.raises(TypeError):
        _ = mask.causal & torch.ones(3, 3).bool()


@pytest.mark.parametrize(
    ("make", "says"),
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
def test_what_cannot_be_meant_is_refused(make: object, says: str) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=says):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("made", "says"),
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
def test_a_mask_of_the_wrong_size_is_refused(made: mask.Mask, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        attend(torch.randn(2, 6, 5, 4), torch.randn(2, 6, 7, 4), torch.randn(2, 6, 7, 4), mask=made)


def test_a_table_is_not_read_backwards() -> None:
    query = torch.randn(1, 1, 5, 4)
    for made in (mask.documents([0] * 7), mask.given(torch.ones(5, 5).bool()), mask.padding(torch.ones(1, 5).bool())):
        with pytest.raises(ShapeError, match="at -1"):
            attend(query, query, query, mask=made, query_positions=range(-1, 4), key_positions=range(-1, 4))


def test_blocked_skips_what_is_forbidden() -> None:
    def share(made: mask.Mask, size: int = 4096) -> float:
        return block_plan.compute_coverage(made, Grid(range(1), range(1), range(size), range(size)))

    assert share(mask.causal & mask.window(128)) < 0.08
    assert share(mask.blocks(64)) < 0.04
    assert share(mask.window(64) | mask.global_at([0])) < 0.12
    assert share(~mask.edge()) == 0
    assert share(mask.documents([position // 500 for position in range(4096)])) < 0.2
    assert 0.5 < share(mask.causal) < 0.56
