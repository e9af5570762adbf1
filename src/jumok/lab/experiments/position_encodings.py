"""Experiment ``positions``: six position encodings, trained on short texts and tested on longer ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from jumok.draw import LinePanel, MapPanel, save_panel_row
from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text
from jumok.layers import SinusoidalPositions
from jumok.models.gpt import POSITIONS

from .experiment_result import ExperimentResult, Progress, Table
from .repeat_training import KINDS, LENGTHS, TRAINED, WIDTH, EncodingRow, score_models, train_repeating_model
from .word_order import OTHER_ORDER, WORDS, WordOrderRow, measure_word_order

QUICK: dict[str, Any] = {"offsets": (1,), "runs": 2, "steps": 300}
FULL: dict[str, Any] = {"offsets": (1, 3), "runs": 3, "steps": 600}
EQUAL, DIFFERENT = 1e-6, 1e-3  # vectors that differ by less are equal, by more are clearly different
LEARNED, FALL = 0.9, 0.1  # right answers of a model that learned the task; a smaller fall counts as none
RELATIVE = ("rotary", "alibi", "t5")  # encodings of distances
NAMES = {
    "none": Text("none", "없음"),
    "sinusoidal": Text("sinusoidal", "사인파"),
    "learned": Text("learned", "학습형"),
    "rotary": Text("rotary (RoPE)", "회전(RoPE)"),
    "alibi": Text("ALiBi", "ALiBi"),
    "t5": Text("T5 bias", "T5 편향"),
}


@dataclass(frozen=True)
class PositionsResult(ExperimentResult):
    """The result of ``measure_positions``.

    Attributes:
        words: Two orders of the same words in an encoder, for each encoding.
        rows: The trained models, for each task and encoding.
    """

    seed: int
    words: tuple[WordOrderRow, ...]
    rows: tuple[EncodingRow, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        """The tasks: how many steps back the repeated token is."""
        return tuple(dict.fromkeys(row.offset for row in self.rows))

    def get_rows(self, offset: int) -> dict[str, EncodingRow]:
        """Return the rows of one task by encoding.

        Args:
            offset: How many steps back the repeated token is.
        """
        return {row.encoding: row for row in self.rows if row.offset == offset}

    def build_tables(self) -> list[Table]:
        """Return a table of the words, and one for each task."""
        return [self._build_word_table(), *(self._build_length_table(offset) for offset in self.offsets)]

    def _build_word_table(self) -> Table:
        rows: tuple[tuple[str | Text, ...], ...] = tuple(
            (
                NAMES[row.encoding],
                *(f"{difference:.1e}" for difference in row.differences.values()),
                f"{min(row.causal_differences.values()):.1e}",
            )
            for row in self.words
        )
        columns = (Text("positions", "위치 인코딩"), *(Text(word, word) for word in WORDS))
        sentences = [f'"{" ".join(words)}"' for words in (WORDS, OTHER_ORDER)]
        title = Text(
            f"largest difference between the vectors of a word in {sentences[0]} and {sentences[1]}, in an encoder "
            "with random parameters; causal: the smallest of the four with a causal mask",
            f"{sentences[0]}와 {sentences[1]}에서 같은 단어의 두 벡터가 가장 크게 다른 성분의 차이(파라미터가 난수인 "
            "인코더); 인과 마스크: 마스크가 있을 때 네 단어의 차이 중 가장 작은 값",
        )
        return Table((*columns, Text("causal", "인과 마스크")), rows, title)

    def _build_length_table(self, offset: int) -> Table:
        rows = []
        for row in self.get_rows(offset).values():
            cells: list[str | Text] = [NAMES[row.encoding]]
            for length in LENGTHS:
                score = next((score for score in row.scores if score.length == length), None)
                cells += ["-", "-"] if score is None else _format_share_and_range(score.right)
            rows.append(tuple(cells))
        columns = [Text("positions", "위치 인코딩")]
        for length in LENGTHS:
            columns += [Text(f"{length} tokens", f"토큰 {length}개"), Text("range", "범위")]
        runs = len(self.rows[0].scores[0].right)
        title = Text(
            f"right answers of small GPTs that repeat the token {_count_steps(offset)} back, trained on texts of "
            f"{TRAINED} random tokens, {runs} seeds; by chance {1 / KINDS:.0%}; longer texts count from token "
            f"{LENGTHS[0] + 1} and {LENGTHS[1] + 1} on; -: there are no vectors for these positions",
            f"난수 토큰 {TRAINED}개로 된 텍스트에서 {offset}칸 앞의 토큰을 말하도록 학습한 작은 GPT의 정답률, "
            f"시드 {runs}개; 우연히 맞힐 확률 {1 / KINDS:.0%}; 더 긴 텍스트는 {LENGTHS[0] + 1}번째, "
            f"{LENGTHS[1] + 1}번째 토큰부터 셈; -: 그 위치의 벡터가 없음",
        )
        return Table(tuple(columns), tuple(rows), title)

    def explain(self) -> list[Text]:
        """Say what attention knows of order without positions, and which encodings work beyond the trained length."""
        unordered = next(row for row in self.words if row.encoding == "none")
        ordered = [difference for row in self.words if row is not unordered for difference in row.differences.values()]
        smallest, largest = min(ordered), max(ordered)
        equal, causal = max(unordered.differences.values()), min(unordered.causal_differences.values())
        return [
            Text(
                "Without positions attention reads a set of words: the vectors of a word in the two orders differ by "
                f"at most {equal:.0e}, with an encoding by {smallest:.2f} to {largest:.2f}. A causal mask alone "
                f"already tells the orders apart (by at least {causal:.2f}), so a GPT without positions knows "
                "something of order.",
                "위치 인코딩이 없으면 어텐션은 단어를 순서 없는 집합으로 읽습니다. 두 어순에서 한 단어의 벡터는 "
                f"많아야 {equal:.0e}만큼 다르고, 위치 인코딩이 있으면 {smallest:.2f}에서 {largest:.2f}만큼 다릅니다. "
                f"인과 마스크만 있어도 어순이 구별되므로(최소 {causal:.2f}), 위치 인코딩이 없는 GPT도 순서를 어느 "
                "정도 압니다.",
            ),
            self._explain_lengths(self.offsets[0]),
        ]

    def _explain_lengths(self, offset: int) -> Text:
        rows = self.get_rows(offset)
        shares = {encoding: row.get_right(TRAINED) or 0.0 for encoding, row in rows.items()}
        without = shares.pop("none")
        lowest, highest = f"{min(shares.values()):.0%}", f"{max(shares.values()):.0%}"
        english_range = lowest if lowest == highest else f"{lowest} to {highest}"
        korean_range = lowest if lowest == highest else f"{lowest}~{highest}"
        far = {}
        for encoding, row in rows.items():
            share = row.get_right(LENGTHS[-1])
            if share is not None and encoding != "none":
                far[encoding] = share
        ranking = sorted(far, key=lambda encoding: -far[encoding])
        english, korean = (
            ", ".join(f"{NAMES[encoding].select(language)} {far[encoding]:.0%}" for encoding in ranking) or "-"
            for language in ("en", "ko")
        )
        return Text(
            f"At the trained length {without:.0%} of the answers are right without positions and {english_range} with "
            f"them ({_count_steps(offset)} back). From token {LENGTHS[1] + 1} to {LENGTHS[2]}, beyond the trained "
            f"length: {english}; the table of learned positions ends after {TRAINED} tokens.",
            f"학습한 길이에서 {offset}칸 앞의 토큰을 맞힌 비율은 위치 인코딩이 없으면 {without:.0%}, 있으면 "
            f"{korean_range}입니다. 학습한 길이를 넘는 {LENGTHS[1] + 1}~{LENGTHS[2]}번째 토큰에서는 {korean}이고, "
            f"학습형 위치의 표는 토큰 {TRAINED}개에서 끝납니다.",
        )

    def list_exceptions(self) -> list[Text]:
        """Name vectors that do not follow the lesson, models that did not learn, and unexpected results at lengths."""
        return [
            *self._list_word_exceptions(),
            *(text for offset in self.offsets for text in self._list_length_exceptions(offset)),
        ]

    def _list_word_exceptions(self) -> list[Text]:
        texts = []
        for row in self.words:
            name, smallest = NAMES[row.encoding], min(row.differences.values())
            if row.encoding == "none" and max(row.differences.values()) >= EQUAL:
                largest = f"{max(row.differences.values()):.1e}"
                texts.append(
                    Text(
                        f"Without positions the vectors differ by up to {largest}.",
                        f"위치 인코딩이 없는데도 벡터가 최대 {largest}만큼 다릅니다.",
                    )
                )
            if row.encoding == "none" and min(row.causal_differences.values()) < DIFFERENT:
                least = f"{min(row.causal_differences.values()):.1e}"
                texts.append(
                    Text(
                        f"With a causal mask and without positions, the vectors of a word differ by only {least}.",
                        f"인과 마스크가 있고 위치 인코딩이 없을 때 한 단어의 벡터가 {least}만큼만 다릅니다.",
                    )
                )
            if row.encoding != "none" and smallest < DIFFERENT:
                texts.append(
                    Text(
                        f"{name.english}: the vectors of a word differ by only {smallest:.1e}.",
                        f"{name.korean}: 한 단어의 벡터가 {smallest:.1e}만큼만 다릅니다.",
                    )
                )
        return texts

    def _list_length_exceptions(self, offset: int) -> list[Text]:
        texts = []
        rows = self.get_rows(offset)
        without = rows["none"].get_right(TRAINED) or 0.0
        steps, steps_korean = _count_steps(offset), f"{offset}칸 앞"
        for encoding, row in rows.items():
            name, trained, far = NAMES[encoding], row.get_right(TRAINED) or 0.0, row.get_right(LENGTHS[-1])
            if encoding == "none":
                continue
            if trained < LEARNED:
                texts.append(
                    Text(
                        f"{name.english}, {steps} back: only {trained:.0%} right at the trained length.",
                        f"{name.korean}, {steps_korean}: 학습한 길이에서도 정답률이 {trained:.0%}입니다.",
                    )
                )
            if trained <= without:
                texts.append(
                    Text(
                        f"{name.english}, {steps} back: not better than without positions ({without:.0%}).",
                        f"{name.korean}, {steps_korean}: 위치 인코딩이 없을 때({without:.0%})보다 낫지 않습니다.",
                    )
                )
            if far is None or trained < LEARNED:  # a model that did not learn has nothing to lose
                continue
            if encoding in RELATIVE and far < trained - FALL:
                texts.append(
                    Text(
                        f"{name.english}, {steps} back: {trained:.0%} right at the trained length but {far:.0%} at "
                        f"{LENGTHS[-1]} tokens, although it encodes distances: most of them are longer than any in "
                        "training.",
                        f"{name.korean}, {steps_korean}: 거리를 인코딩하지만 정답률이 학습한 길이의 {trained:.0%}에서 "
                        f"토큰 {LENGTHS[-1]}개의 {far:.0%}로 떨어집니다. 거리가 대부분 학습할 때보다 깁니다.",
                    )
                )
            if encoding == "sinusoidal" and far >= trained - FALL:
                texts.append(
                    Text(
                        f"{name.english}, {steps} back: works at {LENGTHS[-1]} tokens too ({far:.0%}).",
                        f"{name.korean}, {steps_korean}: 토큰 {LENGTHS[-1]}개에서도 맞힙니다({far:.0%}).",
                    )
                )
        return texts

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the right answers by length for each task, and the sinusoids as a heat map."""
        across = Text("tokens in the text", "텍스트의 토큰 수").select(language)
        right = Text("right answers", "정답률").select(language)
        panels: list[LinePanel | MapPanel] = []
        for offset in self.offsets:
            series = {
                NAMES[encoding].select(language): [(score.length, mean(score.right)) for score in row.scores]
                for encoding, row in self.get_rows(offset).items()
            }
            title = Text(
                f"The token {_count_steps(offset)} back, trained on {TRAINED} tokens",
                f"{offset}칸 앞의 토큰 말하기(토큰 {TRAINED}개로 학습)",
            )
            panels.append(LinePanel(series, title.select(language), across, right, log_across=True, limits=(0.0, 1.04)))
        panels.append(
            MapPanel(
                Text("Sinusoidal encoding", "사인파 위치 인코딩").select(language),
                SinusoidalPositions(WIDTH)(range(LENGTHS[-1])).numpy(),
                Text("dimension", "차원").select(language),
                Text("position", "위치").select(language),
            )
        )
        return save_panel_row(target, panels)


