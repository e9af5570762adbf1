"""Print when each word of a transcript is spoken, and where the cross-attention listens, for ``jumok look``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from jumok.lab.bilingual_text import Text

if TYPE_CHECKING:
    from torch import Tensor

    from jumok.checkpoint import Loaded
    from jumok.checkpoint.transformers_folder import LoadedTransformers
    from jumok.lens import Capture
    from jumok.tasks.labelled_input import LabelledInput
    from jumok.tasks.speech.word_times import Word


@dataclass(frozen=True)
class ListeningReport:
    """Where the words of a transcript are heard.

    Args:
        weights: For each word the mean weights [word, source] of the heads.
        is_chosen: Whether the user chose the heads, instead of those that follow the audio in time.
        begin: Where the window begins in the recording, in seconds.
    """

    words: list[Word]
    weights: Tensor
    heads: list[tuple[str, int]]
    is_chosen: bool
    begin: float

    def describe_heads(self, language: str) -> str:
        """Return which heads the weights belong to.

        Args:
            language: "en" or "ko".
        """
        if len(self.heads) == 1:
            site, head = self.heads[0]
            return f"{site}.{head}"
        if self.is_chosen:
            return Text(f"mean of {len(self.heads)} heads", f"헤드 {len(self.heads)}개의 평균").select(language)
        return Text(
            f"mean of the {len(self.heads)} heads that follow the audio in time",
            f"소리를 시간 순으로 따라가는 헤드 {len(self.heads)}개의 평균",
        ).select(language)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the words for JSON, with times in seconds from the start of the recording."""
        return [
            {
                "word": word.text,
                "rows": [word.rows.start, word.rows.stop],
                "start": round(self.begin + word.start, 2),
                "end": round(self.begin + word.end, 2),
                "peak": round(self.begin + self._find_peak(index), 2),
                "share": self._measure_share(index),
            }
            for index, word in enumerate(self.words)
        ]

    def print(self, language: str) -> None:
        """Print a line for each word.

        Args:
            language: "en" or "ko".
        """
        heads = self.describe_heads(language)
        title = Text(f"when words are spoken, and where they are heard ({heads})", f"단어를 말한 때와 들은 곳({heads})")
        click.echo(f"\n{title.select(language)}:")
        if not self.words:
            click.echo(Text("  no speech", "  말소리가 없습니다").select(language))
            return
        click.echo("    start      end     peak   weight  word")
        for index, word in enumerate(self.words):
            start, end, peak = self.begin + word.start, self.begin + word.end, self.begin + self._find_peak(index)
            click.echo(f"  {start:7.2f}  {end:7.2f}  {peak:7.2f}  {self._measure_share(index):7.2f}  {word.text}")
        legend = Text(
            "seconds; peak: where the rows that write the word put their largest weight; weight: what they put "
            "between start and end",
            "단위는 초. peak: 그 단어를 쓰는 행의 가중치가 가장 큰 곳. weight: start와 end 사이에 둔 가중치",
        )
        click.echo(legend.select(language))

    def _find_peak(self, index: int) -> float:
        from jumok.tasks.speech.audio_window import POSITIONS_PER_SECOND

        return int(self.weights[index].argmax()) / POSITIONS_PER_SECOND

    def _measure_share(self, index: int) -> float:
        from jumok.tasks.speech.listening import measure_share

        word = self.words[index]
        return measure_share(self.weights[index], word.start, word.end)


def build_listening_report(
    loaded: Loaded | LoadedTransformers,
    labelled: LabelledInput,
    capture: Capture,
    chosen: Mapping[str, Sequence[int]] | None,
) -> ListeningReport | None:
    """Measure where the words of a transcript are heard.

    Args:
        chosen: The heads that the user chose, by site; None = those that follow the audio in time.

    Returns:
        The report; None if none of the chosen heads listens to the audio.
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
    read_rows = read_capture_rows(capture)
    words = locate_words(loaded, labelled)
    weights = compute_listening(read_rows, [word.rows for word in words], heads)
    return ListeningReport(words, weights, heads, chosen is not None, labelled.audio.begin)
