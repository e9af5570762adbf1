"""When each word of a transcript was spoken, from the cross-attention: a head that listens in time reads, for each
token, the moment of the audio at which its word begins.

    one forward pass of the decoder with the text -> weights of the timing heads, [token, 20 ms of audio], averaged
        -> a row for a pause before each word -> dynamic time warping -> the start of each word

The weights are used as they are: measured by ``bench/audio/word_times.py``, neither normalising them over tokens nor a
median filter over time reduces the error, but rows for pauses do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.audio.log_mel import FRAMES_PER_SECOND, HOP, RATE
from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.token_labels import REPLACEMENT, group_words
from jumok.errors import ArgumentError
from jumok.lens import Edit, Lens
from jumok.models.speech import FRAMES_PER_POSITION

from .audio_window import POSITIONS_PER_SECOND, compute_features, cut_features, require_speech
from .transcript import Segment, Transcript, Word

# A moment that no token gives a larger weight belongs to a pause.
PAUSE_WEIGHT = 0.02

# A word lasts until the next word, or until the audio is quiet for a while: at most 20% of the way from quiet to loud.
QUIET_POSITIONS = 5  # 100 ms; the closure of a plosive is shorter
QUIET_LEVEL = 0.2
QUIET_QUANTILE, LOUD_QUANTILE = 0.1, 0.9  # of the loudness of a window

# languages that write no spaces between words: here every character is a word
WITHOUT_SPACES = frozenset({"zh", "yue", "ja", "th", "lo", "my"})

SAMPLES_PER_POSITION = HOP * FRAMES_PER_POSITION

Heads = Sequence[tuple[int, int]]  # (decoder block, head)


def find_word_times(
    loaded: Loaded,
    samples: Float[Tensor, " sample"],
    transcript: Transcript,
    *,
    heads: Heads | None = None,
    edits: Edit | Sequence[Edit] = (),
) -> list[Word]:
    """Return the words of a transcript with their times.

    Args:
        loaded: The speech model that made the transcript.
        samples: The audio that was transcribed, mono, at 16,000 samples per second.
        heads: The cross-attention heads to use, as (decoder block, head). Default: those that the model's folder names
            as timing heads, or all.
        edits: Edits of the forward pass that reads the text.

    Returns:
        All words in order. No word begins before the one before it, and none lies outside the audio.
    """
    if heads is None:
        heads = list_timing_heads(loaded)
    windows = read_word_weights(loaded, samples, transcript, heads, edits)
    return [word for window in windows for word in _locate_words(window, transcript.duration)]


def align_words(
    weights: Float[Tensor, "token position"], words: Sequence[WordTokens], *, pauses: bool = True
) -> tuple[list[int], list[int]]:
    """Return the position of the audio at which each word begins, and the one at which the attention leaves it.

    The weights are those of the query that chooses each token, averaged over heads. Without ``pauses``, silence becomes
    a part of a word.
    """
    rows: list[Tensor] = []
    first_rows: list[int] = []
    next_rows: list[int] = []  # the row after the last spoken token: punctuation, a pause or the next word
    pause = [weights.new_full((weights.shape[1],), PAUSE_WEIGHT)] if pauses else []
    for word in words:
        rows += pause
        first_rows.append(len(rows))
        next_rows.append(len(rows) + word.spoken_stop - word.start)
        rows += list(weights[word.start : word.stop])
    row_starts = find_row_starts(torch.stack([*rows, *pause]))
    row_starts.append(weights.shape[1])  # after the last row
    return [row_starts[row] for row in first_rows], [row_starts[row] for row in next_rows]


def list_timing_heads(loaded: Loaded) -> Heads:
    """Return the cross-attention heads that the model's folder names as following the audio in time, or all heads."""
    model, tokens = require_speech(loaded)
    blocks, heads = model.config.decoder_layers, model.config.decoder_heads
    return tokens.timing_heads or [(block, head) for block in range(blocks) for head in range(heads)]


