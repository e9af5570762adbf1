"""Transcribe audio while edits change the model, and hide a stretch of audio from its attentions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from jumok.checkpoint import Loaded
from jumok.data.audio.log_mel import HOP, WINDOW
from jumok.errors import ArgumentError
from jumok.lens import Edit, KnockOut, Lens
from jumok.models.speech import FRAMES_PER_POSITION, Speech
from jumok.tap import listen

from .audio_window import POSITIONS_PER_SECOND
from .window_transcript import Features, WindowTranscript, transcribe_window

# How far from its moment a position hears, in positions of 20 ms: the convolutions read two frames (20 ms) on either
# side, and the window of a frame reaches 12.5 ms further.
REACH = (2 * HOP + WINDOW / 2) / (FRAMES_PER_POSITION * HOP)


def transcribe_with_edits(
    lens: Lens, features: Features, edits: Sequence[Edit] = (), language: str | None = None
) -> WindowTranscript:
    """Return the transcript of one window while edits change the model.

    Args:
        lens: An open lens on what ``jumok.load`` returned for a speech model.
        features: The spectrogram of the window, a batch of one: ``prepare_input(loaded, path).inputs[0]``.
        edits: The edits; they hold for every token. () transcribes without edits.
        language: The code of the spoken language; None detects it under the edits.

    Raises:
        ArgumentError: If the lens has no speech model, or an edit does not fit it.
    """
    loaded = lens.loaded
    if not isinstance(loaded, Loaded) or not isinstance(loaded.model, Speech):
        raise ArgumentError("a transcript needs a lens on a speech model: jumok.Lens(jumok.load(...))")
    features = features.to(loaded.model.device)
    if not edits:
        return transcribe_window(loaded, features, language)
    start = torch.tensor([[loaded.model.start_token]], device=features.device)
    listener = lens.create_edit_listener(edits, lens.find_sites(features, start))
    with listen(listener):
        transcript = transcribe_window(loaded, features, language)
    listener.check_applied()
    return transcript


def hide_audio(model: Speech, start: float, end: float) -> list[KnockOut]:
    """Return edits that hide a stretch of audio: no attention of the encoder or to the encoder may read it.

    A position hears the audio 32.5 ms before and after its moment, through the spectrogram and the convolutions. All
    positions that hear something of the stretch are hidden, so that nothing in it can change the transcript, except
    the loudness of its loudest frame, which scales the spectrogram of the whole recording.

    Args:
        start: Where the stretch begins, in seconds from the start of the window.

    Raises:
        ArgumentError: If the stretch is empty, or not inside the window.

    >>> from jumok.models.speech import SpeechConfig
    >>> sizes = dict(width=4, heads=1, decoder_heads=1, hidden=4, decoder_hidden=4, vocabulary=7, start=1, end=2, pad=2)
    >>> for edit in hide_audio(Speech(SpeechConfig(layers=1, decoder_layers=1, **sizes)), 0.5, 0.56):
    ...     print(edit.layer, edit.key)
    encoder.0.attention (24, 25, 26, 27, 28, 29)
    decoder.0.cross (24, 25, 26, 27, 28, 29)
    """
    length = model.config.source_length
    if not 0 <= start < end <= length / POSITIONS_PER_SECOND:
        raise ArgumentError(
            f"a stretch of audio must lie between 0 and {length / POSITIONS_PER_SECOND:g} seconds, not from {start:g} "
            f"to {end:g}"
        )
    first = max(0, math.floor(start * POSITIONS_PER_SECOND - REACH) + 1)
    last = min(length, math.ceil(end * POSITIONS_PER_SECOND + REACH))
    sites = [f"encoder.{block}.attention" for block in range(model.config.layers)]
    sites += [f"decoder.{block}.cross" for block in range(model.config.decoder_layers)]
    return [KnockOut(layer=site, key=range(first, last)) for site in sites]
