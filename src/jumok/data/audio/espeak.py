"""Synthesise speech with espeak-ng, in English, Korean and many other languages. https://github.com/espeak-ng/espeak-ng

espeak-ng announces the sample at which each word begins. A few words have no such event, as they are spoken together
with the word before ("on the", "나는"); these words have no start here.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jumok.data.audio.utterance import SpokenWord, Utterance, check_speech_request, resample, seed_noise
from jumok.errors import ArgumentError

WORDS_PER_MINUTE = 175  # espeak-ng's own speed
VOICE_NAMES = {"en-gb": "en"}  # espeak-ng lists British English under the name "en"

# the numbers of speak_lib.h
SYNCHRONOUS_OUTPUT = 2
PHONEME_EVENTS = 0x0001
RETURN_ON_ERROR = 0x8000  # otherwise the library ends the process if its data is missing
TEXT_IS_UTF8 = 1
RATE_PARAMETER, PITCH_PARAMETER, PITCH_RANGE_PARAMETER = 1, 3, 4
LIST_END, WORD_EVENT, END_EVENT, PHONEME_EVENT = 0, 1, 5, 7

_lock = threading.Lock()  # the library keeps its state in global variables


class _Event(ctypes.Structure):
    """``espeak_EVENT``: something that happens at one sample of the sound."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),  # in characters, counted from 1
        ("length", ctypes.c_int),
        ("milliseconds", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("phoneme", ctypes.c_char * 8),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Event))


@dataclass
class _Recording:
    """What the library reports while it speaks."""

    pcm: bytearray = field(default_factory=bytearray)
    word_starts: list[tuple[int, int]] = field(default_factory=list)  # position in the text, from 0, and sample
    phonemes: list[int] = field(default_factory=list)
    silences: list[int] = field(default_factory=list)  # samples at which a pause begins, or a clause ends

    def record(self, samples: int | None, count: int, events: Any) -> int:
        """Store what the library passes to its callback; return 0, which means: continue."""
        if samples and count > 0:
            self.pcm += ctypes.string_at(samples, 2 * count)
        index = 0
        while events[index].type != LIST_END:
            event = events[index]
            if event.type == WORD_EVENT:
                self.word_starts.append((event.text_position - 1, event.sample))
            elif event.type == END_EVENT or (event.type == PHONEME_EVENT and event.phoneme.startswith(b"_")):
                self.silences.append(event.sample)
            elif event.type == PHONEME_EVENT:
                self.phonemes.append(event.sample)
            index += 1
        return 0


def speak(text: str, voice: str = "en-us", *, speed: float = 1.0, pitch: float = 1.0) -> Utterance:
    """Speak a text with espeak-ng.

    The same arguments always give the same samples, except for breathing variants such as f2, f3, f5 and whisper, for
    which espeak-ng reads memory that it did not set.

    A word's start is the sample at which espeak-ng begins the word. A vowel is heard within 4 ms of it, a fricative
    12 ms after it, and a voiceless plosive 49 ms after it, as the word starts with the silent closure. A word without
    an event has neither start nor end, and the word before has no end.

    Args:
        voice: A language, such as "en-us", "en-gb" or "ko", optionally with a variant: "en-us+f4", "ko+m3".
        speed: The factor on the usual speed of 175 words per minute, from 0.5 to 2.5.
        pitch: The factor on the voice's own pitch, from 0.5 to 1.9; the mean pitch follows it within about 10%.
    """
    check_speech_request(text, speed, pitch)
    text = " ".join(text.split())
    recording = _Recording()
    with _lock, _open_library() as (library, rate):
        _select_voice(library, voice)
        library.espeak_SetParameter(RATE_PARAMETER, round(WORDS_PER_MINUTE * speed), 0)
        library.espeak_SetParameter(PITCH_PARAMETER, round(50 + 50 * math.log2(pitch)), 0)
        library.espeak_SetParameter(PITCH_RANGE_PARAMETER, round(50 * pitch), 0)
        callback = _Callback(recording.record)
        library.espeak_SetSynthCallback(callback)
        seed_noise()
        encoded = text.encode() + b"\0"
        status = library.espeak_Synth(encoded, len(encoded), 0, 1, 0, TEXT_IS_UTF8, None, None)
    if status != 0 or not recording.pcm:
        raise ArgumentError(f"espeak-ng could not speak {text[:80]!r} (status {status})")
    words = _find_word_times(text, recording, rate)
    return Utterance(resample(bytes(recording.pcm), rate), words)


