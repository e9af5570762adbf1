"""How time and memory of the ways to mix tokens grow with the length: the layers of the family ``long``, measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from jumok.errors import ArgumentError
from jumok.layers import EncoderBlock
from jumok.models.long import Long, LongConfig

from .call_cost import measure_calls

WIDTH, HEADS = 64, 2
WINDOW, BLOCK, RANDOM, FEATURES = 128, 64, 3, 64  # a window of 255 keys; blocks of 256 tokens
ORDERS = {
    "full": "n^2", "window": "n", "longformer": "n", "bigbird": "n", "blocks": "n", "performer": "n", "fnet": "n log n",
}  # fmt: skip
FITTED = 3  # the longest lengths, through which the exponent is fitted
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class MixingGrowth:
    """The cost of one layer of a mixing.

    Attributes:
        order: Its operations as a function of the length n.
        milliseconds: The shortest measured processor time for each length.
        peak_bytes: The largest memory of its tensors at one time, for each length.
        exponent: The slope of log time over log length, fitted through the three longest lengths.
        memory_exponent: The same for the memory.
        theory: The slope of ``order`` between the shortest and the longest of these lengths.
    """

    mixing: str
    order: str
    milliseconds: tuple[float, ...]
    peak_bytes: tuple[int, ...]
    exponent: float
    memory_exponent: float
    theory: float


def measure_mixings(
    lengths: Sequence[int],
    *,
    mixings: Sequence[str] = tuple(ORDERS),
    rounds: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[MixingGrowth, ...]:
    """Measure one layer of each mixing, without its feed-forward network, on one text of each length.

    The layers are those of ``Long``, with the backend that ``attend()`` selects, and one thread.

    Args:
        lengths: The numbers of tokens, in increasing order; at least two.
        mixings: The mixings to measure; default: all.
        rounds: How often each layer is timed; the shortest time counts, because other programs only make it longer.
        progress: Called with the finished and the total number of rounds; default: nothing.

    Raises:
        ArgumentError: If the lengths are not increasing, or ``rounds`` is not positive.
    """
    if len(lengths) < 2 or list(lengths) != sorted(set(lengths)) or lengths[0] < 2 or rounds < 1:
        raise ArgumentError("lengths must be at least two increasing numbers from 2, and rounds at least 1")
    torch.manual_seed(seed)
    models = {mixing: _build_model(mixing) for mixing in mixings}
    milliseconds: dict[str, list[float]] = {mixing: [] for mixing in mixings}
    peaks: dict[str, list[int]] = {mixing: [] for mixing in mixings}
    total, done = len(lengths) * (rounds + 1), 0

    def report_round() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    for length in lengths:
        hidden = torch.randn(1, length, WIDTH)
        calls = {mixing: _create_call(model, hidden) for mixing, model in models.items()}
        for mixing, cost in measure_calls(calls, rounds=rounds, after_round=report_round).items():
            milliseconds[mixing].append(cost.milliseconds)
            peaks[mixing].append(cost.peak_bytes)
    return tuple(summarize_growth(mixing, lengths, milliseconds[mixing], peaks[mixing]) for mixing in mixings)


def summarize_growth(
    mixing: str, lengths: Sequence[int], milliseconds: Sequence[float], peak_bytes: Sequence[int]
) -> MixingGrowth:
    """Fit the exponents of measured times and sizes.

    Args:
        milliseconds: The time for each length.
        peak_bytes: The memory for each length.

    >>> growth = summarize_growth("full", (256, 512, 1024), (1.0, 4.0, 16.0), (8, 16, 32))
    >>> growth.exponent, growth.memory_exponent, growth.theory
    (2.0, 1.0, 2.0)
    """
    fitted = list(lengths[-FITTED:])
    order = ORDERS[mixing]
    expected = {"n^2": 2.0, "n": 1.0}.get(order)
    if expected is None:
        expected = fit_exponent(
            [fitted[0], fitted[-1]], [length * math.log(length) for length in (fitted[0], fitted[-1])]
        )
    return MixingGrowth(
        mixing,
        order,
        tuple(milliseconds),
        tuple(peak_bytes),
        fit_exponent(fitted, milliseconds[-FITTED:]),
        fit_exponent(fitted, peak_bytes[-FITTED:]),
        expected,
    )


def fit_exponent(lengths: Sequence[int], costs: Sequence[int | float]) -> float:
    """Return the slope of log cost over log length, by least squares."""
    across = [math.log2(length) for length in lengths]
    upward = [math.log2(cost) for cost in costs]
    centre, level = sum(across) / len(across), sum(upward) / len(upward)
    products = sum((x - centre) * (y - level) for x, y in zip(across, upward, strict=True))
    return products / sum((x - centre) ** 2 for x in across)


def _build_model(mixing: str) -> Long:
    config = LongConfig(
        vocabulary=2,
        length=2,
        width=WIDTH,
        layers=2,
        heads=HEADS,
        hidden=WIDTH,
        mixing=mixing,
        window=2 * WINDOW if mixing == "blocks" else WINDOW,
        random=RANDOM,
        block=BLOCK,
        features=FEATURES,
    )
    return Long(config).eval()


def _create_call(model: Long, hidden: torch.Tensor) -> Callable[[], object]:
    mask = model.build_mask(hidden.shape[1], layer=1)  # of blocks, the shifted ones
    block = model.blocks[1]
    assert isinstance(block, EncoderBlock)
    layer = block.attention
    return lambda: layer(hidden, mask=mask)
