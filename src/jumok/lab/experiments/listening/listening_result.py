"""The result of the experiment ``listening``: its numbers, tables, sentences and picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from jumok.draw import MapPanel, save_panel_row
from jumok.lab.bilingual_text import Text
from jumok.lab.experiments.experiment_result import ExperimentResult, Table

IN_TIME = 0.1  # seconds: a head with a smaller median error listens in time
MONOTONE_PART = 4  # the most monotone heads are a quarter of all: six of 24
LARGEST_ERROR = 0.4  # seconds, in the picture

KINDS = {
    "none": Text("none", "없음"),
    "best": Text("best in time", "시간을 가장 잘 듣는 헤드"),
    "random": Text("random others", "무작위로 고른 다른 헤드"),
}


@dataclass(frozen=True)
class HeadTiming:
    """How well one head tells when words begin.

    Attributes:
        error: The median absolute error of word starts in seconds, if only this head is used.
        late: The median error in seconds; positive = the head listens after the word has begun.
        monotony: The share of tokens whose largest weight is not before that of the token before.
    """

    block: int
    head: int
    error: float
    late: float
    monotony: float


@dataclass(frozen=True)
class AblationRow:
    """What happens when heads are ablated.

    Attributes:
        kind: "none", "best" (the heads with the smallest errors) or "random" (other heads).
        word_error_rate: Wrong words of the new transcripts, as a share of the spoken words.
        log_probability: The mean log-probability of the tokens of the clean transcript.
        error: The median error of word starts in seconds, from all heads that are left.
    """

    kind: str
    ablated: tuple[tuple[int, int], ...]
    word_error_rate: float
    log_probability: float
    error: float


@dataclass(frozen=True)
class ListeningResult(ExperimentResult):
    """The result of ``measure_listening``.

    Attributes:
        words: How many recognised words have a known start.
        heads: One row for each head.
        all_heads_error: The median error of all heads together, in seconds.
        ablations: One row for each choice of ablated heads; the first one has none.
    """

    recordings: int
    words: int
    seed: int
    heads: tuple[HeadTiming, ...]
    all_heads_error: float
    ablations: tuple[AblationRow, ...]

    def build_tables(self) -> list[Table]:
        """Return the errors of all heads, how monotone they are, and the ablations."""
        errors = Text(
            f"median error of word starts in ms, by one head at a time ({self.words} words of {self.recordings} "
            "synthesised recordings); in brackets how late (+) or early (-) the head listens",
            f"헤드 하나로 찾은 단어 시작 시각의 오차 중앙값(ms; 합성 음성 {self.recordings}개의 단어 {self.words}개). "
            "괄호 안은 그 헤드가 얼마나 늦게(+) 또는 일찍(-) 듣는지입니다",
        )
        monotony = Text(
            "how monotone each head is: the share of tokens that do not look back in the audio",
            "헤드가 얼마나 단조로운지: 오디오에서 앞 토큰보다 뒤로 돌아가지 않는 토큰의 비율",
        )
        return [
            self._build_head_table(errors, lambda head: f"{1000 * head.error:.0f} ({1000 * head.late:+.0f})"),
            self._build_head_table(monotony, lambda head: f"{head.monotony:.2f}"),
            self._build_ablation_table(),
        ]

    def _build_head_table(self, title: Text, format_head: Callable[[HeadTiming], str]) -> Table:
        count = 1 + max(head.head for head in self.heads)
        blocks = 1 + max(head.block for head in self.heads)
        cells = [format_head(head) for head in self.heads]
        rows = tuple((str(block), *cells[block * count : (block + 1) * count]) for block in range(blocks))
        columns = (Text("block", "블록"), *(Text(f"head {head}", f"헤드 {head}") for head in range(count)))
        return Table(columns, rows, title)

    def _build_ablation_table(self) -> Table:
        columns = (
            Text("ablated", "제거한 헤드"),
            Text("heads", "헤드 번호"),
            Text("word errors", "단어 오류율"),
            Text("log-probability", "로그 확률"),
            Text("start error", "시작 오차"),
        )
        rows = tuple(
            (
                KINDS[row.kind],
                " ".join(f"{block}.{head}" for block, head in row.ablated),
                f"{row.word_error_rate:.1%}",
                f"{row.log_probability:.3f}",
                f"{1000 * row.error:.0f} ms",
            )
            for row in self.ablations
        )
        title = Text(
            "ablated heads (block.head): errors of the new transcript, mean log-probability of a token of the clean "
            "transcript, and error of word starts by all heads that are left",
            "헤드를 제거했을 때(블록.헤드): 새로 받아쓴 글의 단어 오류율, 원래 받아쓴 글의 토큰당 평균 로그 확률, "
            "남은 헤드 전체로 찾은 단어 시작 오차",
        )
        return Table(columns, rows, title)

    def explain(self) -> list[Text]:
        """Say which heads listen in time, whether these are the monotone ones, and what depends on them."""
        ranked = sorted(self.heads, key=lambda head: head.error)
        best = ranked[0]
        in_time = [head for head in ranked if head.error <= IN_TIME]
        names = ", ".join(f"{head.block}.{head.head}" for head in in_time) or "-"
        steady = self._list_monotone_heads()
        worst = max(steady, key=lambda head: head.error)
        errors = f"{1000 * min(head.error for head in steady):.0f}", f"{1000 * worst.error:.0f}"
        clean = self.ablations[0]
        return [
            Text(
                f"{len(in_time)} of {len(self.heads)} heads listen in time, with a median error of at most "
                f"{1000 * IN_TIME:.0f} ms: {names}. The best, {best.block}.{best.head}, errs by "
                f"{1000 * best.error:.0f} ms, all heads together by {1000 * self.all_heads_error:.0f} ms.",
                f"헤드 {len(self.heads)}개 가운데 {len(in_time)}개가 시간에 맞춰 듣습니다(오차 중앙값 "
                f"{1000 * IN_TIME:.0f} ms 이하): {names}. 가장 정확한 {best.block}.{best.head}의 오차는 "
                f"{1000 * best.error:.0f} ms이고, 모든 헤드를 함께 쓰면 {1000 * self.all_heads_error:.0f} ms입니다.",
            ),
            Text(
                f"Being monotone is not enough: the {len(steady)} most monotone heads err by {errors[0]} to "
                f"{errors[1]} ms. Head {worst.block}.{worst.head} ({worst.monotony:.2f}), for example, goes forward "
                f"through the audio, but {1000 * abs(worst.late):.0f} ms too {'late' if worst.late > 0 else 'early'}.",
                f"단조롭다고 해서 시간이 맞는 것은 아닙니다. 가장 단조로운 헤드 {len(steady)}개의 오차는 "
                f"{errors[0]}에서 {errors[1]} ms까지입니다. 예를 들어 헤드 {worst.block}.{worst.head}"
                f"({worst.monotony:.2f})은 오디오를 차례로 듣지만 {1000 * abs(worst.late):.0f} ms "
                f"{'늦게' if worst.late > 0 else '일찍'} 듣습니다.",
            ),
            *(self._explain_ablation(count, clean) for count in self._list_counts()),
        ]

    def _explain_ablation(self, count: int, clean: AblationRow) -> Text:
        best, controls = self._select_rows(count)
        errors = f"{best.word_error_rate:.1%}", f"{median(row.word_error_rate for row in controls):.1%}"
        drops = [
            clean.log_probability - row
            for row in (best.log_probability, median(row.log_probability for row in controls))
        ]
        times = f"{1000 * best.error:.0f}", f"{1000 * median(row.error for row in controls):.0f}"
        return Text(
            f"Without the best {count} head(s), the word error rate is {errors[0]} instead of "
            f"{clean.word_error_rate:.1%} (without {count} random other(s) {errors[1]}, the median of "
            f"{len(controls)}), a token of the clean text loses {drops[0]:.3f} nats ({drops[1]:.3f}), and the heads "
            f"that are left err by {times[0]} ms ({times[1]} ms).",
            f"가장 정확한 헤드 {count}개를 제거하면 단어 오류율은 {clean.word_error_rate:.1%}에서 {errors[0]}가 되고"
            f"(무작위로 고른 다른 헤드 {count}개를 제거하면 {errors[1]}, {len(controls)}번의 중앙값), 원래 글의 토큰은 "
            f"로그 확률을 평균 {drops[0]:.3f} 잃으며({drops[1]:.3f}), 남은 헤드의 시작 오차는 {times[0]} "
            f"ms입니다({times[1]} ms).",
        )

    def list_exceptions(self) -> list[Text]:
        """Name monotone heads that listen in time after all, and ablations that matter less than random ones."""
        texts = []
        if max(head.error for head in self._list_monotone_heads()) <= IN_TIME:
            texts.append(
                Text(
                    "All of the most monotone heads listen in time here.",
                    "여기서는 가장 단조로운 헤드가 모두 시간에 맞춰 듣습니다.",
                )
            )
        for count in self._list_counts():
            best, controls = self._select_rows(count)
            if best.word_error_rate <= max(row.word_error_rate for row in controls):
                texts.append(
                    Text(
                        f"Words: a random choice of {count} heads costs at least as many words as the best {count}.",
                        f"단어: 가장 정확한 헤드 {count}개를 제거했을 때만큼 단어를 틀린 무작위 선택이 있습니다.",
                    )
                )
            if best.error <= max(row.error for row in controls):
                texts.append(
                    Text(
                        f"Times: a random choice of {count} heads costs at least as much accuracy as the best {count}.",
                        f"시간: 가장 정확한 헤드 {count}개를 제거했을 때만큼 부정확한 무작위 선택이 있습니다.",
                    )
                )
        return texts

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the error of each head, and how often it looks back, as two maps of blocks and heads; white is best."""
        count = 1 + max(head.head for head in self.heads)
        limit = f"{1000 * LARGEST_ERROR:.0f}"
        axes = Text("head", "헤드").select(language), Text("block of the decoder", "디코더 블록").select(language)
        titles = (
            Text(f"error of word starts in ms, at most {limit}", f"단어 시작 오차(ms, 최대 {limit})").select(language),
            Text("share of tokens that look back", "뒤로 돌아가는 토큰의 비율").select(language),
        )
        errors = [1000 * min(head.error, LARGEST_ERROR) for head in self.heads]
        panels = [
            MapPanel(title, [cells[start : start + count] for start in range(0, len(cells), count)], *axes)
            for title, cells in zip(titles, (errors, [1 - head.monotony for head in self.heads]), strict=True)
        ]
        return save_panel_row(target, panels)

    def _list_monotone_heads(self) -> list[HeadTiming]:
        """Return the quarter of the heads that look back least."""
        ranked = sorted(self.heads, key=lambda head: -head.monotony)
        return ranked[: max(1, len(ranked) // MONOTONE_PART)]

    def _list_counts(self) -> list[int]:
        return [len(row.ablated) for row in self.ablations if row.kind == "best"]

    def _select_rows(self, count: int) -> tuple[AblationRow, list[AblationRow]]:
        """Return the ablation of the best heads, and those of as many random ones."""
        rows = [row for row in self.ablations if len(row.ablated) == count]
        return next(row for row in rows if row.kind == "best"), [row for row in rows if row.kind == "random"]
