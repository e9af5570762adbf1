"""Compare transcription with transformers on the same weights and recordings. Run: python bench/audio/speech.py

Three questions, each with its option; without one, all are answered:

    --equality   is the text the one that transformers' generate gives? greedy and with five beams, and long audio
    --accuracy   word error rate with Whisper's English normaliser, in float32 and in 8 bits
    --speed      interleaved runs, ratios of seconds, in float32 and in 8 bits

Whisper tiny.en and the recordings come from the catalogue: jumok data get whisper-tiny-en librivox-clips praatio-clips
mfa-recordings asterisk-sounds.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jiwer
import torch
from torch import Tensor
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

import jumok
from jumok.checkpoint import Loaded
from jumok.data import catalogue
from jumok.data.audio.audio_files import read_audio
from jumok.data.audio.log_mel import RATE
from jumok.data.datasets.speech_recordings import list_recordings
from jumok.generate import quantize
from jumok.tasks.speech import TranscriptionSettings, transcribe
from measure import compare_interleaved

WINDOW_SECONDS = 30
#: entry of the catalogue -> which of its recordings: every n-th
RECORDINGS = {"librivox-clips": 1, "praatio-clips": 1, "mfa-recordings": 1, "asterisk-sounds": 14}
#: no second attempt, as transformers decodes by default
ONCE: dict[str, Any] = {
    "temperatures": (),
    "least_log_probability": None,
    "greatest_compression": None,
    "greatest_no_speech": None,
    "certain_no_speech": None,
}


@dataclass(frozen=True)
class Clip:
    """A recording in memory."""

    entry: str
    samples: Tensor
    text: str

    @property
    def seconds(self) -> float:
        """The length of the recording."""
        return len(self.samples) / RATE


class TransformersReference:
    """Whisper of transformers with the parameters of our model."""

    def __init__(self, loaded: Loaded) -> None:
        with tempfile.TemporaryDirectory() as folder:
            jumok.save(loaded, Path(folder) / "whisper", format="huggingface")
            self.model = WhisperForConditionalGeneration.from_pretrained(Path(folder) / "whisper").eval()
        self.extractor = WhisperFeatureExtractor()
        self.tokenizer = loaded.require_tokenizer()

    def transcribe(self, samples: Tensor, beams: int = 1) -> str:
        """Return the text of up to 30 seconds."""
        features = self.extractor(samples.numpy(), sampling_rate=RATE, return_tensors="pt")["input_features"]
        with torch.inference_mode():
            (tokens,) = self.model.generate(features, num_beams=beams, do_sample=False).tolist()
        return self.tokenizer.decode(tokens, special=False).strip()

    def transcribe_long(self, samples: Tensor, beams: int = 1) -> str:
        """Return the text of audio of any length, with times."""
        settings = {"truncation": False, "padding": "longest", "return_attention_mask": True}
        inputs = self.extractor(samples.numpy(), sampling_rate=RATE, return_tensors="pt", **settings)
        with torch.inference_mode():
            (tokens,) = self.model.generate(
                inputs["input_features"],
                attention_mask=inputs["attention_mask"],
                return_timestamps=True,
                num_beams=beams,
                do_sample=False,
            ).tolist()
        return self.tokenizer.decode(tokens, special=False).strip()


def load_clips() -> list[Clip]:
    """Return the English recordings whose text is known."""
    clips = []
    for entry, step in RECORDINGS.items():
        for recording in list_recordings(entry)[::step]:
            if recording.language == "en":
                clips.append(Clip(entry, read_audio(recording.path), recording.text))
    return clips


def join_sentences(clips: list[Clip]) -> Tensor:
    """Return the five sentences of the audio book twice in a row, which is longer than a window."""
    return torch.cat([clip.samples for clip in clips if clip.entry == "librivox-clips"] * 2)


def split_words(text: str) -> list[str]:
    """Return the words of a text, without points that stand alone: transformers keeps segments of them, we do not."""
    return [word for word in text.split() if any(letter.isalnum() for letter in word)]


def transcribe_plain(loaded: Loaded, samples: Tensor, beams: int = 1) -> str:
    """Return our text as transformers decodes by default: without times up to 30 seconds, and once."""
    is_long = len(samples) > WINDOW_SECONDS * RATE
    return transcribe(loaded, samples, TranscriptionSettings(timestamps=is_long, beams=beams, **ONCE)).text


def report_equality(loaded: Loaded, reference: TransformersReference, clips: list[Clip]) -> list[dict[str, Any]]:
    """Count equal texts."""
    short = [clip.samples for clip in clips if clip.seconds <= WINDOW_SECONDS]
    long = [clip.samples for clip in clips if clip.seconds > WINDOW_SECONDS]
    long.append(join_sentences(clips))
    long.append(torch.cat([clip.samples for clip in clips if clip.entry == "asterisk-sounds"][:20]))
    rows = []
    for title, audio, theirs, beams in (
        ("up to 30 s, greedy", short, reference.transcribe, 1),
        ("up to 30 s, 5 beams", short, reference.transcribe, 5),
        ("longer, greedy", long, reference.transcribe_long, 1),
        ("longer, 5 beams", long, reference.transcribe_long, 5),
    ):
        texts = [(transcribe_plain(loaded, samples, beams), theirs(samples, beams)) for samples in audio]
        different = [pair for pair in texts if split_words(pair[0]) != split_words(pair[1])]
        rows.append({"audio": title, "equal": len(texts) - len(different), "of": len(texts), "different": different})
        print(f"{title}: {rows[-1]['equal']} of {len(texts)} texts are equal", flush=True)
        for ours, reference_text in different:
            print(f"  ours   {ours}\n  theirs {reference_text}")
    return rows


def report_accuracy(models: dict[str, Loaded], clips: list[Clip]) -> list[dict[str, Any]]:
    """Compute word error rates with the default settings."""
    spellings = catalogue.locate_entry("whisper-tiny-en")
    assert spellings is not None
    normalise = EnglishTextNormalizer(json.loads((spellings / "openai-whisper" / "spellings.json").read_text()))
    rows = []
    for entry in RECORDINGS:
        chosen = [clip for clip in clips if clip.entry == entry]
        expected = [normalise(clip.text) for clip in chosen]
        rows_of_table = [(name, loaded, TranscriptionSettings()) for name, loaded in models.items()]
        rows_of_table.append(("float32, without times", models["float32"], TranscriptionSettings(timestamps=False)))
        for name, loaded, settings in rows_of_table:
            actual = [normalise(transcribe(loaded, clip.samples, settings).text) for clip in chosen]
            rate = 100 * jiwer.wer(expected, actual)
            rows.append({"recordings": entry, "model": name, "clips": len(chosen), "word error rate": rate})
            print(f"{entry}, {len(chosen)} recordings, {name}: word error rate {rate:.1f}%", flush=True)
    return rows


def report_speed(
    models: dict[str, Loaded], reference: TransformersReference, clips: list[Clip], rounds: int
) -> list[dict[str, Any]]:
    """Time our models and transformers in alternation."""
    sentences = [clip.samples for clip in clips if clip.entry == "librivox-clips"]
    joined = join_sentences(clips)
    rows = []
    for title, audio, theirs in (
        ("five sentences", sentences, reference.transcribe),
        (f"{len(joined) / RATE:.0f} s at once", [joined], reference.transcribe_long),
    ):
        for name, loaded in models.items():
            times = compare_interleaved(
                partial(_run_all, partial(transcribe_plain, loaded), audio), partial(_run_all, theirs, audio), rounds
            )
            rows.append({"audio": title, "model": name, **times})
            print(
                f"{title}, {name}: {times['ratio']:.2f}x [{times['low']:.2f}, {times['high']:.2f}]  ours "
                f"{times['ours']:.2f} s, theirs {times['theirs']:.2f} s",
                flush=True,
            )
    return rows


def _run_all(function: Any, audio: list[Tensor]) -> None:
    for samples in audio:
        function(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for question in ("equality", "accuracy", "speed"):
        parser.add_argument(f"--{question}", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, help="threads of PyTorch (default: its own choice)")
    parser.add_argument("--json", action="store_true", help="print JSON at the end")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    logging.getLogger("transformers").setLevel(logging.ERROR)

    everything = not (options.equality or options.accuracy or options.speed)
    loaded = jumok.load("whisper-tiny-en")
    reference = TransformersReference(loaded)
    models = {"float32": loaded, "int8": replace(loaded, model=quantize(loaded.model))}
    clips = load_clips()
    report: dict[str, Any] = {}
    if options.equality or everything:
        report["equality"] = report_equality(loaded, reference, clips)
    if options.accuracy or everything:
        report["accuracy"] = report_accuracy(models, clips)
    if options.speed or everything:
        report["speed"] = report_speed(models, reference, clips, options.rounds)
    if options.json:
        print(json.dumps(report, ensure_ascii=False))


if __name__ == "__main__":
    main()
