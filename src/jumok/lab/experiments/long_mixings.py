"""Experiment ``long``: seven ways to mix the tokens of a long text, what they cost, and whether they see far enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text
from jumok.lab.cost.cost_report import format_bytes
from jumok.lab.cost.mixing_growth import FITTED, HEADS, ORDERS, WIDTH, MixingGrowth, measure_mixings

from . import needle_task
from .experiment_result import ExperimentResult, Progress, Table
from .needle_task import DISTANCES, NEW_DISTANCES

MIXINGS = tuple(ORDERS)
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
QUICK: dict[str, Any] = {"lengths": LENGTHS[2:6], "runs": 1, "steps": 300}
FULL: dict[str, Any] = {"lengths": LENGTHS, "runs": 3, "steps": 300}
CHANCE = 1 / needle_task.DIGITS
DIFFERENT = 0.25  # a fitted exponent that differs more from the theory is reported
LEARNED, GUESSED = 0.9, CHANCE + 0.1  # shares of right answers
WORSE = 0.1  # by how much new distances may be answered less often


@dataclass(frozen=True)
class NeedleRow:
    """How one mixing finds the hidden digit.

    Attributes:
        reachable: The distances that the masks of all layers together allow, among those that are tested.
        reach: The largest distance that they allow.
        right: For each seed, the share of right answers by distance.
    """

    mixing: str
    reachable: tuple[int, ...]
    reach: int
    right: tuple[dict[int, float], ...]

    def average(self, distances: Sequence[int]) -> float | None:
        """Return the share of right answers over some distances and all seeds; None without distances."""
        return mean(scores[distance] for scores in self.right for distance in distances) if distances else None


@dataclass(frozen=True)
class LongResult(ExperimentResult):
    """The result of ``measure_long_mixings``.

    Attributes:
        weight_bytes: For each length, the memory of the weights of full attention, if they were kept; computed.
        needles: How each mixing finds the hidden digit.
    """

    seed: int
    lengths: tuple[int, ...]
    costs: tuple[MixingGrowth, ...]
    weight_bytes: tuple[int, ...]
    needles: tuple[NeedleRow, ...]
    steps: int

    def build_tables(self) -> list[Table]:
        """Return the times, the memory and the right answers."""
        return [self._build_time_table(), self._build_memory_table(), self._build_needle_table()]

    def _build_time_table(self) -> Table:
        lengths = tuple(Text(f"{length:,}", f"{length:,}") for length in self.lengths)
        columns = (Text("mixing", "방식"), *lengths, Text("exponent", "지수"), Text("theory", "이론"))
        rows = tuple(
            (
                cost.mixing,
                *(f"{number:,.1f}" for number in cost.milliseconds),
                f"{cost.exponent:.2f}",
                f"{cost.order} ({cost.theory:.2f})",
            )
            for cost in self.costs
        )
        title = Text(
            f"milliseconds of one layer by tokens, {WIDTH} wide, {HEADS} heads, one thread, processor time; the "
            f"exponent is fitted through the {FITTED} longest texts",
            f"토큰 수에 따른 층 하나의 시간(ms), 너비 {WIDTH}, 헤드 {HEADS}개, 스레드 1개, 프로세서 시간; "
            f"지수는 가장 긴 텍스트 {FITTED}개로 맞춘 값",
        )
        return Table(columns, rows, title)

    def _build_memory_table(self) -> Table:
        lengths = tuple(Text(f"{length:,}", f"{length:,}") for length in self.lengths)
        columns = (Text("mixing", "방식"), *lengths, Text("exponent", "지수"))
        rows = [
            (cost.mixing, *map(format_bytes, cost.peak_bytes), f"{cost.memory_exponent:.2f}") for cost in self.costs
        ]
        label = Text("full, weights kept", "full, 가중치 보관 시")
        title = Text(
            "largest memory of all tensors that the layer creates, at one time, counted at every operation; last line: "
            "the weights of full attention, computed as heads x n^2 x 4 bytes, which the fused kernel does not store",
            "층이 만드는 텐서가 동시에 차지하는 최대 메모리(연산마다 합산); 마지막 줄은 전체 어텐션의 가중치로, "
            "헤드 수 x n^2 x 4바이트로 계산한 값이며 융합 커널은 저장하지 않습니다",
        )
        return Table(columns, (*rows, (label, *map(format_bytes, self.weight_bytes), "2.00")), title)

    def _build_needle_table(self) -> Table:
        new = (*(Text(f"{distance} new", f"{distance} 새로") for distance in NEW_DISTANCES), Text("range", "범위"))
        distances = tuple(Text(str(distance), str(distance)) for distance in DISTANCES)
        columns = (Text("mixing", "방식"), Text("reach", "도달 거리"), *distances, *new)
        rows = []
        for row in self.needles:
            cells = [
                f"{mean(scores[distance] for scores in row.right):.0%}" for distance in (*DISTANCES, *NEW_DISTANCES)
            ]
            per_seed = [mean(scores[distance] for distance in DISTANCES) for scores in row.right]
            rows.append((row.mixing, str(row.reach), *cells, f"{min(per_seed):.0%} - {max(per_seed):.0%}"))
        runs = len(self.needles[0].right)
        title = Text(
            f"right answers by distance: the last of {needle_task.LENGTH} tokens names a digit hidden among letters; "
            f"{needle_task.LAYERS} layers, {self.steps} steps, {runs} seed(s), chance {CHANCE:.1%}; new: a distance "
            "that training never showed; range: of the seeds, without the new distances",
            f"거리별 정답률: 토큰 {needle_task.LENGTH}개 중 마지막 토큰이 글자 사이에 숨은 숫자를 맞힙니다. 층 "
            f"{needle_task.LAYERS}개, {self.steps}스텝, 시드 {runs}개, 우연히 맞힐 확률 {CHANCE:.1%}; "
            "새로: 학습에 나오지 않은 거리; 범위: 시드별 값(새 거리 제외)",
        )
        return Table(columns, tuple(rows), title)

    def explain(self) -> list[Text]:
        """Say how the costs grow, and which mixings find a distant digit."""
        full = self._get_cost("full")
        sparse_costs = [cost for cost in self.costs if cost is not full]
        longest, growth = self.lengths[-1], self.lengths[-1] // self.lengths[-FITTED:][0]
        exponents = sorted(cost.exponent for cost in sparse_costs)
        sizes = format_bytes(full.peak_bytes[-1]), format_bytes(self.weight_bytes[-1])
        window = next(row for row in self.needles if row.mixing == "window")
        far = self._list_far_distances()
        shares = ", ".join(f"{row.mixing} {row.average(far):.0%}" for row in self.needles if row is not window)
        return [
            Text(
                f"When a text grows {growth} times longer, to {longest:,} tokens, the time of full attention grows "
                f"with exponent {full.exponent:.2f} (theory 2), that of the others with {exponents[0]:.2f} to "
                f"{exponents[-1]:.2f}; the fused kernel of full attention needs {sizes[0]} there, not the {sizes[1]} "
                "of its weights, so it saves memory, but not the n^2 operations.",
                f"텍스트가 {growth}배 길어져 토큰 {longest:,}개가 될 때 전체 어텐션의 시간은 지수 "
                f"{full.exponent:.2f}(이론 2)로, 나머지는 {exponents[0]:.2f}에서 {exponents[-1]:.2f}로 늘어납니다. "
                f"이때 전체 어텐션의 융합 커널은 가중치 크기인 {sizes[1]} 대신 {sizes[0]}만 쓰므로 메모리는 줄지만, "
                "연산은 여전히 n^2입니다.",
            ),
            Text(
                f"A window alone reaches {window.reach} tokens in {needle_task.LAYERS} layers: of digits at distance "
                f"{far[0]} to {far[-1]} it names {window.average(far):.0%} (chance {CHANCE:.1%}); the others: "
                f"{shares}.",
                f"윈도만으로는 층 {needle_task.LAYERS}개에서 {window.reach}토큰까지만 도달합니다. 거리 {far[0]}에서 "
                f"{far[-1]} 사이의 숫자를 맞힌 비율은 {window.average(far):.0%}(우연 {CHANCE:.1%})이고, "
                f"나머지는 {shares}입니다.",
            ),
        ]

    def list_exceptions(self) -> list[Text]:
        """Name exponents far from the theory, mixings slower than full attention, and digits that were not found."""
        full = self._get_cost("full")
        longest = self.lengths[-1]
        texts = []
        for cost in self.costs:
            if abs(cost.exponent - cost.theory) > DIFFERENT:
                texts.append(
                    Text(
                        f"{cost.mixing}: up to {longest:,} tokens, the time grows with exponent {cost.exponent:.2f}, "
                        f"in theory {cost.theory:.2f}.",
                        f"{cost.mixing}: 토큰 {longest:,}개까지 시간이 지수 {cost.exponent:.2f}로 늘어납니다(이론 "
                        f"{cost.theory:.2f}).",
                    )
                )
            if cost.milliseconds[-1] > full.milliseconds[-1]:
                ratio = cost.milliseconds[-1] / full.milliseconds[-1]
                texts.append(
                    Text(
                        f"{cost.mixing} still takes {ratio:.1f} times as long as full attention at {longest:,} tokens.",
                        f"{cost.mixing}: 토큰 {longest:,}개에서도 전체 어텐션보다 {ratio:.1f}배 오래 걸립니다.",
                    )
                )
        for row in self.needles:
            texts += _list_needle_exceptions(row, self.steps)
        return texts

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the times over the lengths, both logarithmic."""
        series = {
            f"{cost.mixing} ({cost.exponent:.2f})": list(zip(self.lengths, cost.milliseconds, strict=True))
            for cost in self.costs
        }
        title = Text("Time of one layer (fitted exponent)", "층 하나의 시간(맞춘 지수)").select(language)
        across, vertical = Text("tokens", "토큰 수").select(language), Text("milliseconds", "밀리초").select(language)
        return save_line_plot(
            series, target, title=title, across=across, vertical=vertical, log_across=True, log_vertical=True
        )

    def _get_cost(self, mixing: str) -> MixingGrowth:
        return next(cost for cost in self.costs if cost.mixing == mixing)

    def _list_far_distances(self) -> list[int]:
        window = next(row for row in self.needles if row.mixing == "window")
        return [distance for distance in DISTANCES if distance > window.reach]


