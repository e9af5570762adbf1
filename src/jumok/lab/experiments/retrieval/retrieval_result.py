"""The result of the experiment ``retrieval``: its numbers, tables, sentences and picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jumok.draw import LinePanel, save_panel_row
from jumok.lab.bilingual_text import Text
from jumok.lab.cost.cost_report import format_bytes
from jumok.lab.cost.mixing_growth import FITTED, HEADS, WIDTH
from jumok.lab.experiments.experiment_result import ExperimentResult, Table

from . import reading_quality
from .passage_task import VALUES
from .reading_cost import FOUND, LAYERS, PASSAGE, WINDOW, SearchCost, WayCost
from .reading_quality import TESTED, TRAINED, WayQuality

CHANCE = 1 / VALUES
THEORY = {"prompt": 2.0, "found": 0.0, "fusion": 1.0, "fusion found": 0.0, "window": 1.0, "linear": 1.0}
DIFFERENT = 0.4  # a fitted exponent that differs more from the theory is reported; projections are O(n) in all ways
LEARNED = 0.9  # share of right answers at the longest texts of the training
LEAK = 0.1  # by how much a window may answer more than it can reach

NAMES = {
    "prompt": Text("all in the prompt", "전부 프롬프트에"),
    "found": Text(f"{FOUND} found, in the prompt", f"찾은 {FOUND}개를 프롬프트에"),
    "fusion": Text("Fusion-in-Decoder, all", "Fusion-in-Decoder, 전부"),
    "fusion found": Text(f"Fusion-in-Decoder, {FOUND} found", f"Fusion-in-Decoder, 찾은 {FOUND}개"),
    "window": Text("window, all", "윈도, 전부"),
    "linear": Text("linear attention, all", "선형 어텐션, 전부"),
}
RECALL = Text("recall of the search", "검색 재현율")


@dataclass(frozen=True)
class RetrievalResult(ExperimentResult):
    """The result of ``measure_retrieval``.

    Attributes:
        lengths: The numbers of tokens of the texts whose cost is measured.
        passages: The numbers of passages of the held-out texts.
        reach: How many tokens before the last one the windows of all layers reach, in the trained reader.
        quality: How often each way answers correctly.
        recall: For each number of passages, the share of questions whose passage the search finds.
    """

    seed: int
    lengths: tuple[int, ...]
    costs: tuple[WayCost, ...]
    search: SearchCost
    steps: int
    passages: tuple[int, ...]
    reach: int
    quality: tuple[WayQuality, ...]
    recall: tuple[float, ...]

    def build_tables(self) -> list[Table]:
        """Return the times, the memory and the right answers."""
        return [self._build_time_table(), self._build_memory_table(), self._build_quality_table()]

    def _build_time_table(self) -> Table:
        rows: list[tuple[str | Text, ...]] = [
            (NAMES[cost.way], *(f"{time:,.1f}" for time in cost.milliseconds), f"{cost.exponent:.2f}")
            for cost in self.costs
        ]
        questions = Text("of these, the search", "이 가운데 검색")
        index = Text("index, once", "색인(한 번만)")
        rows += [
            (questions, *(f"{time:,.2f}" for time in self.search.question_milliseconds), ""),
            (index, *(f"{time:,.1f}" for time in self.search.index_milliseconds), ""),
        ]
        title = Text(
            f"milliseconds of one answer by tokens of the text (passages of {PASSAGE}): {LAYERS} layers, {WIDTH} wide, "
            f"{HEADS} heads, window of {WINDOW}, one thread, processor time; the exponent is fitted through the "
            f"{FITTED} longest texts",
            f"텍스트의 토큰 수(구절 하나에 {PASSAGE}개)에 따른 대답 하나의 시간(ms): 층 {LAYERS}개, 너비 {WIDTH}, 헤드 "
            f"{HEADS}개, 윈도 {WINDOW}, 스레드 1개, 프로세서 시간; 지수는 가장 긴 텍스트 {FITTED}개로 맞춘 값",
        )
        return Table((Text("way", "방법"), *self._list_lengths(), Text("exponent", "지수")), tuple(rows), title)

    def _build_memory_table(self) -> Table:
        rows: list[tuple[str | Text, ...]] = [
            (NAMES[cost.way], *map(format_bytes, cost.peak_bytes)) for cost in self.costs
        ]
        weights = [format_bytes(4 * HEADS * length**2) for length in self.lengths]
        rows += [
            (Text("search index", "검색 색인"), *map(format_bytes, self.search.index_bytes)),
            (Text("weights of a layer, if kept", "층 하나의 가중치, 보관 시"), *weights),
        ]
        title = Text(
            "largest memory of all tensors that an answer creates, at one time; last line: the weights of one layer of "
            "full attention, computed as heads x n^2 x 4 bytes, which the fused kernel does not store",
            "대답 하나가 만드는 텐서가 동시에 차지하는 최대 메모리; 마지막 줄은 전체 어텐션 층 하나의 가중치로, "
            "헤드 수 x n^2 x 4바이트로 계산한 값이며 융합 커널은 저장하지 않습니다",
        )
        return Table((Text("way", "방법"), *self._list_lengths()), tuple(rows), title)

    def _build_quality_table(self) -> Table:
        columns = tuple(
            Text(f"{passages} passages" + "*" * new, f"구절 {passages}개" + "*" * new)
            for passages in self.passages
            for new in [passages > max(TRAINED)]
        )
        rows: list[tuple[str | Text, ...]] = []
        for row in self.quality:
            ends = [scores[TESTED.index(max(TRAINED))] for scores in row.right]
            cells = [f"{row.average(passages):.0%}" for passages in self.passages]
            rows.append((NAMES[row.way], *cells, f"{min(ends):.0%} - {max(ends):.0%}"))
        rows.append((RECALL, *(f"{recall:.0%}" for recall in self.recall), ""))
        runs = len(self.quality[0].right)
        title = Text(
            f"right answers by number of passages ({reading_quality.PASSAGE} tokens each, one fact in each): "
            f"{reading_quality.LAYERS} layers, {reading_quality.WIDTH} wide, {self.steps} steps on {min(TRAINED)} to "
            f"{max(TRAINED)} passages, {runs} seed(s), chance {CHANCE:.1%}; *: more passages than in training; range: "
            f"of the seeds, {max(TRAINED)} passages",
            f"구절 수에 따른 정답률(구절마다 토큰 {reading_quality.PASSAGE}개, 사실 하나): 층 "
            f"{reading_quality.LAYERS}개, 너비 {reading_quality.WIDTH}, 구절 {min(TRAINED)}~{max(TRAINED)}개로 "
            f"{self.steps}스텝, 시드 {runs}개, 우연히 맞힐 확률 {CHANCE:.1%}; *: 학습 때보다 많은 구절; 범위: 구절 "
            f"{max(TRAINED)}개에서 시드별 값",
        )
        return Table((Text("way", "방법"), *columns, Text("range", "범위")), tuple(rows), title)

    def explain(self) -> list[Text]:
        """Say how the costs grow, what the search costs and misses, and what each way answers."""
        longest, most = self.lengths[-1], self.passages[-1]
        prompt, selected, fusion = (self._get_cost(way) for way in ("prompt", "found", "fusion"))
        ratio = prompt.milliseconds[-1] / selected.milliseconds[-1]
        speedup = prompt.milliseconds[-1] / fusion.milliseconds[-1]
        linear_exponents = sorted(self._get_cost(way).exponent for way in ("fusion", "window", "linear"))
        memory = format_bytes(prompt.peak_bytes[-1]), format_bytes(selected.peak_bytes[-1])
        shares = {row.way: f"{row.average(most):.0%}" for row in self.quality}
        reading = reading_quality.PASSAGE
        return [
            Text(
                f"At {longest:,} tokens, everything in the prompt takes {prompt.milliseconds[-1]:,.0f} ms and "
                f"{memory[0]}, and its time grows with exponent {prompt.exponent:.2f}. {FOUND} found passages take "
                f"{selected.milliseconds[-1]:,.1f} ms and {memory[1]} at any length, {ratio:,.0f} times less time, of "
                f"which the search is {self.search.question_milliseconds[-1]:.2f} ms; its index is made once, in "
                f"{self.search.index_milliseconds[-1]:,.1f} ms.",
                f"토큰 {longest:,}개를 모두 프롬프트에 넣으면 {prompt.milliseconds[-1]:,.0f} ms와 {memory[0]}가 들고, "
                f"시간이 늘어나는 지수는 {prompt.exponent:.2f}입니다. 찾은 구절 {FOUND}개만 읽으면 길이와 상관없이 "
                f"{selected.milliseconds[-1]:,.1f} ms와 {memory[1]}로, 시간이 {ratio:,.0f}분의 1입니다. 이 가운데 "
                f"검색이 {self.search.question_milliseconds[-1]:.2f} ms이고, 색인은 한 번 "
                f"{self.search.index_milliseconds[-1]:,.1f} ms에 만듭니다.",
            ),
            Text(
                f"Fusion-in-Decoder reads all passages {speedup:.1f} times as fast as the prompt there, because "
                "passages do not attend to each other; like a window and linear attention, its time grows with n: "
                f"exponents {linear_exponents[0]:.2f} to {linear_exponents[-1]:.2f}.",
                f"같은 길이에서 Fusion-in-Decoder는 구절끼리 서로 보지 않으므로 모든 구절을 프롬프트보다 "
                f"{speedup:.1f}배 빠르게 읽습니다. 윈도와 선형 어텐션처럼 시간이 n에 비례해 늘어납니다: 지수 "
                f"{linear_exponents[0]:.2f}에서 {linear_exponents[-1]:.2f}.",
            ),
            Text(
                f"Of questions about one of {most} passages, {shares['prompt']} are answered correctly with all in "
                f"the prompt, {shares['found']} with {FOUND} found; Fusion-in-Decoder: {shares['fusion']} and "
                f"{shares['fusion found']}. The search finds the passage for {self.recall[-1]:.0%}: it matches words, "
                "and other passages mention the same name. What it misses, no reader can answer.",
                f"구절 {most}개 가운데 하나를 묻는 질문에, 전부 프롬프트에 넣으면 {shares['prompt']}, 찾은 {FOUND}개만 "
                f"넣으면 {shares['found']}가 정답입니다. Fusion-in-Decoder는 각각 {shares['fusion']}와 "
                f"{shares['fusion found']}입니다. 검색은 질문의 {self.recall[-1]:.0%}에서만 그 구절을 찾습니다. 단어만 "
                "맞추어 보는데, 다른 구절에도 같은 이름이 나오기 때문입니다. 검색이 놓친 것은 어느 모델도 답할 수 "
                "없습니다.",
            ),
            Text(
                f"A window of {reading_quality.WINDOW} reaches {self.reach} tokens in {reading_quality.LAYERS} layers, "
                f"{self.reach / reading:.1f} passages, and answers {shares['window']}; linear attention sums all "
                f"tokens into a state of fixed size, and answers {shares['linear']} (chance {CHANCE:.1%}).",
                f"너비 {reading_quality.WINDOW}인 윈도는 층 {reading_quality.LAYERS}개에서 토큰 {self.reach}개, 곧 "
                f"구절 {self.reach / reading:.1f}개까지만 도달하므로 {shares['window']}를 맞힙니다. 선형 어텐션은 모든 "
                f"토큰을 크기가 정해진 상태 하나로 더하며 {shares['linear']}를 맞힙니다(우연 {CHANCE:.1%}).",
            ),
        ]

    def list_exceptions(self) -> list[Text]:
        """Name exponents far from the theory, readers that did not learn, and searches that cost right answers."""
        texts = [text for cost in self.costs for text in self._list_cost_exceptions(cost)]
        usual, most = max(TRAINED), self.passages[-1]
        for way in ("prompt", "fusion", "linear"):
            share = self._get_quality(way).average(usual)
            if share < LEARNED:
                name = NAMES[way]
                texts.append(
                    Text(
                        f"{name.english}: only {share:.0%} right at {usual} passages, which training showed, after "
                        f"{self.steps} steps.",
                        f"{name.korean}: {self.steps}스텝을 학습한 뒤에도, 학습에 나온 구절 {usual}개에서 "
                        f"{share:.0%}만 맞힙니다.",
                    )
                )
        for way, baseline in (("found", "prompt"), ("fusion found", "fusion")):
            share, without = self._get_quality(way).average(most), self._get_quality(baseline).average(most)
            if share < without:
                texts.append(
                    Text(
                        f"{NAMES[way].english}: at {most} passages, {share:.0%} right instead of {without:.0%} with "
                        "all of them; the search saves time, but costs right answers.",
                        f"{NAMES[way].korean}: 구절 {most}개에서 전부 읽으면 {without:.0%}, 찾은 것만 읽으면 "
                        f"{share:.0%}를 맞힙니다. 검색은 시간을 줄이지만 정답을 잃습니다.",
                    )
                )
        share = self._get_quality("window").average(most)
        reachable = min(1.0, self.reach / (reading_quality.PASSAGE * most))
        if share > reachable + CHANCE + LEAK:
            texts.append(
                Text(
                    f"window: {share:.0%} right at {most} passages, more than its reach allows; the masks leak.",
                    f"윈도: 구절 {most}개에서 도달할 수 있는 것보다 많은 {share:.0%}를 맞힙니다. 마스크가 "
                    "새고 있습니다.",
                )
            )
        return texts

    def _list_cost_exceptions(self, cost: WayCost) -> list[Text]:
        theory, name = THEORY[cost.way], NAMES[cost.way]
        if abs(cost.exponent - theory) <= DIFFERENT:
            return []
        return [
            Text(
                f"{name.english}: up to {self.lengths[-1]:,} tokens, the time grows with exponent "
                f"{cost.exponent:.2f}, in theory {theory:g}.",
                f"{name.korean}: 토큰 {self.lengths[-1]:,}개까지 시간이 늘어나는 지수는 {cost.exponent:.2f}입니다(이론 "
                f"{theory:g}).",
            )
        ]

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw time and memory over the length of the text, and the right answers over its passages."""
        names = {way: name.select(language) for way, name in NAMES.items()}
        tokens = Text("tokens of the text", "텍스트의 토큰 수").select(language)
        times = {names[cost.way]: list(zip(self.lengths, cost.milliseconds, strict=True)) for cost in self.costs}
        memory = {
            names[cost.way]: [
                (length, size / 2**20) for length, size in zip(self.lengths, cost.peak_bytes, strict=True)
            ]
            for cost in self.costs
        }
        right = {names[row.way]: [(count, 100 * row.average(count)) for count in self.passages] for row in self.quality}
        right[RECALL.select(language)] = [
            (count, 100 * recall) for count, recall in zip(self.passages, self.recall, strict=True)
        ]
        titles = (
            Text("Time of an answer", "대답 하나의 시간"),
            Text("Memory of an answer", "대답 하나의 메모리"),
            Text(
                f"Right answers (trained on up to {max(TRAINED)} passages)", f"정답률(구절 {max(TRAINED)}개까지 학습)"
            ),
        )
        time_title, memory_title, right_title = (title.select(language) for title in titles)
        milliseconds, passages = Text("milliseconds", "밀리초"), Text("passages of the text", "텍스트의 구절 수")
        panels = [
            LinePanel(times, time_title, tokens, milliseconds.select(language), log_across=True, log_vertical=True),
            LinePanel(memory, memory_title, tokens, "MB", log_across=True, log_vertical=True),
            LinePanel(
                right,
                right_title,
                passages.select(language),
                "%",
                log_across=True,
                limits=(0.0, 103.0),
                mark=max(TRAINED),
            ),
        ]
        return save_panel_row(target, panels)

    def _list_lengths(self) -> tuple[Text, ...]:
        return tuple(Text(f"{length:,}", f"{length:,}") for length in self.lengths)

    def _get_cost(self, way: str) -> WayCost:
        return next(cost for cost in self.costs if cost.way == way)

    def _get_quality(self, way: str) -> WayQuality:
        return next(row for row in self.quality if row.way == way)
