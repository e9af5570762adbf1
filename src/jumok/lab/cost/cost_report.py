"""The cost of a model beside the memory of this machine, and beside other kinds of layers, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jumok.draw import save_line_plot
from jumok.lab.bilingual_text import Text
from jumok.lab.experiments.experiment_result import ExperimentResult, Progress, Table
from jumok.models.gpt import GPTConfig

from .family_cost import FamilyCost
from .gpt_cost import GPTCost, compute_gpt_cost
from .layer_growth import KERNEL, LayerGrowth, compare_layers, count_layer_operations
from .machine_memory import read_available_memory

TEXT_LENGTHS = (1024, 4096, 16384)  # the lengths that articles give for the memory of attention weights
MEASURED_TOKENS = 1024  # times are measured with at most this many tokens, and with twice as many
TOLERANCE = 1.5  # measured growth that differs by more than this factor from the theory is reported
PARTS = {
    "embedding": Text("embedding", "임베딩"),
    "positions": Text("positions", "위치 임베딩"),
    "attention": Text("attention", "어텐션"),
    "feed-forward": Text("feed-forward", "피드포워드"),
    "norms": Text("norms", "정규화"),
    "output": Text("output", "출력층"),
    "projections": Text("projections", "Q, K, V, 출력 투영"),
    "scores and mixture": Text("scores and mixture", "점수와 가중합"),
    "logits": Text("logits", "로짓"),
}
USES = {
    "run": Text("run, with a cache", "실행(캐시 사용)"),
    "run, weights kept": Text("run, all weights kept", "실행(모든 가중치 보관)"),
    "train": Text("train with Adam, fused attention", "Adam으로 학습(융합 어텐션)"),
}
LAYER_NAMES = {
    "RNN": Text("RNN", "RNN"),
    "CNN": Text(f"CNN (k = {KERNEL})", f"CNN (k = {KERNEL})"),
    "attention": Text("self-attention", "셀프 어텐션"),
}


@dataclass(frozen=True)
class CostReport(ExperimentResult):
    """The result of ``report_cost``.

    Attributes:
        available: The available memory of this machine in bytes; None if the system does not say.
        needs: The bytes that each way of using the model needs: "run", "run, weights kept", "train".
        layer_tokens: The number of tokens for which ``layers`` was computed.
    """

    width: int
    heads: int
    tokens: int
    batch: int
    cost: GPTCost
    available: int | None
    needs: dict[str, int]
    layers: tuple[LayerGrowth, ...]
    layer_tokens: int

    def build_tables(self) -> list[Table]:
        """Return tables of parameters and operations, of memory, of attention weights, and of kinds of layers."""
        return [
            build_count_table(self.cost, PARTS),
            self._build_memory_table(),
            self._build_weights_table(),
            self._build_layer_table(),
        ]

    def _build_memory_table(self) -> Table:
        cost = self.cost
        rows: list[tuple[str | Text, ...]] = [
            (Text("parameters", "파라미터"), format_bytes(cost.parameter_bytes), ""),
            (Text("weights of one head", "헤드 하나의 가중치"), format_bytes(cost.head_weight_bytes), ""),
            (Text("key/value cache", "키/값 캐시"), format_bytes(cost.cache_bytes), ""),
            (Text("activations in training", "학습 중 활성값"), format_bytes(cost.activation_bytes), ""),
        ]
        for use, number in self.needs.items():
            rows.append((USES[use], format_bytes(number), describe_fit(number, self.available)))
        title = Text(
            f"memory in float32, {self.batch} x {self.tokens:,} tokens (1 MB = 1,048,576 bytes); "
            f"available here: {format_available(self.available)}",
            f"float32 메모리, {self.batch} x {self.tokens:,} 토큰(1 MB = 1,048,576바이트); "
            f"이 컴퓨터에서 쓸 수 있는 메모리: {format_available(self.available)}",
        )
        return Table((Text("memory", "메모리"), Text("size", "크기"), Text("fits", "가능")), tuple(rows), title)

    def _build_weights_table(self) -> Table:
        rows = tuple(
            (f"{tokens:,}", format_bytes(4 * tokens**2), format_bytes(4 * tokens**2 * self.heads))
            for tokens in TEXT_LENGTHS
        )
        columns = (
            Text("tokens", "토큰"),
            Text("weights of one head", "헤드 하나의 가중치"),
            Text(f"of {self.heads} heads", f"헤드 {self.heads}개"),
        )
        return Table(columns, rows, Text("attention weights of one layer", "한 층의 어텐션 가중치"))

    def _build_layer_table(self) -> Table:
        columns = [
            Text("layer", "층"),
            Text("operations", "연산"),
            Text("count", "횟수"),
            Text("longest path", "최장 경로"),
            Text("steps in sequence", "순차 단계"),
            Text("2n", "2n"),
            Text("2d", "2d"),
        ]
        is_measured = self.layers[0].milliseconds is not None
        if is_measured:
            columns += [Text("ms", "ms"), Text("2n measured", "2n 측정"), Text("2d measured", "2d 측정")]
        rows = []
        for layer in self.layers:
            cells: list[str | Text] = [
                *(LAYER_NAMES[layer.name], layer.order, format_count(layer.operations), layer.path, layer.steps),
                *(f"x{layer.longer:g}", f"x{layer.wider:g}"),
            ]
            if layer.milliseconds is not None:
                cells += [f"{layer.milliseconds:.2f}", f"x{layer.measured_longer:.1f}", f"x{layer.measured_wider:.1f}"]
            rows.append(tuple(cells))
        title = Text(
            f"one layer, n = {self.layer_tokens:,} tokens, width d = {self.width:,}; 2n and 2d: growth when n or d "
            "doubles",
            f"한 층, n = {self.layer_tokens:,} 토큰, 너비 d = {self.width:,}; 2n, 2d: n 또는 d가 두 배일 때의 증가",
        )
        return Table(tuple(columns), tuple(rows), title)

    def explain(self) -> list[Text]:
        """Say which layer needs fewer operations, and which part of the forward pass grows with the square."""
        share = self.cost.operations["scores and mixture"] / self.cost.operation_count
        shorter = self.tokens < self.width
        relation = "<" if shorter else ">="
        return [
            Text(
                f"Attention needs n^2 d operations and a recurrent layer n d^2, so attention is the cheaper one while "
                f"n < d; here n = {self.tokens:,} {relation} d = {self.width:,}, and only attention connects all "
                "tokens in one step.",
                f"어텐션은 n^2 d, 순환층은 n d^2번의 연산이 필요하므로 n < d이면 어텐션이 더 쌉니다. 여기서는 "
                f"n = {self.tokens:,} {relation} d = {self.width:,}이며, "
                "모든 토큰을 한 단계에 연결하는 것은 어텐션뿐입니다.",
            ),
            Text(
                f"The scores and the mixture are {share:.0%} of the forward pass; they and the attention weights grow "
                "with the square of the length, everything else in proportion to it.",
                f"점수와 가중합은 순전파의 {share:.0%}입니다. 이 둘과 어텐션 가중치는 길이의 제곱으로 늘고, "
                "나머지는 모두 길이에 비례합니다.",
            ),
        ]

    def list_exceptions(self) -> list[Text]:
        """Name what does not fit into memory, and measured growth that differs from the theory."""
        texts = list_misfits(self.needs, self.available, USES)
        for layer in self.layers:
            for name, theory, measured in (
                ("2n", layer.longer, layer.measured_longer),
                ("2d", layer.wider, layer.measured_wider),
            ):
                if measured is not None and not theory / TOLERANCE <= measured <= theory * TOLERANCE:
                    layer_name = LAYER_NAMES[layer.name]
                    texts.append(
                        Text(
                            f"{layer_name.english}, {name}: the time grew x{measured:.1f}, the operations x{theory:g}.",
                            f"{layer_name.korean}, {name}: 시간은 x{measured:.1f}, 연산은 x{theory:g} 늘었습니다.",
                        )
                    )
        return texts

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the operations of the three kinds of layers over the length, relative to the recurrent layer."""
        lengths = [max(1, self.width * factor // 4) for factor in (1, 2, 4, 6, 8, 12, 16)]

        def divide_by_recurrent(name: str, tokens: int) -> float:
            recurrent = count_layer_operations("RNN", tokens, self.width)
            return count_layer_operations(name, tokens, self.width) / recurrent

        series = {
            text.select(language): [(tokens, divide_by_recurrent(name, tokens)) for tokens in lengths]
            for name, text in LAYER_NAMES.items()
        }
        return save_line_plot(
            series,
            target,
            title=Text(f"Operations of one layer, width {self.width:,}", f"한 층의 연산량, 너비 {self.width:,}").select(
                language
            ),
            across=Text("tokens n", "토큰 수 n").select(language),
            vertical=Text("relative to the RNN", "RNN 대비").select(language),
        )


def report_cost(
    config: GPTConfig,
    tokens: int,
    batch: int = 1,
    *,
    measure: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> CostReport:
    """Compute the cost of a GPT and compare it with the memory of this machine. Nothing is built or run, except with
    ``measure=True``: then the three kinds of layers are timed, with at most 1,024 and 2,048 tokens.

    Args:
        seed: The seed of the random inputs of the measurement.
        progress: Called with the finished and the total number of measuring rounds; default: nothing.

    Raises:
        ArgumentError: If a number is out of range, or the measurement does not fit into memory.

    >>> report = report_cost(GPTConfig(width=512, heads=8, layers=6, hidden=2048, length=16384), 16384)
    >>> format_bytes(report.cost.head_weight_bytes)
    '1 GB'
    """
    cost = compute_gpt_cost(config, tokens, batch)
    logits = 4 * batch * config.vocabulary
    run = cost.parameter_bytes + cost.cache_bytes + logits + 4 * batch * tokens * (4 * config.width + config.hidden)
    needs = {"run": run, "run, weights kept": run + cost.weight_bytes, "train": cost.training_bytes}
    layer_tokens = min(tokens, MEASURED_TOKENS) if measure else tokens
    layers = compare_layers(layer_tokens, config.width, measure=measure, seed=seed, progress=progress)
    available = read_available_memory()
    return CostReport(config.width, config.heads, tokens, batch, cost, available, needs, layers, layer_tokens)


def format_bytes(number: int) -> str:
    """Return a size with a unit, in powers of 1,024.

    Args:
        number: The number of bytes.

    >>> format_bytes(4 * 4096**2), format_bytes(1600)
    ('64 MB', '1.6 KB')
    """
    return _format_unit(number, 1024, (" bytes", " KB", " MB", " GB", " TB"))


def format_count(number: int) -> str:
    """Return a large number with a unit, in powers of 1,000.

    >>> format_count(1_500_000_000)
    '1.5 G'
    """
    return _format_unit(number, 1000, ("", " k", " M", " G", " T", " P"))


def _format_unit(number: int, base: int, units: tuple[str, ...]) -> str:
    size = float(number)
    unit = 0
    while size >= base and unit < len(units) - 1:
        size, unit = size / base, unit + 1
    digits = f"{size:.1f}".removesuffix(".0") if size < 100 else f"{size:,.0f}"
    return digits + units[unit]


def format_available(available: int | None) -> str:
    """Return the available memory with a unit, or "?" if it is not known.

    Args:
        available: The number of bytes; None = not known.
    """
    return "?" if available is None else format_bytes(available)


def describe_fit(number: int, available: int | None) -> str | Text:
    """Say whether a number of bytes fits into memory; "?" if that is not known.

    Args:
        number: The number of bytes.
        available: The available bytes; None = not known.
    """
    if available is None:
        return "?"
    return Text("yes", "예") if number <= available else Text("NO", "아니요")


def list_misfits(needs: Mapping[str, int], available: int | None, uses: Mapping[str, Text]) -> list[Text]:
    """Return a sentence for each use that does not fit into memory.

    Args:
        needs: The bytes that each use needs.
        available: The available bytes; None = not known.
    """
    if available is None:
        return []
    texts = []
    for use, number in needs.items():
        if number > available:
            sizes = format_bytes(number), format_bytes(available)
            texts.append(
                Text(
                    f"{uses[use].english}: {sizes[0]} do not fit into the available {sizes[1]}.",
                    f"{uses[use].korean}: {sizes[0]}는 쓸 수 있는 메모리 {sizes[1]}에 들어가지 않습니다.",
                )
            )
    return texts


def build_count_table(cost: GPTCost | FamilyCost, parts: Mapping[str, Text]) -> Table:
    """Return a table of parameters and operations, by part."""
    rows: list[tuple[str | Text, ...]] = []
    for counts, total, kind in (
        (cost.parameters, cost.parameter_count, Text("parameters", "파라미터")),
        (cost.operations, cost.operation_count, Text("operations of a forward pass", "순전파의 연산")),
    ):
        rows.append((kind, f"{total:,}", ""))
        for part, number in counts.items():
            if number:
                text = parts[part]
                indented = Text(f"  {text.english}", f"  {text.korean}")
                rows.append((indented, f"{number:,}", f"{number / total:.0%}"))
    return Table((Text("count", "개수"), Text("total", "합계"), Text("share", "비율")), tuple(rows))
