"""Print which of two words the heads prefer, and which of these heads matter, for ``jumok look --between``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any

import click

from jumok.lab.bilingual_text import Text

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded
    from jumok.checkpoint.transformers_folder import LoadedTransformers
    from jumok.lens.describe.query_sources import KeyChoice, QueryPosition
    from jumok.lens.effects.effect_table import Effects
    from jumok.tasks.labelled_input import LabelledInput

HeadEffects = dict[tuple[Any, int], tuple[float, int]]  # layer and head -> effect and rank

HEADS_SHOWN = 5  # heads that are printed for each word


@dataclass(frozen=True)
class BetweenReport:
    """Which of two words the heads prefer, and what their ablation changes.

    Args:
        choice: The weights of every head on both words.
        predicted: The label of the last token, whose log-probability is measured; "" if nothing is measured.
        effects: The effects of all heads on it; None if nothing is measured.
    """

    query: QueryPosition
    choice: KeyChoice
    predicted: str = ""
    effects: Effects | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields for JSON: both words, and all heads with their weights and effects."""
        effects = self._list_effects()
        words = [
            {
                "word": word.text,
                "positions": word.positions,
                "heads": self.choice.count_preferring(index),
                "sum": self.choice.sum_weights(index),
            }
            for index, word in enumerate(self.choice.words)
        ]
        heads = [
            {**row, "effect": effects.get((row["layer"], row["head"]), (None, None))[0]} for row in self.choice.heads
        ]
        return {"words": words, "heads": heads, "predicted": self.predicted or None}

    def print(self, language: str) -> None:
        """Print how many heads prefer each word, the heads with the largest difference, and their effects.

        Args:
            language: "en" or "ko".
        """
        words = self.choice.words
        total = len(self.choice.heads)
        name = f"{self.query.label}[{self.query.position}]"
        question = Text(
            f"{name} in {total} heads: {words[0].text} or {words[1].text}?",
            f"{name}, 헤드 {total}개: {words[0].text}, {words[1].text} 가운데 어느 쪽?",
        )
        click.echo(question.select(language))
        for index, word in enumerate(words):
            count, total_weight = self.choice.count_preferring(index), self.choice.sum_weights(index)
            key = f"{word.text}[{word.positions[-1]}]"
            preference = Text(
                f"  {count:>4} heads put more weight on {key}; all heads together {total_weight:.2f}",
                f"  헤드 {count:>4}개가 {key} 쪽을 더 봅니다. 모든 헤드의 합 {total_weight:.2f}",
            )
            click.echo(preference.select(language))
        equal = total - sum(self.choice.count_preferring(index) for index in (0, 1))
        if equal:
            same = Text(f"  {equal:>4} heads put the same weight on both", f"  헤드 {equal:>4}개는 둘을 똑같이 봅니다")
            click.echo(same.select(language))
        self._print_heads(language)

    def _print_heads(self, language: str) -> None:
        effects = self._list_effects()
        if self.effects is not None:
            clean = f"{self.effects.clean:.2f}"
            measured = Text(
                f"\nlog-probability of {self.predicted} at the end: {clean}; effect: its change without the head",
                f"\n마지막 토큰 {self.predicted}의 로그 확률: {clean}. 효과: 그 헤드가 없을 때의 변화",
            )
            click.echo(measured.select(language))
        first, second = (word.text for word in self.choice.words)
        widths = [max(6, len(first)), max(6, len(second))]
        prefix = 2 + max(len("prefers"), len(first), len(second))
        header = f"\n{'prefers':<{prefix}}{'head':<8}{first:>{widths[0]}}  {second:>{widths[1]}}"
        click.echo(header + (f"  effect  rank of {len(effects)}" if effects else ""))
        for index, word in enumerate(self.choice.words):
            for row in self.choice.rank_preferring(index)[:HEADS_SHOWN]:
                name = f"{row['layer']}.{row['head']}"
                weights = [f"{weight:>{width}.2f}" for weight, width in zip(row["weights"], widths, strict=True)]
                line = f"{word.text:<{prefix}}{name:<8}{'  '.join(weights)}"
                if effects:
                    effect, rank = effects[row["layer"], row["head"]]
                    line += f"  {effect:+6.2f}  {rank}"
                click.echo(line)
        if effects:
            self._print_averages(effects, language)

    def _print_averages(self, effects: HeadEffects, language: str) -> None:
        """Compare the listed heads with all the other ones: a large weight alone does not show that a head matters."""
        groups = {}
        for index, word in enumerate(self.choice.words):
            rows = self.choice.rank_preferring(index)[:HEADS_SHOWN]
            name = Text(f"these heads for {word.text}", f"위의 {word.text} 쪽 헤드").select(language)
            groups[name] = [effects[row["layer"], row["head"]][0] for row in rows]
            effects = {head: pair for head, pair in effects.items() if head not in _list_names(rows)}
        other_heads = Text(f"the other {len(effects)} heads", f"나머지 헤드 {len(effects)}개").select(language)
        groups[other_heads] = [effect for effect, _ in effects.values()]
        click.echo("\n" + Text("mean effect, and mean of its size:", "효과의 평균과 그 크기의 평균:").select(language))
        for name, numbers in groups.items():
            if numbers:
                click.echo(f"  {mean(numbers):+.2f}  {mean(map(abs, numbers)):.2f}  {name}")

    def _list_effects(self) -> HeadEffects:
        """Return the effect of every head and its rank by size."""
        if self.effects is None:
            return {}
        return {
            (row.layer, row.head): (row.effect, rank)
            for rank, row in enumerate(self.effects.rows, 1)
            if row.head is not None
        }


def _list_names(rows: list[dict[str, Any]]) -> set[tuple[Any, int]]:
    return {(row["layer"], row["head"]) for row in rows}


def measure_last_token(
    loaded: Loaded | LoadedTransformers,
    labelled: LabelledInput,
    query: QueryPosition,
    progress: Callable[[int, int], None] | None,
) -> tuple[str, Effects | None]:
    """Ablate every head, and measure the log-probability of the last token of the text, given the tokens before it.

    Args:
        query: The token whose attention is compared; it must come before the last one.
        progress: Called with the number of measured heads and their total.

    Returns:
        The label of the last token and the effects; "" and None if the model does not predict the next token, or if
        no token follows the query.
    """
    from jumok.lens import effect
    from jumok.lens.effects.metrics import LogProbability

    is_language_model = getattr(loaded.model, "task", None) == "continue"
    if not is_language_model or query.position >= len(labelled.tokens) - 1:
        return "", None
    metric = LogProbability(labelled.tokens[-1], -2)
    effects = effect(loaded, *labelled.positional, metric=metric, progress=progress, **labelled.named)
    return labelled.source[-1], effects


def parse_words(text: str) -> tuple[str, str]:
    """Return the two words of ``--between``.

    Raises:
        click.UsageError: If there are not two words.
    """
    words = [word.strip() for word in text.split(",")]
    if len(words) != 2 or not all(words):
        raise click.UsageError(f"--between needs two words, separated by a comma, such as animal,street; not {text!r}")
    return words[0], words[1]
