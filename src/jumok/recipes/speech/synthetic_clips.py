"""Synthesise the clips of the recipe ``listen``: words in many voices, speeds and pitches, with silence and noise.

A clip is a pure function of its plan, and the plans are a pure function of the seed. Voices of validation and report
are never heard in training.
"""

from __future__ import annotations

import random
import tomllib
import wave
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data.audio.utterance import SPEEDS, SYNTHESIS_RATE
from jumok.data.audio.voices import Voice
from jumok.data.batches.batch_order import create_generator
from jumok.errors import ArgumentError
from jumok.files import replace_file

Samples = Float[Tensor, " sample"]

MAX_WORDS = 3  # in one clip
NOISE_ONLY = 0.04  # the share of training clips without speech
NOISY = 0.7  # the share of the other training clips that contain noise
REPORTED_NOISE = 10.0  # dB: the ratio of speech to noise in the noisy clips of the report
QUIET = 0.01  # of the peak: what is below it at both ends of an utterance is cut off
FRAME = SYNTHESIS_RATE // 100

VoicesByLanguage = Mapping[str, tuple[Voice, ...]]
_TABLES = tomllib.loads(Path(__file__).with_name("words_and_voices.toml").read_text(encoding="utf-8"))
WORDS: dict[str, tuple[str, ...]] = {language: tuple(words) for language, words in _TABLES["words"].items()}
SPOKEN_LANGUAGES = tuple(WORDS)
VOICES: dict[str, VoicesByLanguage] = {
    part: {language: tuple(Voice(*name.split(":")) for name in names) for language, names in by_language.items()}
    for part, by_language in _TABLES["voices"].items()
}


def select_voices(synthesisers: str) -> dict[str, VoicesByLanguage]:
    """Return the voices of each part and language."""
    return {
        part: {
            language: tuple(voice for voice in voices if synthesisers in ("both", voice.synthesiser))
            for language, voices in by_language.items()
        }
        for part, by_language in VOICES.items()
    }


@dataclass(frozen=True)
class ClipPlan:
    """How a clip is made."""

    name: str
    language: str
    text: str  # one or more words; "" = noise only
    voice: Voice
    speed: float = 1.0  # factor on the voice's own speed
    pitch: float = 1.0  # factor on its own pitch
    before: float = 0.2  # seconds of silence before the speech
    after: float = 0.2
    peak: float = 0.5  # the largest sample of the speech
    tilt: float = 0.0  # -1 to 1: how much high frequencies are weakened or strengthened, as by microphones and rooms
    bandwidth: float = SYNTHESIS_RATE / 2  # the highest frequency in Hz; old recordings have less than 4,000
    noise_ratio: float | None = None  # the power of speech over that of noise, in dB; None = no noise
    noise_colour: float = 1.0  # 0 = white noise, 1 = pink noise, whose power falls with frequency
    kind: str = ""  # what the report calls this clip; "" for training clips


def plan_random_clips(part: str, count: int, seed: int, voices: Mapping[str, VoicesByLanguage]) -> Iterator[ClipPlan]:
    """Yield the plans of training or validation clips: one to three random words each, half of the clips with one."""
    for index in range(count):
        name = f"{part} {seed} {index}"
        draw = random.Random(name)
        language = SPOKEN_LANGUAGES[index % len(SPOKEN_LANGUAGES)]
        word_count = draw.choice((1, 1, *range(2, MAX_WORDS + 1)))
        text = " ".join(draw.choice(WORDS[language]) for _ in range(word_count))
        is_silent = draw.random() < NOISE_ONLY
        is_noisy = is_silent or draw.random() < NOISY
        yield ClipPlan(
            name,
            language,
            "" if is_silent else text,
            draw.choice(voices[part][language]),
            speed=draw.uniform(0.7, 1.2),
            pitch=2 ** draw.uniform(-0.4, 0.85),
            before=draw.uniform(0.0, 0.5),
            after=draw.uniform(0.0, 0.5),
            peak=10 ** draw.uniform(-1.5, -0.05),
            tilt=draw.uniform(-0.6, 0.6),
            bandwidth=draw.choice((SYNTHESIS_RATE / 2, draw.uniform(3000.0, SYNTHESIS_RATE / 2))),
            noise_ratio=draw.uniform(0.0, 30.0) if is_noisy else None,
            noise_colour=draw.uniform(0.0, 1.5),
        )


