"""Prepare the clips of a run of ``listen``: synthesise words, or read the user's recordings, and store spectrograms."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from jumok.data.audio.audio_files import read_audio
from jumok.data.audio.log_mel import FRAMES_PER_SECOND, HOP, RATE, WINDOW
from jumok.data.readers.labelled_files import read_transcribed_audio
from jumok.errors import AudioError, DataError
from jumok.fields import choice, integer, optional
from jumok.models.speech import FRAMES_PER_POSITION, SpeechConfig
from jumok.recipes.recipe import Options, column_field, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.data_source import require_files, select_dataset
from jumok.recipes.shared.splits import split_by_key

from .spoken_words import LANGUAGES, select_voices
from .stored_clips import CLIPS_FILE, ClipLabel, StoredClips, compute_clip_frames, load_clips, store_clips
from .synthetic_clips import plan_random_clips, plan_reported_clips, render_clip, save_clip

PARTS = ("training", "validation", "held-out")
VALIDATION_CLIPS = 200  # synthesised
HELD_OUT = 0.1  # of the user's own clips; the synthesised ones have held-out voices
VALIDATION = 0.1  # of the user's own clips that are not held out
MAX_POSITIONS = 1500  # 30 seconds, as in Whisper
REPORT_EVERY = 1000  # clips between two messages
EXAMPLE_FILE = "example.wav"

LabelledFrames = Iterator[tuple[Tensor, ClipLabel]]


@dataclass(frozen=True)
class ListenOptions(Options):
    """Fields of the listen recipe."""

    with_data = ("language", "file", "transcript", "header")
    without_data = ("clips", "synthesisers")
    without_start = ("vocabulary",)

    clips: int = integer(8000, "number of synthesised training clips", 2)
    synthesisers: str = choice("both", ("both", "espeak"), "both: espeak-ng, and flite for English")
    masks: str = choice("yes", ("yes", "no"), "hide a few bands and moments of the training clips (SpecAugment)")
    vocabulary: int = integer(1000, "size of the vocabulary, learned on the transcripts", 256 + 3)
    language: str | None = optional(choice("en", LANGUAGES, "language of your recordings; None = the model needs none"))
    file: str | None = column_field("column of your table that has the names of the audio files")
    transcript: str | None = column_field("column of your table that has the transcripts")
    header: str = header_field()


def load_or_prepare_clips(request: TrainingRequest, config: SpeechConfig, seed: int) -> StoredClips:
    """Load the clips of the run; if there are none, prepare and store them."""
    select_dataset(request, None, ())  # refuses names of the catalogue
    path = request.folder / CLIPS_FILE
    if path.is_file():
        return load_clips(path)
    prepared = _read_recordings(request, config) if request.has_own_files else _synthesise(request, config, seed)
    return store_clips(path, prepared)


def _synthesise(request: TrainingRequest, config: SpeechConfig, seed: int) -> LabelledFrames:
    options = request.take_options(ListenOptions)
    voices = select_voices(options.synthesisers)
    seconds = config.frame_count / FRAMES_PER_SECOND
    plans = {
        "training": list(plan_random_clips("training", options.clips, seed, voices)),
        "validation": list(plan_random_clips("validation", min(VALIDATION_CLIPS, options.clips), seed, voices)),
        "held-out": list(plan_reported_clips("held-out", seed, voices)),
    }
    save_clip(request.folder / EXAMPLE_FILE, render_clip(plans["held-out"][0], seconds))
    count = 0
    for part, part_plans in plans.items():
        for plan in part_plans:
            frames = compute_clip_frames(render_clip(plan, seconds), config.frame_count, config.mel_bins)
            yield frames, ClipLabel(part, plan.text, plan.language, plan.kind)
            count += 1
            if count % REPORT_EVERY == 0:
                request.report(f"{count:,} of {sum(map(len, plans.values())):,} clips synthesised")


def _read_recordings(request: TrainingRequest, config: SpeechConfig) -> LabelledFrames:
    """Yield the user's clips, each in the part that the hash of its spectrogram decides."""
    options = request.take_options(ListenOptions)
    problems = request.create_problem_log()
    file_format = request.create_file_format(options.header)
    folder = require_files(request)
    # a new model gets a window that fits the longest clip; a given one keeps its own
    positions = MAX_POSITIONS if request.start is None else config.source_length
    limit = positions * FRAMES_PER_POSITION * HOP
    clips: list[tuple[Tensor, ClipLabel, Path]] = []
    for file, text in read_transcribed_audio(folder, problems, options.file, options.transcript, file_format):
        try:
            samples = read_audio(file)
        except AudioError as error:
            problems.report(str(file), str(error).removeprefix(f"{file} "))
            continue
        if not WINDOW <= len(samples) <= limit:
            length = f"{len(samples) / RATE:.2f} s long; clips of {WINDOW / RATE:g} to {limit / RATE:g} s can be used"
            problems.report(str(file), f"the recording is {length}")
            continue
        frames = compute_clip_frames(samples, positions * FRAMES_PER_POSITION, config.mel_bins)
        clips.append((frames, ClipLabel("training", text, options.language or ""), file))
        if len(clips) % REPORT_EVERY == 0:
            request.report(f"{len(clips):,} clips read")
    if problems.count:
        request.report(str(problems))
    if not clips:
        raise DataError(f"no recording could be read: {problems}")
    keys = [hashlib.sha256(frames.numpy().tobytes()).hexdigest() for frames, _, _ in clips]
    split = split_by_key(keys, HELD_OUT, VALIDATION)
    save_clip(request.folder / EXAMPLE_FILE, read_audio(clips[split.held_out[0]][2]))
    for part, indices in zip(PARTS, split, strict=True):
        for index in indices:
            frames, label, _ = clips[index]
            yield frames, replace(label, part=part)
