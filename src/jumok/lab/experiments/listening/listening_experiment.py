"""Experiment ``listening``: which cross-attention heads of Whisper listen in time, and what happens without them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import mean, median
from typing import Any

import torch

from jumok.checkpoint import Loaded, load
from jumok.errors import ArgumentError
from jumok.lab.experiments.experiment_result import Progress
from jumok.tasks.speech.word_weights import Heads, read_word_weights

from .ablated_transcription import build_ablations, transcribe_ablated
from .listening_result import AblationRow, HeadTiming, ListeningResult
from .start_errors import HeardSpeech, compute_errors, compute_median, count_word_errors, list_heads
from .timed_speech import CALIBRATION_TEXTS, Voice, speak_pairs

MODEL = "whisper-tiny-en"
VOICE = Voice("espeak", "en-us")
QUICK: dict[str, Any] = {"sentences": 6, "counts": (3,), "draws": 2}
FULL: dict[str, Any] = {"sentences": 12, "counts": (1, 3, 6), "draws": 3}


def measure_listening(
    sentences: int = 6,
    *,
    counts: Sequence[int] = (3,),
    draws: int = 2,
    voice: Voice = VOICE,
    model: str | Loaded = MODEL,
    seed: int = 0,
    progress: Progress | None = None,
) -> ListeningResult:
    """Measure the start errors of single heads, and ablate the best heads and as many random ones.

    Args:
        sentences: How many sentences are synthesised; each recording has two of them.
        draws: How many random choices of other heads are the control.
        model: The speech model: a name, a folder, or what ``jumok.load`` returned.
        seed: The seed of the pauses between sentences and of the random choices.
        progress: Called with the finished and the total number of recordings that the model has read; default: nothing.

    Raises:
        CheckpointError: If the model is not on this machine.
        ArgumentError: If espeak-ng is not installed, or a number does not fit.
    """
    loaded = load(model) if isinstance(model, str) else model
    heads = list(list_heads(loaded))
    if not 2 <= sentences <= len(CALIBRATION_TEXTS) or draws < 1 or not counts:
        raise ArgumentError(f"measure_listening needs 2 to {len(CALIBRATION_TEXTS)} sentences, a count and a draw")
    if not 1 <= min(counts) <= max(counts) <= len(heads) // 2:
        raise ArgumentError(f"the model has {len(heads)} heads, so 1 to {len(heads) // 2} of them can be ablated")
    speech = speak_pairs(CALIBRATION_TEXTS[:sentences], [voice], seed)
    steps = _Steps(len(speech) * (2 + len(counts) * (1 + draws)), progress)

    recordings: list[HeardSpeech] = []
    for recording in speech:
        recordings.append(HeardSpeech.listen(loaded, recording))
        steps.finish_one()
    timings = _measure_heads(recordings, heads)

    rows = [_measure_ablation(loaded, recordings, "none", (), steps)]
    best = [(timing.block, timing.head) for timing in sorted(timings, key=lambda timing: timing.error)]
    choices = random.Random(seed)
    for count in counts:
        rows.append(_measure_ablation(loaded, recordings, "best", best[:count], steps))
        not_best = best[count:]
        controls = [sorted(choices.sample(not_best, count)) for _ in range(draws)]
        rows += [_measure_ablation(loaded, recordings, "random", control, steps) for control in controls]
    return ListeningResult(
        recordings=len(recordings),
        words=sum(len(recording.matches) for recording in recordings),
        seed=seed,
        heads=tuple(timings),
        all_heads_error=compute_median(compute_errors(recordings, range(len(heads)))),
        ablations=tuple(rows),
    )


class _Steps:
    """Counts what is done."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def finish_one(self) -> None:
        """Report one more finished step."""
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)


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
    loaded: Loaded, recordings: Sequence[HeardSpeech], kind: str, ablated: Heads, steps: _Steps
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
        steps.finish_one()
    return AblationRow(
        kind=kind,
        ablated=tuple(ablated),
        word_error_rate=wrong / total,
        log_probability=float(torch.cat(log_probabilities).mean()),
        error=compute_median(errors),
    )
