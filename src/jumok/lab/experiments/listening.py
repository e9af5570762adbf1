"""Experiment ``listening``: which cross-attention heads of Whisper listen in time, and what happens without them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.bilingual_text import Text, Texts
from jumok.checkpoint import Loaded, load
from jumok.data.audio.voices import Voice
from jumok.draw import MapPanel, save_panel_row
from jumok.errors import ArgumentError
from jumok.lab.experiments.setups.timed_speech import (
    CALIBRATION_TEXTS,
    HeardSpeech,
    compute_errors,
    compute_median,
    count_word_errors,
    list_heads,
    speak_pairs,
)
from jumok.lab.result import Result, Table, build_table, count_steps
from jumok.lens import Ablate, Lens
from jumok.lens.edits.apply_edits import EditListener
from jumok.models.speech import FRAMES_PER_POSITION, Speech
from jumok.reporting import Progress
from jumok.tap import listen
from jumok.tasks.speech import Transcript, TranscriptionSettings, transcribe
from jumok.tasks.speech.word_times import Heads, read_word_weights

TEXTS = Texts(__file__)
MODEL = "whisper-tiny-en"
VOICE = Voice("espeak", "en-us")
FULL: dict[str, Any] = {"sentences": 12, "counts": (1, 3, 6), "draws": 3}
ONCE = TranscriptionSettings(temperatures=())  # greedy only: sampling would hide what an ablation does
IN_TIME = 0.1  # seconds: a head with a smaller median error listens in time
MONOTONE_PART = 4  # the most monotone heads are a quarter of all: six of 24
LARGEST_ERROR = 0.4  # seconds, in the picture


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


def measure_listening(
    sentences: int = 6,
    *,
    counts: Sequence[int] = (3,),
    draws: int = 2,
    voice: Voice = VOICE,
    model: str | Loaded = MODEL,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Measure the start errors of single heads, and ablate the best heads and as many random ones.

    Args:
        sentences: How many sentences are synthesised; each recording has two of them.
        draws: How many random choices of other heads are the control.
        model: The speech model: a name, a folder, or what ``jumok.load`` returned.
        seed: The seed of the pauses between sentences and of the random choices.
    """
    loaded = load(model) if isinstance(model, str) else model
    heads = list(list_heads(loaded))
    if not 2 <= sentences <= len(CALIBRATION_TEXTS) or draws < 1 or not counts:
        raise ArgumentError(f"measure_listening needs 2 to {len(CALIBRATION_TEXTS)} sentences, a count and a draw")
    if not 1 <= min(counts) <= max(counts) <= len(heads) // 2:
        raise ArgumentError(f"the model has {len(heads)} heads, so 1 to {len(heads) // 2} of them can be ablated")
    speech = speak_pairs(CALIBRATION_TEXTS[:sentences], [voice], seed)
    count_step = count_steps(len(speech) * (2 + len(counts) * (1 + draws)), progress)

    recordings: list[HeardSpeech] = []
    for recording in speech:
        recordings.append(HeardSpeech.listen(loaded, recording))
        count_step()
    timings = _measure_heads(recordings, heads)

    rows = [_measure_ablation(loaded, recordings, "none", (), count_step)]
    best = [(timing.block, timing.head) for timing in sorted(timings, key=lambda timing: timing.error)]
    choices = random.Random(seed)
    for count in counts:
        rows.append(_measure_ablation(loaded, recordings, "best", best[:count], count_step))
        not_best = best[count:]
        controls = [sorted(choices.sample(not_best, count)) for _ in range(draws)]
        rows += [_measure_ablation(loaded, recordings, "random", control, count_step) for control in controls]
    return describe_listening(
        recordings=len(recordings),
        words=sum(len(recording.matches) for recording in recordings),
        seed=seed,
        heads=tuple(timings),
        all_heads_error=compute_median(compute_errors(recordings, range(len(heads)))),
        ablations=tuple(rows),
    )