def measure_positions(
    offsets: Sequence[int] = (1,),
    encodings: Sequence[str] = POSITIONS,
    *,
    runs: int = 2,
    steps: int = 300,
    seed: int = 0,
    progress: Progress | None = None,
) -> PositionsResult:
    """Compare six position encodings: words in two orders, and small GPTs on texts longer than those in training.

    Args:
        offsets: The tasks: how many steps back the token is that a model has to repeat; each from 1 to 8.
        encodings: The encodings of the trained models, as in ``GPTConfig.positions``: "none" and at least one other.
        runs: How many models to train for each encoding and task; each has its own seed.
        progress: Called with the finished and the total number of training steps; default: nothing.

    Raises:
        ArgumentError: If a number is out of range, or an encoding is unknown or missing.
    """
    if "none" not in encodings or len(set(encodings)) < 2 or not set(encodings) <= set(POSITIONS):
        raise ArgumentError(f"encodings must be none and at least one other of {', '.join(POSITIONS[1:])}")
    if not offsets or min(*offsets, runs, steps) < 1 or max(offsets) > TRAINED // 2:
        raise ArgumentError(f"offsets must be 1 to {TRAINED // 2}, and runs and steps at least 1")
    tasks = [(offset, encoding) for offset in dict.fromkeys(offsets) for encoding in dict.fromkeys(encodings)]
    total, done = len(tasks) * runs * steps, 0

    def count_step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    words = measure_word_order(seed)
    rows = []
    for offset, encoding in tasks:
        models = [train_repeating_model(encoding, offset, seed + run, steps, count_step) for run in range(runs)]
        rows.append(EncodingRow(encoding, offset, score_models(models, offset, seed)))
    return PositionsResult(seed, words, tuple(rows))


def _format_share_and_range(shares: Sequence[float]) -> list[str]:
    return [f"{mean(shares):.0%}", f"{min(shares):.0%} - {max(shares):.0%}"]


def _count_steps(offset: int) -> str:
    return "1 step" if offset == 1 else f"{offset} steps"
