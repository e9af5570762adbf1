"""The clips of a run of ``listen``: synthesised words or the user's recordings, stored as log-mel spectrograms, and
their transcripts as tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Float16
from torch import Tensor

from jumok.data.audio.audio_files import read_audio
from jumok.data.audio.log_mel import FRAMES_PER_SECOND, HOP, RATE, WINDOW, compute_log_mel
from jumok.data.batches.batch_order import create_generator
from jumok.data.readers.labelled_files import read_transcribed_audio
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import AudioError, DataError
from jumok.fields import choice, integer, optional
from jumok.models import Model
from jumok.models.speech import FRAMES_PER_POSITION, Speech, SpeechConfig
from jumok.recipes.recipe import Options, column_field, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.seq2seq import create_seq2seq_batch, generate_from_tensors
from jumok.recipes.shared.splits import PARTS, hash_tensors, split_by_key
from jumok.recipes.shared.stored_data import load_tensors, save_tensors
from jumok.training import IGNORE_INDEX, Batch

from . import synthetic_clips

CLIPS_FILE = "clips.safetensors"
EXAMPLE_FILE = "example.wav"
VALIDATION_CLIPS = 200  # synthesised
HELD_OUT = 0.1  # of the user's own clips; the synthesised ones have held-out voices
VALIDATION = 0.1  # of the user's own clips that are not held out
MAX_POSITIONS = 1500  # 30 seconds, as in Whisper
REPORT_EVERY = 1000  # clips between two messages
FREQUENCY_MASK, TIME_MASK = 0.15, 0.04  # the largest masks, as shares of all bands and of all frames
MASKS = 1  # of each kind
SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<|startoftranscript|>", "end": "<|endoftext|>"}

Features = Float[Tensor, "clip mel frame"]


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
    language: str | None = optional(
        choice("en", synthetic_clips.SPOKEN_LANGUAGES, "language of your recordings; None = the model needs none")
    )
    file: str | None = column_field("column of your table that has the names of the audio files")
    transcript: str | None = column_field("column of your table that has the transcripts")
    header: str = header_field()


@dataclass(frozen=True)
class ClipLabel:
    """What a clip is."""

    part: str  # "training", "validation" or "held-out"
    text: str  # what is spoken; "" = nothing
    language: str = ""  # the code; "" = not known
    kind: str = ""  # what the report calls it; "" for most


@dataclass(frozen=True, eq=False)
class StoredClips:
    """Spectrograms of clips, one after the other."""

    frames: Float16[Tensor, "frame mel"]
    starts: tuple[int, ...]  # the first frame of each clip, and behind them the number of all frames
    labels: tuple[ClipLabel, ...]

    def list_part(self, part: str) -> list[int]:
        """Return the indices of the clips of a part."""
        return [index for index, label in enumerate(self.labels) if label.part == part]

    def get_texts(self, indices: Iterable[int]) -> list[str]:
        """Return what is spoken in some clips."""
        return [self.labels[index].text for index in indices]

    def get_clip(self, index: int) -> Float[Tensor, "mel frame"]:
        """Return the spectrogram of a clip, without the silence that fills a window."""
        return self.frames[self.starts[index] : self.starts[index + 1]].float().T

    def build_features(self, indices: Sequence[int], frame_count: int) -> Features:
        """Return spectrograms in windows of equal length; the rest of a window is silent."""
        clips = [self.get_clip(index)[:, :frame_count] for index in indices]
        features = torch.empty(len(clips), self.frames.shape[1], frame_count)
        for row, clip in zip(features, clips, strict=True):
            row.fill_(clip.min())  # the last frames of a stored clip are silent
            row[:, : clip.shape[1]] = clip
        return features

    def compute_fingerprint(self) -> str:
        """Return a short hash of the spectrograms and what they are."""
        digest = hashlib.sha256(self.frames.numpy().tobytes())
        labels = [asdict(label) for label in self.labels]
        digest.update(json.dumps(labels, ensure_ascii=False).encode())
        return digest.hexdigest()[:16]


def compute_clip_frames(
    samples: Float[Tensor, " sample"], frame_count: int, mel_bins: int
) -> Float16[Tensor, "frame mel"]:
    """Return the spectrogram of a clip as a model reads it in a window, up to the first frames of silence behind it."""
    window = torch.nn.functional.pad(samples, (0, frame_count * HOP - len(samples)))
    last = min(frame_count, -(-len(samples) // HOP) + 3)  # frames that a window of 25 ms can reach, and a silent one
    return compute_log_mel(window, mel_bins)[:, :last].T.half()


def store_clips(path: Path, clips: Iterable[tuple[Tensor, ClipLabel]]) -> StoredClips:
    """Write spectrograms into a file."""
    pairs = list(clips)
    starts = [0]
    for frames, _ in pairs:
        starts.append(starts[-1] + len(frames))
    stored = StoredClips(torch.cat([frames for frames, _ in pairs]), tuple(starts), tuple(label for _, label in pairs))
    tensors = {"frames": stored.frames, "starts": torch.tensor(starts)}
    save_tensors(path, tensors, labels=[asdict(label) for label in stored.labels])
    return stored


def load_clips(path: Path) -> StoredClips:
    """Read what ``store_clips`` wrote."""

    def parse(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> StoredClips:
        labels = tuple(ClipLabel(**row) for row in metadata["labels"])
        starts = tuple(tensors["starts"].tolist())
        if len(starts) != len(labels) + 1 or starts[-1] != len(tensors["frames"]):
            raise ValueError("its parts do not fit together")
        return StoredClips(tensors["frames"], starts, labels)

    return load_tensors(path, parse)


def sample_masks(count: int, seed: int, step: int) -> Float[Tensor, "clip kind mask 2"]:
    """Draw the masks of a step's clips, numbers from 0 to 1, as a pure function of seed and step."""
    return torch.rand(count, 2, MASKS, 2, generator=create_generator(f"masks {seed} {step}"))