def describe_listening(
    recordings: int,
    words: int,
    seed: int,
    heads: tuple[HeadTiming, ...],
    all_heads_error: float,
    ablations: tuple[AblationRow, ...],
) -> Result:
    """Say which heads listen in time, whether these are the monotone ones, and what depends on them.

    Args:
        words: How many recognised words have a known start.
        all_heads_error: The median error of all heads together, in seconds.
        ablations: One row for each choice of ablated heads; the first one has none.
    """
    errors = [f"{1000 * head.error:.0f} ({1000 * head.late:+.0f})" for head in heads]
    tables = [
        _build_head_table(heads, errors, TEXTS("errors", words=words, recordings=recordings)),
        _build_head_table(heads, [f"{head.monotony:.2f}" for head in heads], TEXTS("monotony")),
        _build_ablation_table(ablations),
    ]
    # the quarter of the heads that look back least
    monotone = sorted(heads, key=lambda head: -head.monotony)[: max(1, len(heads) // MONOTONE_PART)]
    counts = [len(row.ablated) for row in ablations if row.kind == "best"]
    sentences = [
        _explain_times(heads, all_heads_error),
        _explain_monotony(monotone),
        *(_explain_ablation(count, ablations) for count in counts),
    ]
    exceptions = list(_list_exceptions(monotone, counts, ablations))
    numbers = {
        "recordings": recordings,
        "words": words,
        "seed": seed,
        "heads": heads,
        "all_heads_error": all_heads_error,
        "ablations": ablations,
    }
    return Result(numbers, tables, sentences, exceptions, partial(_draw_heads, heads))


def _measure_heads(recordings: Sequence[HeardSpeech], heads: Heads) -> list[HeadTiming]:
    """Align the words by the weights of one head at a time."""
    timings: list[HeadTiming] = []
    for row, (block, head) in enumerate(heads):
        errors = compute_errors(recordings, [row])
        if not errors:
            raise ArgumentError("the model recognised none of the words; choose another voice")
        monotony = mean(recording.measure_monotony(row) for recording in recordings)
        timings.append(HeadTiming(block, head, compute_median(errors), median(errors), monotony))
    return timings


def _measure_ablation(
    loaded: Loaded, recordings: Sequence[HeardSpeech], kind: str, ablated: Heads, count_step: Callable[[], None]
) -> AblationRow:
    """Ablate heads: transcribe again, read the clean transcript again, and align it by the heads that are left."""
    edits = build_ablations(ablated)
    remaining = [head for head in list_heads(loaded) if head not in ablated]
    wrong = total = 0
    log_probabilities: list[torch.Tensor] = []
    errors: list[float] = []
    for recording in recordings:
        speech = recording.speech
        spoken = [word.text for word in speech.words]
        transcript = transcribe_ablated(loaded, speech.samples, edits)
        wrong += count_word_errors(transcript.text.split(), spoken)
        total += len(spoken)
        windows = read_word_weights(loaded, speech.samples, recording.transcript, remaining, edits)
        log_probabilities += [window.log_probabilities for window in windows]
        edited = HeardSpeech(speech, recording.transcript, tuple(windows), recording.matches)
        errors += edited.measure_errors(range(len(remaining)))
        count_step()
    return AblationRow(
        kind=kind,
        ablated=tuple(ablated),
        word_error_rate=wrong / total,
        log_probability=float(torch.cat(log_probabilities).mean()),
        error=compute_median(errors),
    )


def build_ablations(heads: Heads) -> list[Ablate]:
    """Return the edits that replace the outputs of cross-attention heads, as (decoder block, head), by zeros."""
    return [Ablate(f"decoder.{block}.cross", head=head) for block, head in heads]


def transcribe_ablated(loaded: Loaded, samples: Float[Tensor, " sample"], edits: Sequence[Ablate]) -> Transcript:
    """Return the transcript that a model writes greedily under edits, which hold for every token."""
    if not edits:
        return transcribe(loaded, samples, ONCE)
    assert isinstance(loaded.model, Speech)
    features = torch.zeros(1, loaded.model.config.mel_bins, FRAMES_PER_POSITION)
    with Lens(loaded) as lens:
        sites = lens.find_sites(features, [loaded.model.start_token])
        listener = EditListener(edits, sites, lens.model)
        with listen(listener):
            transcript = transcribe(loaded, samples, ONCE)
        listener.check_applied()
    return transcript


def _build_head_table(heads: Sequence[HeadTiming], cells: Sequence[str], title: Text) -> Table:
    count = 1 + max(head.head for head in heads)
    blocks = 1 + max(head.block for head in heads)
    rows = [(str(block), *cells[block * count : (block + 1) * count]) for block in range(blocks)]
    columns = [TEXTS("head_table.block"), *(TEXTS("head_table.head", head=head) for head in range(count))]
    return Table(columns, rows, title)


def _build_ablation_table(ablations: Sequence[AblationRow]) -> Table:
    kinds = TEXTS.group("kinds")
    rows = []
    for row in ablations:
        heads = " ".join(f"{block}.{head}" for block, head in row.ablated)
        rows.append({"kind": kinds[row.kind], "heads": heads, "row": row, "milliseconds": 1000 * row.error})
    return build_table(TEXTS, "ablations", rows)


def _explain_times(heads: Sequence[HeadTiming], all_heads_error: float) -> Text:
    ranked = sorted(heads, key=lambda head: head.error)
    names = [f"{head.block}.{head.head}" for head in ranked if head.error <= IN_TIME]
    return TEXTS(
        "in_time",
        count=len(names),
        total=len(heads),
        limit=1000 * IN_TIME,
        names=", ".join(names) or "-",
        best=ranked[0],
        error=1000 * ranked[0].error,
        all_error=1000 * all_heads_error,
    )


def _explain_monotony(monotone: Sequence[HeadTiming]) -> Text:
    worst = max(monotone, key=lambda head: head.error)
    return TEXTS(
        "monotone",
        count=len(monotone),
        smallest=1000 * min(head.error for head in monotone),
        largest=1000 * worst.error,
        worst=worst,
        late=1000 * abs(worst.late),
        direction=TEXTS(f"directions.{'late' if worst.late > 0 else 'early'}"),
    )


def _explain_ablation(count: int, ablations: Sequence[AblationRow]) -> Text:
    clean = ablations[0]
    best, controls = _select_ablations(count, ablations)
    return TEXTS(
        "ablation",
        count=count,
        best=best,
        clean=clean,
        controls=len(controls),
        word_error_rate=median(row.word_error_rate for row in controls),
        drop=clean.log_probability - best.log_probability,
        control_drop=clean.log_probability - median(row.log_probability for row in controls),
        error=1000 * best.error,
        control_error=1000 * median(row.error for row in controls),
    )


def _list_exceptions(
    monotone: Sequence[HeadTiming], counts: Sequence[int], ablations: Sequence[AblationRow]
) -> Iterator[Text]:
    """Name monotone heads that listen in time after all, and ablations that matter less than random ones."""
    if max(head.error for head in monotone) <= IN_TIME:
        yield TEXTS("exceptions.monotone")
    for count in counts:
        best, controls = _select_ablations(count, ablations)
        if best.word_error_rate <= max(row.word_error_rate for row in controls):
            yield TEXTS("exceptions.words", count=count)
        if best.error <= max(row.error for row in controls):
            yield TEXTS("exceptions.times", count=count)


def _select_ablations(count: int, ablations: Sequence[AblationRow]) -> tuple[AblationRow, list[AblationRow]]:
    """Return the ablation of the best heads, and those of as many random ones."""
    rows = [row for row in ablations if len(row.ablated) == count]
    return next(row for row in rows if row.kind == "best"), [row for row in rows if row.kind == "random"]


def _draw_heads(heads: Sequence[HeadTiming], target: str | Path, language: str) -> Path:
    """Draw the error of each head, and how often it looks back, as two maps of blocks and heads; white is best."""
    labels = TEXTS.select("picture", language, limit=1000 * LARGEST_ERROR)
    count = 1 + max(head.head for head in heads)
    cells = {
        "errors": [1000 * min(head.error, LARGEST_ERROR) for head in heads],
        "monotony": [1 - head.monotony for head in heads],
    }
    panels = [
        MapPanel(
            labels[name],
            [numbers[start : start + count] for start in range(0, len(numbers), count)],
            labels["head"],
            labels["block"],
        )
        for name, numbers in cells.items()
    ]
    return save_panel_row(target, panels)