def _list_needle_exceptions(row: NeedleRow, steps: int) -> list[Text]:
    """Name where a mixing does not find what it can reach, or finds what it cannot reach."""
    inside = [distance for distance in DISTANCES if distance in row.reachable]
    beyond = [distance for distance in DISTANCES if distance not in row.reachable]
    new = [distance for distance in NEW_DISTANCES if distance in row.reachable]
    texts = []
    share = row.average(inside)
    if share is not None and share < LEARNED:
        texts.append(
            Text(
                f"{row.mixing} names only {share:.0%} of the digits that it can reach, after {steps} training steps.",
                f"{row.mixing}: {steps}스텝을 학습한 뒤에도 도달할 수 있는 숫자를 {share:.0%}만 맞힙니다.",
            )
        )
    share = row.average(beyond)
    if share is not None and share > GUESSED:
        texts.append(
            Text(
                f"{row.mixing} names {share:.0%} of the digits beyond its reach; the masks leak.",
                f"{row.mixing}: 도달할 수 없는 숫자도 {share:.0%} 맞힙니다. 마스크가 새고 있습니다.",
            )
        )
    share, usual = row.average(new), row.average(inside)
    if share is not None and usual is not None and share < usual - WORSE:
        texts.append(
            Text(
                f"{row.mixing} names only {share:.0%} at distances that training never showed, instead of "
                f"{usual:.0%}: it learned positions.",
                f"{row.mixing}: 학습에 나오지 않은 거리에서는 {usual:.0%}가 아니라 {share:.0%}만 맞힙니다. "
                "위치를 외운 것입니다.",
            )
        )
    return texts


