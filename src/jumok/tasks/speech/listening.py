"""Look at a speech model with a lens: when each word is spoken and where the model listens while it writes the word;
transcribe while edits change the model, and hide a stretch of audio from its attentions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.audio.log_mel import HOP, WINDOW
from jumok.errors import ArgumentError
from jumok.lens import Capture, Edit, KnockOut, Lens
from jumok.lens.edits.apply_edits import EditListener
from jumok.models.speech import FRAMES_PER_POSITION, Speech
from jumok.tap import listen

from .audio_window import POSITIONS_PER_SECOND
from .transcript import Segment, Transcript, Word
from .window_decoding import Features, WindowTranscript, transcribe_window
from .word_times import find_word_times, list_timing_heads

if TYPE_CHECKING:
    from jumok.tasks.labelled_input import LabelledInput

# Returns the weights [query, key] of some rows of a head: site, head, rows.
ReadRows = Callable[[str, int, range], Tensor]
Head = tuple[str, int]  # site of the cross-attention, head

# How far from its moment a position hears, in positions of 20 ms: the convolutions read two frames (20 ms) on either
# side, and the window of a frame reaches 12.5 ms further.
REACH = (2 * HOP + WINDOW / 2) / (FRAMES_PER_POSITION * HOP)


def list_timing_sites(loaded: Loaded) -> list[Head]:
    """Return the cross-attention heads that follow the audio in time, as word times use them; all if none is known."""
    return [(f"decoder.{block}.cross", head) for block, head in list_timing_heads(loaded)]


def compute_listening(
    read_rows: ReadRows, words: Sequence[range], heads: Sequence[Head]
) -> Float[Tensor, "word source"]:
    """Return where each word is heard: the mean weights of the rows that write its tokens, over some heads."""
    if not words:
        return torch.zeros(0, 0)
    rows = range(min(word.start for word in words), max(word.stop for word in words))
    mean = torch.stack([read_rows(site, head, rows).float().cpu() for site, head in heads]).mean(0)
    return torch.stack([mean[word.start - rows.start : word.stop - rows.start].mean(0) for word in words])


def read_capture_rows(capture: Capture) -> ReadRows:
    """Return a function that reads rows of a capture."""

    def read_rows(site: str, head: int, rows: range) -> Tensor:
        return capture.tile(site, head, slice(rows.start, rows.stop), slice(None))

    return read_rows


def measure_share(weights: Float[Tensor, " source"], start: float, end: float) -> float:
    """Return how much of a row's weight lies between two times."""
    first, last = round(start * POSITIONS_PER_SECOND), round(end * POSITIONS_PER_SECOND)
    return float(weights[first : max(last, first + 1)].sum())


def locate_words(loaded: Loaded, labelled: LabelledInput) -> list[Word]:
    """Return the words of a window's transcript, from ``prepare_input``, with their times; the model reads it again."""
    audio, target = labelled.audio, labelled.inputs[1][0].tolist()
    assert audio is not None
    if not labelled.answer_length:
        return []
    token_ids = tuple(target[labelled.prompt :])
    segment = Segment(0.0, audio.seconds, labelled.answer or "", token_ids, 0.0, 0.0, 0.0, None, 0.0)
    return find_word_times(loaded, audio.samples, Transcript((segment,), labelled.language, audio.seconds))


def transcribe_with_edits(
    lens: Lens, features: Features, edits: Sequence[Edit] = (), language: str | None = None
) -> WindowTranscript:
    """Return the transcript of one window while edits change the model; they hold for every token.

    Args:
        lens: An open lens on what ``jumok.load`` returned for a speech model.
        features: The spectrogram of the window, a batch of one: ``prepare_input(loaded, path).inputs[0]``.
        language: The code of the spoken language; None detects it under the edits.
    """
    loaded = lens.loaded
    if not isinstance(loaded, Loaded) or not isinstance(loaded.model, Speech):
        raise ArgumentError("a transcript needs a lens on a speech model: jumok.Lens(jumok.load(...))")
    features = features.to(loaded.model.device)
    if not edits:
        return transcribe_window(loaded, features, language)
    start = torch.tensor([[loaded.model.start_token]], device=features.device)
    listener = EditListener(edits, lens.find_sites(features, start), lens.model)
    with listen(listener):
        transcript = transcribe_window(loaded, features, language)
    listener.check_applied()
    return transcript


def hide_audio(model: Speech, start: float, end: float) -> list[KnockOut]:
    """Return edits that hide a stretch of audio: no attention of the encoder or to the encoder may read it.

    A position hears the audio 32.5 ms before and after its moment, through the spectrogram and the convolutions. All
    positions that hear something of the stretch are hidden, so that nothing in it can change the transcript, except
    the loudness of its loudest frame, which scales the spectrogram of the whole recording.

    ``start`` and ``end`` are in seconds from the start of the window.

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
