"""Read the cross-attention weights of the words of a transcript: where in the audio each of their tokens was heard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.audio.log_mel import FRAMES_PER_SECOND, HOP, RATE
from jumok.errors import ArgumentError
from jumok.lens import Edit, Lens
from jumok.models.speech import FRAMES_PER_POSITION, Speech

from .audio_window import POSITIONS_PER_SECOND
from .spoken_words import WordTokens, group_spoken_words
from .transcribe import compute_features
from .transcript import Segment, Transcript

SAMPLES_PER_POSITION = HOP * FRAMES_PER_POSITION

Heads = Sequence[tuple[int, int]]  # (decoder block, head)


@dataclass(frozen=True, eq=False)
class WindowWeights:
    """The words of one window of audio, with the weights of their tokens.

    Attributes:
        start: Where the window begins, in seconds.
        segments: The number of each word's segment in the transcript.
        weights: The weights of the query that chose each token, over the positions of 20 ms that are real audio.
        loudness: The mean of the log-mel bands in each position.
    """

    start: float
    token_ids: tuple[int, ...]
    words: tuple[WordTokens, ...]
    segments: tuple[int, ...]
    weights: Float[Tensor, "head token position"]
    log_probabilities: Float[Tensor, " token"]
    loudness: Float[Tensor, " position"]


def read_word_weights(
    loaded: Loaded,
    samples: Float[Tensor, " sample"],
    transcript: Transcript,
    heads: Heads,
    edits: Edit | Sequence[Edit] = (),
) -> list[WindowWeights]:
    """Run the model once for each window with the text that it wrote, and return the exact weights.

    Args:
        loaded: The speech model that made the transcript.
        samples: The audio that was transcribed, mono, at 16,000 samples per second.
        heads: The cross-attention heads, as (decoder block, head).

    Raises:
        ArgumentError: If the model does not transcribe audio, a head does not exist, or the transcript is of another
            recording.
    """
    model = loaded.model
    if not isinstance(model, Speech) or loaded.speech_tokens is None:
        raise ArgumentError(f"this {loaded.family} model reads {model.reads}; it has no words with times")
    if abs(transcript.duration - len(samples) / RATE) > 1 / POSITIONS_PER_SECOND:
        raise ArgumentError(
            f"the transcript is of {transcript.duration:.2f} s of audio, but {len(samples) / RATE:.2f} s are given"
        )
    _check_heads(model, heads)
    if not transcript.segments:
        return []

    features = compute_features(samples, model).to(model.device)
    windows = [list(window) for _, window in groupby(enumerate(transcript.segments), lambda pair: pair[1].window)]
    starts = [segments[0][1].window for segments in windows]
    stops = [*starts[1:], transcript.duration]
    with Lens(loaded) as lens:
        return [
            _read_window(lens, features, stop, segments, heads, edits, transcript.language)
            for segments, stop in zip(windows, stops, strict=True)
        ]


def _check_heads(model: Speech, heads: Heads) -> None:
    blocks, count = model.config.decoder_layers, model.config.decoder_heads
    unknown = [(block, head) for block, head in heads if not (0 <= block < blocks and 0 <= head < count)]
    if unknown or not heads:
        reason = f"{unknown[0]} does not exist" if unknown else "none are given"
        raise ArgumentError(
            f"the timing heads are pairs (decoder block, head) from (0, 0) to ({blocks - 1}, {count - 1}); {reason}"
        )


def _read_window(
    lens: Lens,
    features: Float[Tensor, "mel frame"],
    stop: float,
    segments: list[tuple[int, Segment]],
    heads: Heads,
    edits: Edit | Sequence[Edit],
    language: str | None,
) -> WindowWeights:
    """Read the weights of the segments that the model wrote for one window; the next window begins at ``stop``."""
    loaded = lens.loaded
    assert isinstance(loaded, Loaded) and isinstance(loaded.model, Speech) and loaded.speech_tokens is not None
    config, start = loaded.model.config, segments[0][1].window
    first = round(start * FRAMES_PER_SECOND)
    window = features[:, first : first + config.frame_count]
    window = functional.pad(window, (0, config.frame_count - window.shape[1]))
    positions = max(1, min(config.source_length, -(-round((stop - start) * RATE) // SAMPLES_PER_POSITION)))

    prompt = loaded.speech_tokens.build_prompt(language, timestamps=False)
    ids = [token_id for _, segment in segments for token_id in segment.token_ids]
    capture = lens.run(window[None], [*prompt, *ids], edits=edits, logits=True)
    # The token at position i is chosen by the query at position i - 1, which is the one that listens to it.
    queries, keys = slice(len(prompt) - 1, len(prompt) - 1 + len(ids)), slice(0, positions)
    weights = torch.stack([capture.tile(f"decoder.{block}.cross", head, queries, keys) for block, head in heads])
    log_probabilities = capture.logits[0, queries].float().log_softmax(-1)[range(len(ids)), ids]

    words: list[WordTokens] = []
    numbers: list[int] = []
    for number, segment in segments:
        offset = words[-1].stop if words else 0
        for word in group_spoken_words(loaded.require_tokenizer(), segment.token_ids, language):
            words.append(WordTokens(word.text, *(offset + position for position in word[1:])))
            numbers.append(number)
    frames = window[:, : FRAMES_PER_POSITION * positions].mean(0)
    return WindowWeights(
        start=start,
        token_ids=tuple(ids),
        words=tuple(words),
        segments=tuple(numbers),
        weights=weights.float().cpu(),
        log_probabilities=log_probabilities.cpu(),
        loudness=frames.unflatten(0, (-1, FRAMES_PER_POSITION)).mean(1).float().cpu(),
    )