def measure_long_mixings(
    lengths: Sequence[int] = LENGTHS[2:6],
    *,
    mixings: Sequence[str] = MIXINGS,
    runs: int = 1,
    steps: int = 300,
    rounds: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> LongResult:
    """Compare mixings: time and memory of one layer, and whether small models find a digit at a distance.

    Args:
        lengths: The numbers of tokens at which a layer is measured, in increasing order.
        mixings: The mixings; they must include "full" and "window".
        runs: How many models to train for each mixing; each has its own seed.
        progress: Called with the finished and the total number of training steps and rounds; default: nothing.

    Raises:
        ArgumentError: If a number is out of range, or a mixing is missing or unknown.
    """
    if not {"full", "window"} <= set(mixings) <= set(MIXINGS):
        raise ArgumentError(f"mixings must include full and window, and be among {', '.join(MIXINGS)}")
    if min(runs, steps) < 1:
        raise ArgumentError("runs and steps must be at least 1")
    measured = len(lengths) * (rounds + 1)
    total, done = measured + len(mixings) * runs * steps, 0

    def report_step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    costs = measure_mixings(
        lengths, mixings=mixings, rounds=rounds, seed=seed, progress=lambda finished, count: report_step()
    )
    needles = []
    for mixing in mixings:
        distances = needle_task.find_reachable_distances(needle_task.create_model(mixing, seed))
        right = tuple(
            needle_task.train_and_score(mixing, steps=steps, seed=run_seed, after_step=report_step)
            for run_seed in range(seed, seed + runs)
        )
        reachable = tuple(distance for distance in (*DISTANCES, *NEW_DISTANCES) if distance in distances)
        needles.append(NeedleRow(mixing, reachable, max(distances), right))
    weight_bytes = tuple(4 * HEADS * length**2 for length in lengths)
    return LongResult(seed, tuple(lengths), costs, weight_bytes, tuple(needles), steps)