def plan_reported_clips(part: str, seed: int, voices: Mapping[str, VoicesByLanguage]) -> Iterator[ClipPlan]:
    """Yield the plans of the report's clips: each word in each voice, as many sequences of three words, and noise.

    Each of them is planned twice, clean and noisy, with the same speech.
    """
    for language in SPOKEN_LANGUAGES:
        for voice in voices[part][language]:
            for word in WORDS[language]:
                name = f"{part} {seed} {voice.name} {word}"
                draw = random.Random(name)
                sequence = " ".join((word, *draw.sample(WORDS[language], MAX_WORDS - 1)))
                for text, kind in ((word, "one word"), (sequence, "three words")):
                    plan = ClipPlan(name, language, text, voice, speed=draw.uniform(0.8, 1.1), kind=f"{kind}, clean")
                    yield plan
                    yield replace(plan, noise_ratio=REPORTED_NOISE, kind=f"{kind}, noisy")


def render_clip(plan: ClipPlan, seconds: float) -> Samples:
    """Synthesise a clip at 16,000 samples per second. Speech that is longer than ``seconds`` is spoken faster."""
    limit = round(seconds * SYNTHESIS_RATE)
    before, after = round(plan.before * SYNTHESIS_RATE), round(plan.after * SYNTHESIS_RATE)
    speech = torch.zeros(min(limit, SYNTHESIS_RATE // 2))
    if plan.text:
        speech = _speak_within(plan, limit)
        speech = speech - plan.tilt * torch.nn.functional.pad(speech[:-1], (1, 0))  # y[t] = x[t] - tilt x[t - 1]
        speech = speech * (plan.peak / float(speech.abs().max()))
    spare = limit - len(speech)
    before = min(before, spare)
    after = min(after, spare - before)
    samples = torch.cat([torch.zeros(before), speech, torch.zeros(after)])
    if plan.noise_ratio is not None:
        noise = make_noise(len(samples), plan.noise_colour, f"noise {plan.name}")
        power = float(speech.square().mean()) if plan.text else (plan.peak / 4) ** 2
        samples = samples + noise * (power * 10 ** (-plan.noise_ratio / 10)) ** 0.5
    return limit_bandwidth(samples, plan.bandwidth).clamp(-1, 1)


def _speak_within(plan: ClipPlan, limit: int) -> Samples:
    """Return the speech of a plan in at most this many samples."""
    speed = plan.speed
    for _ in range(2):
        voice = replace(plan.voice, speed=speed, pitch=plan.pitch)
        speech = trim_silence(voice.speak(plan.text).samples)
        if len(speech) <= limit:
            return speech
        speed = min(SPEEDS[1], speed * 1.1 * len(speech) / limit)
    length = f"{len(speech) / SYNTHESIS_RATE:.1f} s long, but the model reads only {limit / SYNTHESIS_RATE:g} s"
    raise ArgumentError(f"{plan.text!r} is {length}; increase source_length")


def trim_silence(samples: Samples) -> Float[Tensor, " kept"]:
    """Cut off the silence at both ends, except for 10 ms."""
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    loud = (frames.abs().amax(1) > QUIET * samples.abs().max()).nonzero().flatten()
    if not len(loud):
        return samples
    return samples[max(0, int(loud[0]) - 1) * FRAME : (int(loud[-1]) + 2) * FRAME]


def make_noise(count: int, colour: float, name: str) -> Samples:
    """Return noise of power 1, whose power falls with the frequency to the power of ``colour``: 0 = white, 1 = pink."""
    white = torch.randn(count, generator=create_generator(name))
    spectrum = torch.fft.rfft(white)
    frequencies = torch.arange(len(spectrum)).clamp(min=1).float()
    noise = torch.fft.irfft(spectrum * frequencies.pow(-colour / 2), count)
    return noise / noise.square().mean().sqrt()


def limit_bandwidth(samples: Samples, bandwidth: float) -> Samples:
    """Remove all frequencies above a limit."""
    if bandwidth >= SYNTHESIS_RATE / 2:
        return samples
    spectrum = torch.fft.rfft(samples)
    spectrum[torch.fft.rfftfreq(len(samples), 1 / SYNTHESIS_RATE) > bandwidth] = 0
    return torch.fft.irfft(spectrum, len(samples))


def save_clip(path: Path, samples: Samples) -> None:
    """Write a clip as a WAV file, to try a trained model on."""
    with replace_file(path) as temporary, wave.open(str(temporary), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SYNTHESIS_RATE)
        file.writeframes((samples * 32767).round().to(torch.int16).numpy().astype("<i2").tobytes())