def mask_features(features: Features, masks: Float[Tensor, "clip kind mask 2"]) -> Features:
    """Replace a few bands and a few moments of each spectrogram by its mean (Park et al. 2019, "SpecAugment").

    Args:
        masks: For bands and for moments, the size and the position of each mask, from 0 to 1.
    """
    means = features.mean((1, 2), keepdim=True)
    for kind, (axis, share) in enumerate(((1, FREQUENCY_MASK), (2, TIME_MASK))):
        length = features.shape[axis]
        sizes = masks[:, kind, :, 0] * share * length
        firsts = masks[:, kind, :, 1] * (length - sizes)
        positions = torch.arange(length)[None, None]
        covered = ((positions >= firsts[..., None]) & (positions < (firsts + sizes)[..., None])).any(1)
        covered = covered[:, :, None] if axis == 1 else covered[:, None, :]
        features = torch.where(covered, means, features)
    return features


def load_or_prepare_clips(
    request: TrainingRequest, options: ListenOptions, config: SpeechConfig, seed: int
) -> StoredClips:
    """Load the clips of the run; if there are none, prepare and store them."""
    request.select_dataset(None, ())  # refuses names of the catalogue
    path = request.folder / CLIPS_FILE
    if path.is_file():
        return load_clips(path)
    if request.has_own_files:
        return store_clips(path, _read_recordings(request, options, config))
    return store_clips(path, _synthesise(request, options, config, seed))


