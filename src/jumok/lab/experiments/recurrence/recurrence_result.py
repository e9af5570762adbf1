"""The result of the experiment ``recurrence``: tables, sentences, exceptions and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from jumok.defaults import LANGUAGES
from jumok.draw import LinePanel, save_panel_row
from jumok.lab.bilingual_text import Text
from jumok.lab.experiments.experiment_result import ExperimentResult, Table

from .recurrence_models import BOTTLENECK, FULL_NAMES, LEGEND, MULTI_HEAD, NAMES, RECURRENT, SINGLE_HEAD
from .recurrence_rows import QualityRow, SpeedRow, ViewRow

UNFUSED = "lstm_unfused"  # the model without attention, computed one operation after the other
UNFUSED_NAME = Text("LSTM (not fused)", "LSTM(융합 안 함)")
FALL = 0.1  # a share of right tokens that falls by less than this, from the shortest to the longest, counts as stable


@dataclass(frozen=True)
class RecurrenceResult(ExperimentResult):
    """The result of ``measure_recurrence``.

    Attributes:
        lengths: The tested lengths within those of the training.
        longer: The tested lengths beyond those of the training.
        tokens: The lengths for which times were measured.
        quality: A row for each model and length.
        speed: A row for each model, and one for the LSTM without a fused kernel.
        views: A row for each head that attends to the source.
    """

    seed: int
    steps: int
    lengths: tuple[int, ...]
    longer: tuple[int, ...]
    tokens: tuple[int, ...]
    quality: tuple[QualityRow, ...]
    speed: tuple[SpeedRow, ...]
    views: tuple[ViewRow, ...]

    @property
    def models(self) -> list[str]:
        """The names of the models."""
        return list(dict.fromkeys(row.model for row in self.quality))

    def get_quality(self, model: str, length: int) -> QualityRow:
        """Return the quality of a model at one length."""
        return next(row for row in self.quality if (row.model, row.length) == (model, length))

    def get_speed(self, model: str) -> SpeedRow:
        """Return the cost of a model.

        Args:
            model: The name of the model, or ``lstm_unfused``.
        """
        return next(row for row in self.speed if row.model == model)

    def build_tables(self) -> list[Table]:
        """Return tables of generated and of predicted tokens by length, of costs, and of views."""
        return [
            self._build_quality_table("generated", self._write_quality_title()),
            self._build_quality_table(
                "forced", Text("the same, where the digits before are given", "앞의 숫자를 정답으로 줄 때")
            ),
            self._build_speed_table(),
            self._build_view_table(),
        ]

    def _write_quality_title(self) -> Text:
        runs, first, last = len(self.quality[0].generated), self.lengths[0], self.lengths[-1]
        english = (
            f"digits copied correctly, in percent: generated greedily; mean (range) of {runs} seed{'s' * (runs > 1)}; "
            f"{self.steps} training steps on {first} to {last} digits; guessing: 10"
        )
        korean = (
            f"바르게 복사한 숫자(%): 탐욕 생성; 시드 {runs}개의 평균(범위); 숫자 {first}~{last}개로 {self.steps}스텝 "
            "학습; 추측하면 10"
        )
        if self.longer:
            english, korean = f"{english}; *: longer than in training", f"{korean}; *: 학습보다 긴 열"
        return Text(f"{english}\n{LEGEND.english}", f"{korean}\n{LEGEND.korean}")

    def _build_quality_table(self, measure: str, title: Text) -> Table:
        rows = []
        for length in (*self.lengths, *self.longer):
            label = f"{length}" if length in self.lengths else f"{length} *"
            shares = [getattr(self.get_quality(model, length), measure) for model in self.models]
            rows.append((label, *(_format_range(numbers) for numbers in shares)))
        return Table((Text("length", "길이"), *(NAMES[model] for model in self.models)), tuple(rows), title)

    def _build_speed_table(self) -> Table:
        first, last = self.tokens[0], self.tokens[-1]
        columns = [Text("model", "모델"), Text("parameters", "파라미터")]
        columns += [Text(f"in sequence, {count}", f"차례로, {count}개") for count in (first, last)]
        columns += [Text(f"ms, {count}", f"ms, {count}개") for count in self.tokens]
        columns += [Text("growth", "증가")]
        rows: list[tuple[str | Text, ...]] = []
        for row in self.speed:
            times = [f"{number:.1f}" for number in row.milliseconds]
            steps = [f"{count:,}" for count in (row.steps[0], row.steps[-1])]
            rows.append((_name_model(row.model), f"{row.parameters:,}", *steps, *times, f"x{row.growth:.1f}"))
        title = Text(
            f"one sequence of {first} to {last} tokens: operations of a forward pass that must wait for each other; "
            "median processor time of a training step on one thread; not fused: without PyTorch's single call for all "
            "steps",
            f"토큰 {first}~{last}개인 열 하나: 순전파에서 앞의 결과를 기다려야 하는 연산의 수; 스레드 하나로 잰 "
            "학습 한 스텝의 프로세서 시간(중앙값); 융합 안 함: 모든 스텝을 한 번에 계산하는 PyTorch 호출 없이",
        )
        return Table(tuple(columns), tuple(rows), title)

    def _build_view_table(self) -> Table:
        heads = max(row.head for row in self.views)
        views: dict[tuple[str, int], list[str]] = {}
        for row in self.views:
            views.setdefault((row.model, row.layer), []).append(f"{row.offset}: {row.weight:.0%}")
        rows: list[tuple[str | Text, ...]] = [
            (NAMES[model], str(layer), *cells, *[""] * (heads - len(cells))) for (model, layer), cells in views.items()
        ]
        columns = [Text("model", "모델"), Text("layer", "층")]
        columns += [Text(f"head {head}", f"헤드 {head}") for head in range(1, heads + 1)]
        title = Text(
            f"where each head of the decoder looks in sequences of {self.lengths[-1]} digits: distance from the digit "
            "to copy next, and the share of the head's weight there",
            f"숫자 {self.lengths[-1]}개인 열에서 디코더의 각 헤드가 보는 위치: 다음에 복사할 숫자와의 거리와, 그 "
            "위치에 둔 가중치의 비율",
        )
        return Table(tuple(columns), tuple(rows), title)

    def explain(self) -> list[Text]:
        """Say what happens to quality and to the operations in sequence as sequences become longer."""
        return [self._explain_quality(), self._explain_speed()]

    def _explain_quality(self) -> Text:
        shortest, longest = self.lengths[0], self.lengths[-1]
        low, high = (_format_mean(self.get_quality(BOTTLENECK, length).generated) for length in (shortest, longest))
        shares = {NAMES[model]: _format_mean(self.get_quality(model, longest).generated) for model in self._attending}
        english, korean = _join_by_language(shares)
        return Text(
            f"Without attention one vector has to hold the whole sequence: the LSTM copies {low} of the digits "
            f"correctly in sequences of {shortest}, and {high} in sequences of {longest}; with attention the decoder "
            f"can read every state again, and copies at length {longest}: {english}.",
            f"어텐션이 없으면 벡터 하나에 열 전체를 담아야 합니다. LSTM이 바르게 복사한 숫자는 길이 {shortest}에서 "
            f"{low}, 길이 {longest}에서 {high}입니다. 어텐션이 있으면 디코더가 모든 상태를 다시 읽을 수 있고, 길이 "
            f"{longest}에서 바르게 복사한 숫자는 {korean}입니다.",
        )

    def _explain_speed(self) -> Text:
        first, last = self.tokens[0], self.tokens[-1]
        lstm, other = self.get_speed(BOTTLENECK), self.get_speed(self.models[-1])
        name = FULL_NAMES[other.model]
        counts = [f"{count:,}" for row in (lstm, other) for count in (row.steps[0], row.steps[-1])]
        english, korean = _join_by_language({_name_model(row.model): f"x{row.growth:.1f}" for row in self.speed})
        return Text(
            f"A recurrent state waits for the state before it: from {first} to {last} tokens, the operations in "
            f"sequence go from {counts[0]} to {counts[1]} in the LSTM, and from {counts[2]} to {counts[3]} in "
            f"{name.english}; the time on one thread grows as follows: {english}.",
            f"순환 신경망의 상태는 바로 앞의 상태를 기다립니다. 토큰이 {first}개에서 {last}개로 늘 때, 차례로 해야 "
            f"하는 연산의 수는 LSTM에서는 {counts[0]}에서 {counts[1]}, {name.korean}에서는 {counts[2]}에서 "
            f"{counts[3]}입니다. 스레드 하나로 잰 시간은 다음과 같이 늘어납니다: {korean}.",
        )

    def list_exceptions(self) -> list[Text]:
        """Name models with attention that are not better or not stable, times that do not grow, and equal views."""
        return [
            *self._list_quality_exceptions(),
            *self._list_longer_exceptions(),
            *self._list_speed_exceptions(),
            *self._list_view_exceptions(),
        ]

    def _list_quality_exceptions(self) -> list[Text]:
        texts = []
        shortest, longest = self.lengths[0], self.lengths[-1]
        bottleneck = self.get_quality(BOTTLENECK, longest).generated
        low, high = mean(self.get_quality(BOTTLENECK, shortest).generated), mean(bottleneck)
        if low - high < FALL:
            texts.append(
                Text(
                    f"The LSTM without attention did not become worse: {low:.0%} at {shortest} digits, {high:.0%} at "
                    f"{longest}.",
                    f"어텐션이 없는 LSTM이 나빠지지 않았습니다. 숫자 {shortest}개에서 {low:.0%}, {longest}개에서 "
                    f"{high:.0%}입니다.",
                )
            )
        for model in self._attending:
            name = NAMES[model]
            start, end = self.get_quality(model, shortest).generated, self.get_quality(model, longest).generated
            if min(end) <= max(bottleneck):
                texts.append(
                    Text(
                        f"{name.english} was not clearly better than the LSTM without attention at {longest} digits: "
                        f"{_format_range(end)} and {_format_range(bottleneck)} percent.",
                        f"{name.korean}: 숫자 {longest}개에서 어텐션 없는 LSTM보다 분명히 낫지는 않았습니다. "
                        f"{_format_range(end)}%와 {_format_range(bottleneck)}%입니다.",
                    )
                )
            elif mean(start) - mean(end) >= FALL:
                texts.append(
                    Text(
                        f"{name.english} became worse with length, too: {_format_mean(start)} at {shortest} digits, "
                        f"{_format_mean(end)} at {longest}.",
                        f"{name.korean}도 길이에 따라 나빠졌습니다. 숫자 {shortest}개에서 {_format_mean(start)}, "
                        f"{longest}개에서 {_format_mean(end)}입니다.",
                    )
                )
        return texts

    def _list_longer_exceptions(self) -> list[Text]:
        if not self.longer:
            return []
        longest, beyond = self.lengths[-1], self.longer[-1]
        worse = {}
        for model in self._attending:
            trained, share = (mean(self.get_quality(model, length).generated) for length in (longest, beyond))
            if trained - share >= FALL:
                worse[NAMES[model]] = f"{share:.0%}"
        if not worse:
            return []
        english, korean = _join_by_language(worse)
        return [
            Text(
                f"Attention alone does not make a model copy longer sequences than in training; at {beyond} digits: "
                f"{english}.",
                f"어텐션이 있다고 학습보다 긴 열을 복사할 수 있는 것은 아닙니다. 숫자 {beyond}개에서 {korean}입니다.",
            )
        ]

    def _list_speed_exceptions(self) -> list[Text]:
        parallel = [row for row in self.speed if row.model not in (*RECURRENT, UNFUSED)]
        if not parallel:
            return []
        slowest = max(parallel, key=lambda row: row.growth)
        quick = [row for row in self.speed if row.model in RECURRENT and row.growth <= slowest.growth]
        if not quick:
            return []
        english, korean = _join_by_language({NAMES[row.model]: f"x{row.growth:.1f}" for row in quick})
        name = NAMES[slowest.model]
        return [
            Text(
                f"The steps in sequence do not show in the time of {english} ({name.english} x{slowest.growth:.1f}): "
                "PyTorch computes all steps of an LSTM in one call, and one thread computes nothing at the same time.",
                f"차례로 해야 하는 연산이 시간에는 드러나지 않았습니다: {korean} ({name.korean} "
                f"x{slowest.growth:.1f}). PyTorch는 LSTM의 모든 스텝을 호출 한 번으로 계산하고, 스레드 하나로는 어떤 "
                "모델도 동시에 계산하지 못합니다.",
            )
        ]

    def _list_view_exceptions(self) -> list[Text]:
        if SINGLE_HEAD not in self.models or MULTI_HEAD not in self.models:
            return []
        length = self.lengths[-1]
        single, multi = (self.get_quality(model, length).generated for model in (SINGLE_HEAD, MULTI_HEAD))
        if min(multi) > max(single):
            return []
        name = NAMES[MULTI_HEAD]
        return [
            Text(
                f"{name.english} were not clearly better than 1 at {length} digits: {_format_range(multi)} and "
                f"{_format_range(single)} percent; this task does not show what several views are good for.",
                f"숫자 {length}개에서 {name.korean}가 1개보다 분명히 낫지는 않았습니다. {_format_range(multi)}%와 "
                f"{_format_range(single)}%입니다. 이 과제에서는 여러 관점의 이점이 드러나지 않습니다.",
            )
        ]

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the share of right digits over the length, and the operations in sequence and times over the tokens."""
        names = {row.model: _name_model(row.model).select(language) for row in self.speed}
        quality = {
            names[model]: [
                (length, 100 * mean(self.get_quality(model, length).generated))
                for length in (*self.lengths, *self.longer)
            ]
            for model in self.models
        }
        steps = {
            names[row.model]: list(zip(self.tokens, row.steps, strict=True))
            for row in self.speed
            if row.model != UNFUSED  # the operations of the LSTM once more
        }
        times = {names[row.model]: list(zip(self.tokens, row.milliseconds, strict=True)) for row in self.speed}
        tokens = Text("tokens", "토큰 수").select(language)
        panels = [
            LinePanel(
                quality,
                title=Text("Digits copied correctly", "바르게 복사한 숫자").select(language),
                across=Text("digits (dotted: longest in training)", "숫자 개수(점선: 학습한 최대 길이)").select(
                    language
                ),
                vertical=Text("percent", "%").select(language),
                from_zero=True,
                mark=self.lengths[-1],
            ),
            LinePanel(
                steps,
                title=Text("Operations in sequence", "차례로 해야 하는 연산").select(language),
                across=tokens,
                vertical=Text("operations", "연산 수").select(language),
                log_across=True,
                log_vertical=True,
            ),
            LinePanel(
                times,
                title=Text("Training step on one thread", "학습 한 스텝(스레드 하나)").select(language),
                across=tokens,
                vertical=Text("milliseconds", "밀리초").select(language),
                log_across=True,
                log_vertical=True,
            ),
        ]
        return save_panel_row(target, panels)

    @property
    def _attending(self) -> list[str]:
        return [model for model in self.models if model != BOTTLENECK]


def _name_model(model: str) -> Text:
    return UNFUSED_NAME if model == UNFUSED else NAMES[model]


def _format_mean(shares: Sequence[float]) -> str:
    return f"{mean(shares):.0%}"


def _format_range(shares: Sequence[float]) -> str:
    """Return the mean in percent, and the range in parentheses unless all are equal when rounded."""
    average, lowest, highest = (f"{100 * share:.0f}" for share in (mean(shares), min(shares), max(shares)))
    return average if lowest == highest else f"{average} ({lowest}-{highest})"


def _join_by_language(numbers: Mapping[Text, str]) -> tuple[str, str]:
    """Return "NAME NUMBER, NAME NUMBER" in English and in Korean."""
    english, korean = (
        ", ".join(f"{name.select(language)} {number}" for name, number in numbers.items()) for language in LANGUAGES
    )
    return english, korean
