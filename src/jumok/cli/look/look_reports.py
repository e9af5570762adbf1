"""What ``jumok look`` prints: kinds of heads, sources of tokens, one token, a choice of two words, and audio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any

from jumok.bilingual_text import Text, Texts
from jumok.cli.command_output import CommandOutput
from jumok.reporting import Progress

if TYPE_CHECKING:
    from torch import Tensor

    from jumok.checkpoint import Loaded
    from jumok.checkpoint.transformers_folder import LoadedTransformers
    from jumok.lens import Capture
    from jumok.lens.describe.query_sources import KeyChoice, QueryPosition, QuerySources
    from jumok.lens.effects.effect_table import Effects
    from jumok.tasks.labelled_input import LabelledInput
    from jumok.tasks.speech import Word

TEXTS = Texts(__file__)

TOKENS_SHOWN = 40  # tokens whose sources are printed
KEYS_SHOWN = 8  # preferred keys of one token
HEADS_SHOWN = 40  # heads whose sources are printed for one token
HEADS_OF_WORD_SHOWN = 5  # heads that are printed for each of two words

Row = dict[str, Any]  # one row of a table, as for JSON
HeadEffects = dict[tuple[Any, int], tuple[float, int]]  # layer and head -> effect and rank


@dataclass(frozen=True)
class HeadReport:
    """The kind of every head, and the keys that every token attends to most."""

    heads: list[Row]
    tokens: list[Row]
    with_scores: bool

    def to_json(self) -> dict[str, Any]:
        """Return the rows of both tables."""
        return {"heads": self.heads, "tokens": self.tokens}

    def print(self, output: CommandOutput) -> None:
        """Print a table of the heads, and below it the scores that their kinds are derived from."""
        rows = []
        for row in self.heads:
            names = [row.get(name) for name in ("kind", "kind_without_first", "kind_on_repeats")]
            kinds = [TEXTS(f"kinds.{name}") if name else "-" for name in names]
            distances = [f"{row['distance']:.1f}", f"{row['future']:.6f}"] if "kind" in row else ["-", "-"]
            rows.append([row["layer"], row["head"], *kinds, f"{row['entropy']:.2f}", *distances])
        output.print_table("rrlllrrr", rows, TEXTS.list("heads.headings"))

        worst = max(self.heads, key=lambda row: float(row["sums"]))
        is_exact = worst["sums"] < 1e-4
        head = f"{worst['layer']}.{worst['head']}"
        sums = TEXTS("heads.sums" if is_exact else "heads.wrong_sums", worst=worst["sums"], head=head)
        legend = TEXTS("heads.legend", sums=sums)
        if any("kind" not in row for row in self.heads):
            legend = TEXTS("heads.crossing", legend=legend)
        output.print(legend)
        if self.with_scores:
            self._print_scores(output)

    def print_sources(self, output: CommandOutput) -> None:
        """Print the keys of the last tokens."""
        remaining = len(self.tokens) - TOKENS_SHOWN
        output.print(
            TEXTS("sources.last" if remaining > 0 else "sources.title", shown=TOKENS_SHOWN, remaining=remaining)
        )
        has_target = any(row["side"] == "target" for row in self.tokens)
        side = None
        for row in self.tokens[-TOKENS_SHOWN:]:
            if has_target and row["side"] != side:
                side = row["side"]
                output.print(TEXTS(f"sources.{side}"))
            sources = "   ".join(
                f"{source['label']}[{source['key']}] {source['weight']:.2f} ({source['layer']}.{source['head']})"
                for source in row["sources"]
            )
            output.print(f"  {row['label']}[{row['token']}] <- {sources}")

    def _print_scores(self, output: CommandOutput) -> None:
        """Print the scores of each head in two lines: with all keys, and without the first one."""
        from jumok.lens.describe.head_kinds import KEY_KINDS, OTHER_KINDS

        thresholds = {**KEY_KINDS, **OTHER_KINDS}
        names = [name for name in thresholds if any(name in row.get("scores", {}) for row in self.heads)]
        if not names:
            output.print(TEXTS("heads.no_scores"))
            return
        rows: list[list[object]] = [[TEXTS("heads.threshold"), *(f"{thresholds[name]:.2f}" for name in names)]]
        for row in self.heads:
            for title, field in ((f"{row['layer']}.{row['head']}", "scores"), ("-", "scores_without_first")):
                scores = row.get(field, {})
                rows.append([title, *(f"{scores[name]:.2f}" if name in scores else "" for name in names)])
        output.print(TEXTS("heads.scores"))
        output.print_table("l" + "r" * len(names), rows, ["", *(TEXTS(f"kinds.{name}") for name in names)], indent=2)


@dataclass(frozen=True)
class QueryReport:
    """Where one token looks: the keys of every head, and how many heads prefer which key."""

    query: QueryPosition
    sources: QuerySources
    skip_first: bool

    def to_json(self) -> dict[str, Any]:
        """Return the token, the preferred keys, and the keys of every head."""
        query = self.query
        token = {"token": query.position, "side": query.side, "label": query.label, "occurrences": query.occurrences}
        return {
            "query": {**token, "word": query.part_of or None, "skip_first": self.skip_first},
            "preferred": self.sources.preferred,
            "heads": self.sources.heads,
        }

    def print(self, output: CommandOutput) -> None:
        """Print how many heads prefer which key, and the keys of every head."""
        query, heads = self.query, self.sources.heads
        without_first = TEXTS("query.without_first") if self.skip_first else ""
        name = f"{query.label}[{query.position}]"
        output.print(TEXTS("query.title", name=name, count=len(heads), without_first=without_first))
        if query.part_of:
            output.print(TEXTS("query.part", word=query.part_of))
        if len(query.occurrences) > 1:
            output.print(TEXTS("query.occurrence", positions=", ".join(map(str, query.occurrences))))

        output.print(TEXTS("query.preferred"))
        preferred = [(row["heads"], f"{row['label']}[{row['key']}]") for row in self.sources.preferred]
        counts: list[tuple[int, str | Text]] = [*preferred[:KEYS_SHOWN]]
        if other_keys := preferred[KEYS_SHOWN:]:
            text = TEXTS("query.other_keys", count=len(other_keys))
            counts.append((sum(count for count, _ in other_keys), text))
        if without_sources := sum(not row["sources"] for row in heads):
            counts.append((without_sources, TEXTS("query.no_key")))
        rows = [[TEXTS("query.head" if count == 1 else "query.heads", count=count), key] for count, key in counts]
        output.print_table("rl", rows, indent=2)

        remaining = len(heads) - HEADS_SHOWN
        output.print(
            TEXTS("query.top_heads" if remaining > 0 else "query.all_heads", shown=HEADS_SHOWN, remaining=remaining)
        )
        for row in heads[:HEADS_SHOWN]:
            keys = "   ".join(f"{source['label']}[{source['key']}] {source['weight']:.2f}" for source in row["sources"])
            output.print(f"  {row['layer']}.{row['head']}  {keys or '-'}")


def build_query_report(
    capture: Capture,
    labelled: LabelledInput,
    heads: dict[str, list[int]],
    query: str,
    *,
    top: int,
    skip_first: bool,
    by_words: bool,
) -> QueryReport:
    """Rank the keys of one token.

    Args:
        query: The position or the text of the token.
        top: How many keys of each head.
    """
    from jumok.lens.describe.query_sources import find_query, rank_query_sources

    position = find_query(capture, labelled, list(heads), query, by_words)
    sources = rank_query_sources(
        capture, labelled, list(heads), position, heads=heads, top=top, skip_first=skip_first, by_words=by_words
    )
    return QueryReport(position, sources, skip_first)


@dataclass(frozen=True)
class BetweenReport:
    """Which of two words the heads prefer, and what their ablation changes.

    Attributes:
        choice: The weights of every head on both words.
        predicted: The label of the last token, whose log-probability is measured; "" if nothing is measured.
        effects: The effects of all heads on it; None if nothing is measured.
    """

    query: QueryPosition
    choice: KeyChoice
    predicted: str = ""
    effects: Effects | None = None

    def to_json(self) -> dict[str, Any]:
        """Return both words, and all heads with their weights and effects."""
        effects = self._list_effects()
        words = [
            {
                "word": word.text,
                "positions": word.positions,
                "heads": len(self.choice.rank_preferring(index)),
                "sum": self.choice.sum_weights(index),
            }
            for index, word in enumerate(self.choice.words)
        ]
        heads = [
            {**row, "effect": effects.get((row["layer"], row["head"]), (None, None))[0]} for row in self.choice.heads
        ]
        return {"words": words, "heads": heads, "predicted": self.predicted or None}

    def print(self, output: CommandOutput) -> None:
        """Print how many heads prefer each word, the heads with the largest difference, and their effects."""
        words, total = self.choice.words, len(self.choice.heads)
        name = f"{self.query.label}[{self.query.position}]"
        output.print(TEXTS("between.question", name=name, total=total, first=words[0].text, second=words[1].text))
        counts = [len(self.choice.rank_preferring(index)) for index in (0, 1)]
        for index, word in enumerate(words):
            key, weight = f"{word.text}[{word.positions[-1]}]", self.choice.sum_weights(index)
            output.print(TEXTS("between.preference", count=counts[index], key=key, weight=weight))
        if equal := total - sum(counts):
            output.print(TEXTS("between.equal", count=equal))

        effects = self._list_effects()
        if self.effects is not None:
            output.print(TEXTS("between.measured", token=self.predicted, clean=self.effects.clean))
        prefers, head_heading, effect_heading = TEXTS.list("between.headings")
        headings = [prefers, head_heading, *(word.text for word in words)]
        rows = []
        for index, word in enumerate(words):
            for row in self.choice.rank_preferring(index)[:HEADS_OF_WORD_SHOWN]:
                head = f"{row['layer']}.{row['head']}"
                cells = [word.text, f"{head:<6}", *(f"{weight:6.2f}" for weight in row["weights"])]
                if effects:
                    effect, rank = effects[row["layer"], row["head"]]
                    cells += [f"{effect:+6.2f}", str(rank)]
                rows.append(cells)
        output.print()
        if effects:
            output.print_table("llrrrl", rows, [*headings, effect_heading, TEXTS("between.rank", count=len(effects))])
            self._print_averages(effects, output)
        else:
            output.print_table("llrr", rows, headings)

    def _print_averages(self, effects: HeadEffects, output: CommandOutput) -> None:
        """Compare the listed heads with all the other ones: a large weight alone does not show that a head matters."""
        output.print(TEXTS("between.means"))
        effects = dict(effects)
        for index, word in enumerate(self.choice.words):
            rows = self.choice.rank_preferring(index)[:HEADS_OF_WORD_SHOWN]
            numbers = [effects.pop((row["layer"], row["head"]))[0] for row in rows]
            _print_average(numbers, TEXTS("between.these_heads", word=word.text), output)
        remaining = [effect for effect, _ in effects.values()]
        _print_average(remaining, TEXTS("between.other_heads", count=len(remaining)), output)

    def _list_effects(self) -> HeadEffects:
        """Return the effect of every head and its rank by size."""
        if self.effects is None:
            return {}
        return {
            (row.layer, row.head): (row.effect, rank)
            for rank, row in enumerate(self.effects.rows, 1)
            if row.head is not None
        }


def _print_average(numbers: list[float], name: Text, output: CommandOutput) -> None:
    if numbers:
        output.print(f"  {mean(numbers):+.2f}  {mean(map(abs, numbers)):.2f}  {output.select(name)}")


def build_between_report(
    loaded: Loaded | LoadedTransformers,
    labelled: LabelledInput,
    capture: Capture,
    heads: dict[str, list[int]],
    query: QueryPosition,
    words: tuple[str, str],
    progress: Progress | None,
) -> BetweenReport:
    """Compare the weights on two words, ablate every head, and measure the log-probability of the last token.

    Nothing is measured if the model does not predict the next token, or if no token follows the query.
    """
    from jumok.lens import effect
    from jumok.lens.describe.query_sources import compare_keys
    from jumok.lens.effects.metrics import LogProbability

    choice = compare_keys(capture, labelled, list(heads), query, words, heads=heads)
    is_language_model = getattr(loaded.model, "task", None) == "continue"
    if not is_language_model or query.position >= len(labelled.tokens) - 1:
        return BetweenReport(query, choice)
    metric = LogProbability(labelled.tokens[-1], -2)
    effects = effect(loaded, *labelled.positional, metric=metric, progress=progress, **labelled.named)
    return BetweenReport(query, choice, labelled.source[-1], effects)


@dataclass(frozen=True)
class ListeningReport:
    """When the words of a transcript are spoken, and where the cross-attention listens.

    Attributes:
        weights: For each word the mean weights [word, source] of the heads.
        is_chosen: Whether the user chose the heads, instead of those that follow the audio in time.
        begin: Where the window begins in the recording, in seconds.
    """

    words: list[Word]
    weights: Tensor
    heads: list[tuple[str, int]]
    is_chosen: bool
    begin: float

    def describe_heads(self) -> Text:
        """Return which heads the weights belong to."""
        if len(self.heads) == 1:
            site, head = self.heads[0]
            return Text(f"{site}.{head}", f"{site}.{head}")
        return TEXTS("listening.mean" if self.is_chosen else "listening.timing_mean", count=len(self.heads))

    def to_json(self) -> list[dict[str, Any]]:
        """Return the words, with times in seconds from the start of the recording."""
        rows = []
        for word, (start, end, peak, share) in zip(self.words, self._list_times(), strict=True):
            times = {"start": round(start, 2), "end": round(end, 2), "peak": round(peak, 2)}
            rows.append({"word": word.text, "rows": [word.rows.start, word.rows.stop], **times, "share": share})
        return rows

    def print(self, output: CommandOutput) -> None:
        """Print a line for each word."""
        output.print(TEXTS("listening.title", heads=self.describe_heads()))
        if not self.words:
            output.print(TEXTS("listening.silence"))
            return
        rows = [
            [*(f"{number:7.2f}" for number in times), word.text]
            for word, times in zip(self.words, self._list_times(), strict=True)
        ]
        output.print_table("rrrrl", rows, TEXTS.list("listening.headings"), indent=2)
        output.print(TEXTS("listening.legend"))

    def _list_times(self) -> list[tuple[float, float, float, float]]:
        """Return of each word its start, its end, where its rows have their largest weight, and the weight inside."""
        from jumok.tasks.speech.audio_window import POSITIONS_PER_SECOND
        from jumok.tasks.speech.listening import measure_share

        rows = []
        for word, weights in zip(self.words, self.weights, strict=True):
            peak = int(weights.argmax()) / POSITIONS_PER_SECOND
            share = measure_share(weights, word.start, word.end)
            rows.append((self.begin + word.start, self.begin + word.end, self.begin + peak, share))
        return rows


def build_listening_report(
    loaded: Loaded | LoadedTransformers,
    labelled: LabelledInput,
    capture: Capture,
    chosen: Mapping[str, Sequence[int]] | None,
) -> ListeningReport | None:
    """Measure where the words of a transcript are heard; None if none of the chosen heads listens to the audio.

    Args:
        chosen: The heads that the user chose, by site; None = those that follow the audio in time.
    """
    from jumok.checkpoint import Loaded
    from jumok.lens.sites import SOURCE, TARGET
    from jumok.tasks.speech.listening import compute_listening, list_timing_sites, locate_words, read_capture_rows

    assert isinstance(loaded, Loaded) and labelled.audio is not None
    heads = list_timing_sites(loaded)
    if chosen is not None:
        crossing = [site for site in chosen if capture.sites.get_sides(site) == (TARGET, SOURCE)]
        heads = [(site, head) for site in crossing for head in chosen[site]]
        if not heads:
            return None
    words = locate_words(loaded, labelled)
    weights = compute_listening(read_capture_rows(capture), [word.rows for word in words], heads)
    return ListeningReport(words, weights, heads, chosen is not None, labelled.audio.begin)