def _locate_words(window: WindowWeights, duration: float) -> list[Word]:
    """Return the words of a window with their times; the audio has ``duration`` seconds."""
    starts, attention_ends = align_words(window.weights.mean(0), window.words)
    ends = _find_ends(window.loudness, starts, attention_ends)
    words: list[Word] = []
    for word, segment, first, last in zip(window.words, window.segments, starts, ends, strict=True):
        start = round(window.start + first / POSITIONS_PER_SECOND, 2)
        end = min(round(window.start + last / POSITIONS_PER_SECOND, 2), duration)
        probability = float(window.log_probabilities[word.start : word.stop].mean().exp())
        token_ids = window.token_ids[word.start : word.stop]
        rows = range(window.first_row + word.start, window.first_row + word.stop)
        words.append(Word(word.text, start, end, token_ids, probability, segment, rows))
    return words


def _find_ends(loudness: Float[Tensor, " position"], starts: list[int], attention_ends: list[int]) -> list[int]:
    """Return the position at which each word ends: the next word begins, or the audio stays quiet after the attention
    has left the word. Heads that listen to the beginning of a word leave it early."""
    quiet, loud = loudness.quantile(torch.tensor([QUIET_QUANTILE, LOUD_QUANTILE])).tolist()
    is_quiet = (loudness <= quiet + QUIET_LEVEL * (loud - quiet)).tolist()
    ends: list[int] = []
    for start, attention_end, following in zip(starts, attention_ends, [*starts[1:], len(is_quiet)], strict=True):
        end = attention_end
        while end < following and not all(is_quiet[end : end + QUIET_POSITIONS]):
            end += 1
        ends.append(max(min(end, following), start + 1))
    return ends


class WordTokens(NamedTuple):
    """The tokens of a word."""

    text: str  # with its punctuation, without spaces around it
    start: int
    spoken_stop: int  # the position after its last token that is not punctuation
    stop: int  # the position after its last token


def group_spoken_words(tokenizer: TextTokenizer, ids: Sequence[int], language: str | None) -> list[WordTokens]:
    """Return the words of a text. Together they have all of its tokens; punctuation belongs to the word before it.

    Without a language the text is English.

    >>> from jumok.data.tokenizers.tokenizer import Tokenizer
    >>> for word in group_spoken_words(Tokenizer.for_bytes(), list(b"Yes - no."), None):
    ...     print(tuple(word))
    ('Yes -', 0, 3, 5)
    ('no.', 5, 8, 9)
    """
    is_split = language in WITHOUT_SPACES
    groups = _group_characters(tokenizer, ids) if is_split else [span for _, span in group_words(tokenizer, ids)]
    spans: list[range] = []
    for span in groups:
        is_word = _is_spoken(_decode(tokenizer, ids, span))
        follows_word = bool(spans) and _is_spoken(_decode(tokenizer, ids, spans[-1]))
        if spans and not (is_word and follows_word):  # punctuation joins the word before, or the first word
            spans[-1] = range(spans[-1].start, span.stop)
        else:
            spans.append(span)
    words: list[WordTokens] = []
    for span in spans:
        spoken = [position for position in span if _is_spoken(tokenizer.decode([ids[position]]))]
        text = _decode(tokenizer, ids, span).strip()
        if REPLACEMENT in text:  # an untrained model writes bytes that are no characters
            text = text.replace(REPLACEMENT, "") or "?"
        words.append(WordTokens(text, span.start, spoken[-1] + 1 if spoken else span.stop, span.stop))
    return words


def _group_characters(tokenizer: TextTokenizer, ids: Sequence[int]) -> list[range]:
    """Return the shortest groups of tokens that form complete characters."""
    spans: list[range] = []
    start = 0
    for stop in range(1, len(ids) + 1):
        if stop == len(ids) or REPLACEMENT not in _decode(tokenizer, ids, range(start, stop)):
            spans.append(range(start, stop))
            start = stop
    return spans


def _decode(tokenizer: TextTokenizer, ids: Sequence[int], span: range) -> str:
    return tokenizer.decode([ids[position] for position in span], special=False)


def _is_spoken(text: str) -> bool:
    """Return True if a text contains a letter, a digit, or a part of a character that needs several tokens."""
    return any(character.isalnum() or character == REPLACEMENT for character in text)