def _synthesise(
    request: TrainingRequest, options: ListenOptions, config: SpeechConfig, seed: int
) -> Iterator[tuple[Tensor, ClipLabel]]:
    voices = synthetic_clips.select_voices(options.synthesisers)
    seconds = config.frame_count / FRAMES_PER_SECOND
    plans = {
        "training": list(synthetic_clips.plan_random_clips("training", options.clips, seed, voices)),
        "validation": list(
            synthetic_clips.plan_random_clips("validation", min(VALIDATION_CLIPS, options.clips), seed, voices)
        ),
        "held-out": list(synthetic_clips.plan_reported_clips("held-out", seed, voices)),
    }
    synthetic_clips.save_clip(request.folder / EXAMPLE_FILE, synthetic_clips.render_clip(plans["held-out"][0], seconds))
    pairs = [(part, plan) for part in plans for plan in plans[part]]
    for count, (part, plan) in enumerate(pairs, 1):
        frames = compute_clip_frames(synthetic_clips.render_clip(plan, seconds), config.frame_count, config.mel_bins)
        yield frames, ClipLabel(part, plan.text, plan.language, plan.kind)
        if count % REPORT_EVERY == 0:
            request.show_message(f"{count:,} of {len(pairs):,} clips synthesised")


def _read_recordings(
    request: TrainingRequest, options: ListenOptions, config: SpeechConfig
) -> Iterator[tuple[Tensor, ClipLabel]]:
    """Yield the user's clips, each in the part that the hash of its spectrogram decides."""
    problems = request.create_problem_log()
    file_format = request.create_file_format(options.header)
    folder = request.require_files()
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
            request.show_message(f"{len(clips):,} clips read")
    request.show_problems(problems)
    if not clips:
        raise DataError(f"no recording could be read: {problems}")
    split = split_by_key(hash_tensors(frames for frames, _, _ in clips), HELD_OUT, VALIDATION)
    synthetic_clips.save_clip(request.folder / EXAMPLE_FILE, read_audio(clips[split.held_out[0]][2]))
    for part, indices in zip(PARTS, split, strict=True):
        for index in indices:
            frames, label, _ = clips[index]
            yield frames, replace(label, part=part)


def build_speech_tokens(tokenizer: Tokenizer, languages: Sequence[str]) -> SpeechTokens:
    """Return the special tokens of a new model, which writes no times."""
    assert tokenizer.begin is not None and tokenizer.end is not None
    ids = {code: tokenizer.encode(f"<|{code}|>", special=False)[0] for code in languages}
    return SpeechTokens(tokenizer.begin, tokenizer.end, ids)


@dataclass(frozen=True)
class ClipTexts:
    """The tokens of transcripts. ``language`` is that of all clips; None = each has its own, or the model has none."""

    tokenizer: Tokenizer
    speech_tokens: SpeechTokens
    language: str | None = None

    def encode(self, label: ClipLabel) -> list[int]:
        """Return the prompt, the transcript and the end."""
        prompt = self.speech_tokens.build_prompt(label.language or None, timestamps=False)
        return [*prompt, *self.tokenizer.encode(label.text, special=False), self.speech_tokens.end]

    def create_batch(self, features: Features, sequences: Sequence[list[int]]) -> Batch:
        """Return a batch for training: the decoder predicts the language, the transcript and the end.

        Clips without speech have no language: only their end is to be predicted.
        """
        start, pad = self.speech_tokens.start, self.speech_tokens.end
        special = {start, *self.speech_tokens.languages.values()}
        targets = [sequence[1:] for sequence in sequences]
        answers = [
            [IGNORE_INDEX] * (len(target) - 1) + target[-1:] if special.issuperset(target[:-1]) else target
            for target in targets
        ]
        return create_seq2seq_batch({"source": features}, targets, start, pad, answers)

    def transcribe(self, model: Model, features: Features) -> list[str]:
        """Transcribe clips by greedy decoding; the model hears the language itself, unless all clips have one."""
        assert isinstance(model, Speech)
        prompt = [self.speech_tokens.start]
        if self.language is not None or not self.speech_tokens.languages:
            prompt = self.speech_tokens.build_prompt(self.language, timestamps=False)
        limit = model.context_length - len(prompt)
        answers = generate_from_tensors(model, features, limit, self.speech_tokens.end, prompt)
        return [self.tokenizer.decode(answer, special=False).strip() for answer in answers]
