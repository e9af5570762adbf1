"""The cost of a model of any family beside the memory of this machine, as tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text
from jumok.lab.experiments.experiment_result import ExperimentResult, Table
from jumok.models import Config

from .cost_report import PARTS, build_count_table, describe_fit, format_available, format_bytes, list_misfits
from .family_cost import FamilyCost, compute_family_cost
from .machine_memory import read_available_memory

FAMILY_PARTS = {
    **PARTS,
    "recurrent": Text("recurrent layers", "순환층"),
    "other": Text("other layers", "나머지 층"),
}
FAMILY_USES = {
    "run": Text("run, attention weights computed", "실행(가중치를 계산할 때)"),
    "train": Text("train with Adam, attention weights kept", "Adam으로 학습(가중치 보관)"),
}
MEMORY = {
    "parameter_bytes": Text("parameters", "파라미터"),
    "head_weight_bytes": Text("weights of one head", "헤드 하나의 가중치"),
    "weight_bytes": Text("weights of all heads and layers", "모든 헤드와 층의 가중치"),
    "cache_bytes": Text("key/value cache", "키/값 캐시"),
    "forward_bytes": Text("tensors of a forward pass", "순전파 중의 텐서"),
    "activation_bytes": Text("activations in training", "학습 중 활성값"),
}
PLOTTED_SHARES = (1, 2, 4, 6, 8)  # eighths of the length


@dataclass(frozen=True)
class FamilyCostReport(ExperimentResult):
    """The result of ``report_family_cost``.

    Attributes:
        tokens: The number of tokens of a text; None for images.
        batch: The number of texts or images.
        available: The available memory of this machine in bytes; None if the system does not say.
        needs: The bytes that running and training need; without those that are not defined.
        growth: For texts, pairs of a length and the operations at this length: all, and those of scores and mixture.
    """

    family: str
    tokens: int | None
    batch: int
    inputs: Text
    cost: FamilyCost
    available: int | None
    needs: dict[str, int]
    growth: tuple[tuple[int, int, int], ...]

    def build_tables(self) -> list[Table]:
        """Return a table of parameters and operations, and one of memory."""
        return [build_count_table(self.cost, FAMILY_PARTS), self._build_memory_table()]

    def _build_memory_table(self) -> Table:
        rows: list[tuple[str | Text, ...]] = []
        for field, name in MEMORY.items():
            number = getattr(self.cost, field)
            note = self.cost.notes.get(field, Text("not defined", "정의되지 않음"))
            rows.append((name, note if number is None else format_bytes(number), ""))
        for use, name in FAMILY_USES.items():
            if use in self.needs:
                number = self.needs[use]
                rows.append((name, format_bytes(number), describe_fit(number, self.available)))
            else:
                rows.append((name, Text("not defined", "정의되지 않음"), "?"))
        title = Text(
            f"memory in float32, {self.inputs.english} (1 MB = 1,048,576 bytes); "
            f"available here: {format_available(self.available)}",
            f"float32 메모리, {self.inputs.korean}(1 MB = 1,048,576바이트); "
            f"이 컴퓨터에서 쓸 수 있는 메모리: {format_available(self.available)}",
        )
        return Table((Text("memory", "메모리"), Text("size", "크기"), Text("fits", "가능")), tuple(rows), title)

    def explain(self) -> list[Text]:
        """Say how the numbers were found, and what they are an upper bound of."""
        return [
            Text(
                f"The model ({self.family}) was built and run without numbers (on PyTorch's meta device), so these are "
                "its own counts; a fused attention, which keeps no weights, needs less memory than the lines with "
                "attention weights.",
                f"모델({self.family})을 값이 없는 텐서(PyTorch의 meta 장치)로 만들어 실행한 결과이므로 모델 자신의 "
                "수치입니다. 가중치를 남기지 않는 융합 어텐션은 가중치가 포함된 줄보다 메모리를 적게 씁니다.",
            )
        ]

    def list_exceptions(self) -> list[Text]:
        """Name what does not fit into memory, and what is not counted."""
        texts = list_misfits(self.needs, self.available, FAMILY_USES)
        if "operations" in self.cost.notes:
            texts.append(self.cost.notes["operations"])
        return texts

    def save_picture(self, target: str | Path, language: str = "en") -> Path:
        """Draw the operations over the length of the text: all, and those of scores and mixture."""
        if not self.growth:
            raise ArgumentError(f"{self.family} reads images of one size; there is no cost over the length to draw")
        series = {
            Text("all operations", "모든 연산").select(language): [(length, total) for length, total, _ in self.growth],
            PARTS["scores and mixture"].select(language): [(length, part) for length, _, part in self.growth],
        }
        return save_line_plot(
            {name: [(length, number / 1e9) for length, number in points] for name, points in series.items()},
            target,
            title=Text(f"Operations of a forward pass: {self.family}", f"순전파의 연산: {self.family}").select(
                language
            ),
            across=Text("tokens n", "토큰 수 n").select(language),
            vertical=Text("billions of operations", "연산(10억 번)").select(language),
        )


def report_family_cost(
    config: Config, tokens: int | None = None, batch: int = 1, *, with_growth: bool = False
) -> FamilyCostReport:
    """Compute the cost of a model of any family and compare it with the memory of this machine. Nothing is allocated.

    Args:
        tokens: The number of tokens of each text; an encoder-decoder reads as many as it writes. None = the longest
            text of the model, or 128.
        batch: The number of texts or images.
        with_growth: Whether to compute the operations at shorter lengths too, for the picture.

    Raises:
        ArgumentError: If a number is out of range, or ``tokens`` is given for a model that reads images.

    >>> from jumok.models.bert import BERTConfig
    >>> report = report_family_cost(BERTConfig(layers=2), 128)
    >>> format_bytes(report.cost.head_weight_bytes)
    '64 KB'
    """
    cost, inputs = compute_family_cost(config, tokens, batch)
    needs = {}
    if cost.forward_bytes is not None:
        needs["run"] = cost.parameter_bytes + cost.forward_bytes + (cost.cache_bytes or 0)
    if cost.training_bytes is not None:
        needs["train"] = cost.training_bytes
    growth = []
    if with_growth and inputs.tokens is not None:
        for length in sorted({max(1, share * inputs.tokens // 8) for share in PLOTTED_SHARES}):
            operations = compute_family_cost(config, length, batch)[0].operations
            growth.append((length, sum(operations.values()), operations.get("scores and mixture", 0)))
    available = read_available_memory()
    return FamilyCostReport(
        config.family, inputs.tokens, batch, inputs.description, cost, available, needs, tuple(growth)
    )