@dataclass(frozen=True, eq=False)
class WindowWeights:
    """The words of one window of audio, with the weights of their tokens."""

    start: float  # where the window begins, in seconds
    token_ids: tuple[int, ...]
    words: tuple[WordTokens, ...]
    segments: tuple[int, ...]  # the number of each word's segment in the transcript
    weights: Float[Tensor, "head token position"]  # of the query that chose each token, over 20 ms of real audio each
    log_probabilities: Float[Tensor, " token"]
    loudness: Float[Tensor, " position"]  # the mean of the log-mel bands
    first_row: int = 0  # the decoder's row that writes the first token


def read_word_weights(
    loaded: Loaded,
    samples: Float[Tensor, " sample"],
    transcript: Transcript,
    heads: Heads,
    edits: Edit | Sequence[Edit] = (),
) -> list[WindowWeights]:
    """Run the model once for each window with the text that it wrote, and return the exact weights."""
    model, _ = require_speech(loaded)
    if abs(transcript.duration - len(samples) / RATE) > 1 / POSITIONS_PER_SECOND:
        raise ArgumentError(
            f"the transcript is of {transcript.duration:.2f} s of audio, but {len(samples) / RATE:.2f} s are given"
        )
    blocks, count = model.config.decoder_layers, model.config.decoder_heads
    unknown = [(block, head) for block, head in heads if not (0 <= block < blocks and 0 <= head < count)]
    if unknown or not heads:
        reason = f"{unknown[0]} does not exist" if unknown else "none are given"
        raise ArgumentError(
            f"the timing heads are pairs (decoder block, head) from (0, 0) to ({blocks - 1}, {count - 1}); {reason}"
        )
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
    assert isinstance(loaded, Loaded)
    model, tokens = require_speech(loaded)
    config, start = model.config, segments[0][1].window
    window = cut_features(features, round(start * FRAMES_PER_SECOND), config.frame_count)
    positions = max(1, min(config.source_length, -(-round((stop - start) * RATE) // SAMPLES_PER_POSITION)))

    prompt = tokens.build_prompt(language, timestamps=False)
    ids = [token_id for _, segment in segments for token_id in segment.token_ids]
    capture = lens.run(window[None], [*prompt, *ids], edits=edits, logits=True)
    # The token at position i is chosen by the query at position i - 1, which is the one that listens to it.
    first_row = len(prompt) - 1
    queries, keys = slice(first_row, first_row + len(ids)), slice(0, positions)
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
        first_row=first_row,
    )


def find_row_starts(rewards: Float[Tensor, "row column"]) -> list[int]:
    """Assign the columns of a table to its rows, in order: return the column at which the best path enters each row.

    This is dynamic time warping (Sakoe and Chiba 1978, "Dynamic programming algorithm optimization for spoken word
    recognition").
    A path leads from the first cell of the first row to the last cell of the last row. Its steps go one column to the
    right, one row down, or both. The best path is the one with the largest sum of cells.

    >>> find_row_starts(torch.tensor([[5.0, 5.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0], [0.0, 0.0, 0.0, 5.0]]))
    [0, 2, 3]
    """
    cells = rewards.detach().to("cpu", torch.float64)
    nothing = cells.new_full((1,), -torch.inf)
    best = cells[0].cumsum(0)  # the largest sum of a path to each cell of the current row
    entries: list[Tensor] = []  # of each row after the first: the column where the best path to a cell enters the row
    is_diagonal: list[Tensor] = []
    for row in cells[1:]:
        # Inside a row, a path only goes to the right. So the best path to column j enters at the column k <= j with the
        # largest (best sum above k) - (cells before k), which is a running maximum: no loop over columns is needed.
        total = row.cumsum(0)
        from_left = torch.cat([nothing, best[:-1]])
        is_diagonal.append(from_left >= best)
        above = torch.maximum(from_left, best) - (total - row)
        largest, entry = above.cummax(0)
        entries.append(entry)
        best = total + largest

    starts = [0]
    column = cells.shape[1] - 1
    for entry, diagonal in zip(reversed(entries), reversed(is_diagonal), strict=True):
        column = int(entry[column])
        starts.insert(1, column)
        column -= int(diagonal[column])
    return starts