@contextmanager
def _open_library() -> Iterator[tuple[Any, int]]:
    """Load the library and give it with its sample rate; unload it afterwards.

    A loaded library keeps the phase of its slow pitch variation from one call to the next, also when it is initialised
    again, so that the second call would give other samples than the first. Loading takes a few milliseconds.
    """
    path, data_folder = _find_library()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ArgumentError(f"espeak-ng cannot be loaded ({error}); install it again") from None
    library.espeak_Synth.argtypes = (
        ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p,
        ctypes.c_void_p,
    )  # fmt: skip
    try:
        rate = library.espeak_Initialize(SYNCHRONOUS_OUTPUT, 0, data_folder, PHONEME_EVENTS | RETURN_ON_ERROR)
        if rate <= 0:
            raise ArgumentError("espeak-ng does not find its data; install it again")
        yield library, rate
        library.espeak_Terminate()
    finally:
        if sys.platform != "win32":
            import _ctypes

            _ctypes.dlclose(library._handle)


def _find_library() -> tuple[str, bytes | None]:
    """Return the path of the library, and the folder that holds its data; None = the one it was built with."""
    try:
        import espeakng_loader  # type: ignore[import-untyped]
    except ImportError:
        name = ctypes.util.find_library("espeak-ng")
        if name is None:
            raise ArgumentError(
                "espeak-ng is not installed; install it with: pip install espeakng-loader (or the package espeak-ng of "
                "your system)"
            ) from None
        return name, None
    return espeakng_loader.get_library_path(), str(Path(espeakng_loader.get_data_path()).parent).encode()


def _select_voice(library: Any, voice: str) -> None:
    language, _, variant = voice.partition("+")
    library.espeak_Info.restype = ctypes.c_char_p
    data_folder = ctypes.c_char_p()
    library.espeak_Info(ctypes.byref(data_folder))
    variants = Path((data_folder.value or b"").decode()) / "voices" / "!v"
    # espeak-ng ignores unknown variants
    if variant and variant not in {path.name for path in variants.iterdir()}:
        raise ArgumentError(f"espeak-ng has no voice variant {variant!r}; use for example f1, f4, m1 or m3")
    name = "+".join(part for part in (VOICE_NAMES.get(language, language), variant) if part)
    if library.espeak_SetVoiceByName(name.encode()) != 0:
        raise ArgumentError(f"espeak-ng has no voice {voice!r}; `espeak-ng --voices` lists them")


def _find_word_times(text: str, recording: _Recording, rate: int) -> tuple[SpokenWord, ...]:
    """Assign the word events to the words of the text, which are separated by single spaces."""
    words = text.split(" ")
    starts: list[int | None] = [None] * len(words)
    for position, sample in recording.word_starts:
        index = text.count(" ", 0, position)
        if starts[index] is None:  # a number or "and/or" has several events
            starts[index] = sample

    spoken: list[SpokenWord] = []
    for word, start, next_start in zip(words, starts, [*starts[1:], len(recording.pcm) // 2], strict=True):
        end = None
        if start is not None and next_start is not None:
            # pauses inside a word, as in "and/or", have phonemes behind them
            last_phoneme = max((sample for sample in recording.phonemes if start <= sample < next_start), default=start)
            silences = (sample for sample in recording.silences if last_phoneme < sample < next_start)
            end = min(silences, default=next_start)
        spoken.append(SpokenWord(word, None if start is None else start / rate, None if end is None else end / rate))
    return tuple(spoken)
