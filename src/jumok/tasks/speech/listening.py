"""When each word of a transcript is spoken, and where the cross-attention of the rows that write it listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.lens import Capture
from jumok.models.speech import Speech

from .audio_window import POSITIONS_PER_SECOND
from .transcript import Segment, Transcript
from .word_times import find_word_times

if TYPE_CHECKING:
    from jumok.tasks.labelled_input import LabelledInput

# Returns the weights [query, key] of some rows of a head: site, head, rows.
ReadRows = Callable[[str, int, range], Tensor]
Head = tuple[str, int]  # site of the cross-attention, head


@dataclass(frozen=True)
class HeardWord:
    """A word of a transcript, and when it is spoken.

    Args:
        rows: The decoder's rows that write its tokens: each writes the token after the one that it read.
        start: Where it begins, in seconds from the start of the window.
    """

    text: str
    rows: range
    start: float
    end: float


def list_timing_heads(loaded: Loaded) -> list[Head]:
    """Return the cross-attention heads that follow the audio in time, as word times use them; all if none is known.

    Raises:
        ArgumentError: If the model is not a speech model.
    """
    model = loaded.model
    if not isinstance(model, Speech):
        raise ArgumentError(f"this {loaded.family} model reads {model.reads}, not audio")
    blocks, heads = model.config.decoder_layers, model.config.decoder_heads
    tokens = loaded.speech_tokens
    measured = () if tokens is None else tokens.timing_heads
    chosen = [(block, head) for block, head in measured if block < blocks and head < heads]
    chosen = chosen or [(block, head) for block in range(blocks) for head in range(heads)]
    return [(f"decoder.{block}.cross", head) for block, head in chosen]


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


def locate_words(loaded: Loaded, labelled: LabelledInput) -> list[HeardWord]:
    """Return the words of a transcript with their times; the model reads the window once more.

    Args:
        labelled: A window of audio with its transcript, as ``prepare_input`` returns it.
    """
    audio, target = labelled.audio, labelled.inputs[1][0].tolist()
    assert audio is not None
    if not labelled.answer_length:
        return []
    token_ids = tuple(target[labelled.prompt :])
    segment = Segment(0.0, audio.seconds, labelled.answer or "", token_ids, 0.0, 0.0, 0.0, None, 0.0)
    words = []
    first = labelled.prompt - 1  # the row that writes the next token
    for word in find_word_times(loaded, audio.samples, Transcript((segment,), labelled.language, audio.seconds)):
        words.append(HeardWord(word.text, range(first, first + len(word.token_ids)), word.start, word.end))
        first += len(word.token_ids)
    return words
