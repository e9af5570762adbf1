"""Synthesise English speech with flite. http://cmuflite.org

The library is used, not the command: it gives each phone of each word with its time, whereas the command prints phones
and words separately.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import threading
from collections.abc import Iterator
from typing import Any

from jumok.data.audio.utterance import SpokenWord, Utterance, check_speech_request, resample, seed_noise
from jumok.errors import ArgumentError

VOICES = ("slt", "awb", "rms", "kal")  # a woman and three men
FIXED_PITCH = ("rms",)  # its pitch does not follow flite's feature f0_shift

_lock = threading.Lock()  # the voices are global variables of the library
_loaded: dict[str, Any] = {}  # the library under "flite", and the registered voices

_Address = ctypes.c_void_p
# the functions of flite.h that are used here: the types of their results and of their arguments
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "flite_init": (ctypes.c_int, ()),
    "flite_synth_text": (_Address, (ctypes.c_char_p, _Address)),
    "delete_utterance": (None, (_Address,)),
    "feat_set_float": (None, (_Address, ctypes.c_char_p, ctypes.c_float)),
    "ffeature_float": (ctypes.c_float, (_Address, ctypes.c_char_p)),
    "utt_wave": (_Address, (_Address,)),
    "utt_relation": (_Address, (_Address, ctypes.c_char_p)),
    "relation_head": (_Address, (_Address,)),
    "item_next": (_Address, (_Address,)),
    "item_prev": (_Address, (_Address,)),
    "item_daughter": (_Address, (_Address,)),
    "item_as": (_Address, (_Address, ctypes.c_char_p)),
}


class _Wave(ctypes.Structure):
    """``cst_wave``: the samples of an utterance."""

    _fields_ = (
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("sample_count", ctypes.c_int),
        ("channel_count", ctypes.c_int),
        ("samples", ctypes.c_void_p),
    )


class _Voice(ctypes.Structure):
    """The beginning of ``cst_voice``."""

    _fields_ = (("name", ctypes.c_char_p), ("features", ctypes.c_void_p))


def speak(text: str, voice: str = "slt", *, speed: float = 1.0, pitch: float = 1.0) -> Utterance:
    """Speak an English text with flite. The same arguments always give the same samples.

    A word's start is the end of the phone before its first one. The voices build the sound by these times, in frames of
    5 ms (slt, awb, rms) or from recorded pieces (kal): a vowel after a pause is heard within 11 ms of its start (awb:
    30 ms). A word that begins with a plosive starts with the silent closure before it is heard.

    Args:
        pitch: The factor on the voice's own pitch, from 0.5 to 1.9; voice rms has only its own.
    """
    check_speech_request(text, speed, pitch)
    if not text.isascii():
        raise ArgumentError(f"flite speaks English only, in ASCII characters, not {text[:80]!r}")
    if voice not in VOICES:
        raise ArgumentError(f"unknown voice {voice!r} of flite; choose one of {', '.join(VOICES)}")
    if voice in FIXED_PITCH and pitch != 1:
        raise ArgumentError(f"flite cannot change the pitch of voice {voice}; leave out pitch")

    with _lock:
        library, address = _load_voice(voice)
        features = ctypes.cast(address, ctypes.POINTER(_Voice)).contents.features
        library.feat_set_float(features, b"duration_stretch", 1 / speed)
        library.feat_set_float(features, b"f0_shift", pitch)
        seed_noise()
        utterance = library.flite_synth_text(text.encode(), address)
        if not utterance:
            raise ArgumentError(f"flite could not speak {text[:80]!r}")
        try:
            wave = ctypes.cast(library.utt_wave(utterance), ctypes.POINTER(_Wave)).contents
            pcm, rate = ctypes.string_at(wave.samples, 2 * wave.sample_count), wave.sample_rate
            spans = list(_read_token_spans(library, utterance))
        finally:
            library.delete_utterance(utterance)
    words = text.split()
    if len(words) != len(spans):  # flite splits the text in another way
        spans = [(None, None)] * len(words)
    return Utterance(
        resample(pcm, rate), tuple(SpokenWord(word, *span) for word, span in zip(words, spans, strict=True))
    )


def _load_voice(voice: str) -> tuple[ctypes.CDLL, int]:
    """Return the library and the address of a voice, which stay loaded."""
    try:
        if "flite" not in _loaded:
            library = _load_library("flite")
            for name, (returned, arguments) in SIGNATURES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = returned, arguments
            library.flite_init()
            _loaded["flite"] = library
        if voice not in _loaded:
            register = getattr(_load_library(f"flite_cmu_us_{voice}"), f"register_cmu_us_{voice}")
            register.restype, register.argtypes = _Address, (ctypes.c_char_p,)
            _loaded[voice] = register(None)
    except OSError:
        raise ArgumentError(
            "flite is not installed; install the package flite of your system, for example with: apt install flite"
        ) from None
    return _loaded["flite"], _loaded[voice]


def _load_library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library(name) or f"lib{name}.so.1")


def _read_token_spans(library: ctypes.CDLL, utterance: int) -> Iterator[tuple[float, float] | tuple[None, None]]:
    """Yield the start and end of each token of the text, such as "25"; (None, None) for a token without phones."""
    for token in _list_nodes(library, library.relation_head(library.utt_relation(utterance, b"Token"))):
        phones = [
            library.item_as(phone, b"Segment")
            for word in _list_nodes(library, library.item_daughter(token))
            if (structure := library.item_as(word, b"SylStructure"))
            for syllable in _list_nodes(library, library.item_daughter(structure))
            for phone in _list_nodes(library, library.item_daughter(syllable))
        ]
        if not phones:
            yield None, None
            continue
        before = library.item_prev(phones[0])
        start = library.ffeature_float(before, b"end") if before else 0.0
        yield start, library.ffeature_float(phones[-1], b"end")


def _list_nodes(library: ctypes.CDLL, node: int | None) -> Iterator[int]:
    """Yield a node of an utterance and those after it."""
    while node:
        yield node
        node = library.item_next(node)
