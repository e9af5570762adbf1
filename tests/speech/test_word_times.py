"""Tests of word times: on weights whose answer is known, on a small random model, and on the catalogue's Whisper."""

from __future__ import annotations

import ctypes.util
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import torch
from small_whisper import save_whisper
from torch import Tensor

import jumok
from catalogue_cache import download_or_skip
from jumok.checkpoint import Loaded
from jumok.checkpoint.conversion import find_converted_folder
from jumok.checkpoint.openai_whisper import TIMING_HEADS
from jumok.data.audio import flite
from jumok.data.audio.log_mel import compute_log_mel
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.lens import Ablate
from jumok.tasks.speech import Segment, Transcript, find_word_times, transcribe
from jumok.tasks.speech.word_times import WordTokens, align_words, group_spoken_words

RATE = 16_000


def make_weights(peaks: list[tuple[int, int]], positions: int) -> Tensor:
    """Return weights of tokens that each listen to one stretch of the audio, with little elsewhere."""
    weights = torch.full((len(peaks), positions), 0.001)
    for row, (start, stop) in enumerate(peaks):
        weights[row, start:stop] = 0.2
    return weights


def test_words_begin_where_their_tokens_listen_and_not_in_the_pause_before() -> None:
    weights = make_weights([(11, 17), (17, 23), (41, 47)], 61)
    words = [WordTokens("a", 0, 2, 2), WordTokens("b", 2, 3, 3)]
    # a pause shares its first position with the word before
    assert align_words(weights, words) == ([11, 41], [22, 46])


def test_punctuation_that_listens_to_the_pause_is_not_spoken() -> None:
    weights = make_weights([(5, 11), (11, 29), (31, 37)], 41)
    words = [WordTokens("a,", 0, 1, 2), WordTokens("b", 2, 3, 3)]
    assert align_words(weights, words) == ([5, 31], [11, 36])


def test_without_pauses_silence_belongs_to_a_word() -> None:
    weights = make_weights([(11, 17), (41, 47)], 61)
    words = [WordTokens("a", 0, 1, 1), WordTokens("b", 1, 2, 2)]
    (first, second), ends = align_words(weights, words, pauses=False)
    assert first == 0 and 17 <= second <= 41 and ends == [second, 61]


def test_weights_that_point_nowhere_still_give_ordered_words() -> None:
    words = [WordTokens(str(index), index, index + 1, index + 1) for index in range(7)]
    starts, ends = align_words(torch.full((7, 3), 1 / 1500), words)
    assert starts == sorted(starts) and max(starts) < 3 and ends == sorted(ends)


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Yes, we - can!", None, ["Yes,", "we -", "can!"]),
        ("- Yes", None, ["- Yes"]),
        ("... and - so - on", None, ["... and -", "so -", "on"]),
        ("...", None, ["..."]),
        ("한국어 5시", "ko", ["한국어", "5시"]),
        ("日本、語", "ja", ["日", "本、", "語"]),
        ("", None, []),
    ],
)
def test_tokens_are_grouped_into_spoken_words(text: str, language: str | None, expected: list[str]) -> None:
    ids = list(text.encode())
    words = group_spoken_words(Tokenizer.for_bytes(), ids, language)
    assert [word.text for word in words] == expected
    assert [position for word in words for position in range(word.start, word.stop)] == list(range(len(ids)))
    assert all(word.start < word.spoken_stop <= word.stop for word in words)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """A multilingual model with random parameters; its window has 35 positions, 0.7 s."""
    folder = tmp_path_factory.mktemp("whisper")
    save_whisper(folder)
    return jumok.load(folder)


def make_transcript(loaded: Loaded, texts: list[tuple[float, str]], duration: float) -> Transcript:
    """Return a transcript with one segment for each text; the number is the start of its window."""
    tokenizer = loaded.require_tokenizer()
    segments = [
        Segment(window, window + 0.1, text, tuple(tokenizer.encode(text, special=False)), window, 0.0, 1.0, None, 0.0)
        for window, text in texts
    ]
    return Transcript(tuple(segments), "en", duration)


def make_noise(seconds: float) -> Tensor:
    return 0.1 * torch.randn(round(seconds * RATE), generator=torch.Generator().manual_seed(3))


def test_words_of_two_windows_cover_the_text_in_order(small: Loaded) -> None:
    samples = make_noise(1.13)
    transcript = make_transcript(small, [(0.0, "ab cde"), (0.0, "f gh"), (0.5, "ij 가나 k")], 1.13)
    words = find_word_times(small, samples, transcript)
    assert [word.text for word in words] == ["ab", "cde", "f", "gh", "ij", "가나", "k"]
    assert [word.segment for word in words] == [0, 0, 1, 1, 2, 2, 2]
    for number, segment in enumerate(transcript.segments):
        ids = [token for word in words if word.segment == number for token in word.token_ids]
        assert tuple(ids) == segment.token_ids
    starts = [word.start for word in words]
    assert starts == sorted(starts) and all(0 <= word.start < word.end <= 1.13 for word in words)
    assert all(word.start < 0.5 for word in words[:4]) and all(word.start >= 0.5 for word in words[4:])
    assert all(0 < word.probability < 1 for word in words)
    assert find_word_times(small, samples, transcript) == words


@pytest.mark.parametrize("window", [0.0, 0.46])
def test_starts_are_those_of_the_weights_that_the_model_returns(small: Loaded, window: float) -> None:
    samples, frame = make_noise(window + 0.61), round(100 * window)
    samples = samples * torch.linspace(0, 3, len(samples)) ** 3  # every window sounds different
    transcript = make_transcript(small, [(window, "abc de f")], window + 0.61)
    ids = list(transcript.segments[0].token_ids)
    prompt = small.speech_tokens.build_prompt("en", timestamps=False)
    padded = torch.nn.functional.pad(samples, (0, max(0, 70 * 160 - len(samples))))
    features = compute_log_mel(padded, 13)[:, frame : frame + 70]
    features = torch.nn.functional.pad(features, (0, 70 - features.shape[1]))
    output = small.model(features[None], torch.tensor([prompt + ids]), weights=True)
    cross = torch.stack([output.weights["cross"][1][0, 2], output.weights["cross"][2][0, 4]]).mean(0)
    rows = slice(len(prompt) - 1, len(prompt) + len(ids) - 1)
    expected, _ = align_words(
        cross[rows, :31], [WordTokens("abc", 0, 3, 3), WordTokens("de", 3, 6, 6), WordTokens("f", 6, 8, 8)]
    )
    words = find_word_times(small, samples, transcript, heads=[(1, 2), (2, 4)])
    assert [round((word.start - window) * 50) for word in words] == expected

    probabilities = output.logits[0].softmax(-1)
    of_word = [float(probabilities[len(prompt) - 1 + index, ids[index]].detach()) for index in range(3)]
    assert words[0].probability == pytest.approx((of_word[0] * of_word[1] * of_word[2]) ** (1 / 3), rel=1e-4)


def test_the_heads_of_the_folder_are_the_default_and_all_heads_without_them(small: Loaded) -> None:
    samples, every = make_noise(0.7), [(block, head) for block in range(3) for head in range(5)]
    transcript = make_transcript(small, [(0.0, "ab cd ef gh ij")], 0.7)
    assert small.speech_tokens.timing_heads == ()
    assert find_word_times(small, samples, transcript) == find_word_times(small, samples, transcript, heads=every)
    chosen = replace(small, speech_tokens=replace(small.speech_tokens, timing_heads=((0, 3),)))
    expected = find_word_times(small, samples, transcript, heads=[(0, 3)])
    assert find_word_times(chosen, samples, transcript) == expected
    assert expected != find_word_times(small, samples, transcript)


def test_edits_change_the_pass_that_reads_the_text(small: Loaded) -> None:
    samples, transcript = make_noise(0.7), make_transcript(small, [(0.0, "ab cd ef gh ij")], 0.7)
    clean = find_word_times(small, samples, transcript)
    edits = [Ablate("decoder.0.cross", head=head) for head in range(5)]
    edited = find_word_times(small, samples, transcript, edits=edits)
    assert [word.probability for word in edited] != [word.probability for word in clean]


@pytest.mark.parametrize("text", ["a", "  ", "z" * 18])
def test_one_word_a_word_without_letters_and_a_full_window(small: Loaded, text: str) -> None:
    (word,) = find_word_times(small, make_noise(0.03), make_transcript(small, [(0.0, text)], 0.03))
    assert word.text == text.strip() and 0 <= word.start < word.end <= 0.03  # the second position has 10 ms only


def test_a_word_that_lasts_to_the_end_ends_with_the_audio(small: Loaded) -> None:
    samples = make_noise(0.63) * torch.linspace(0, 1, round(0.63 * RATE)) ** 2
    (word,) = find_word_times(small, samples, make_transcript(small, [(0.0, "a")], 0.63))
    assert word.end == 0.63  # not 0.64, the end of the last position


def test_an_empty_transcript_has_no_words(small: Loaded) -> None:
    assert find_word_times(small, make_noise(0.4), Transcript((), "en", 0.4)) == []


def test_mistakes_are_explained(small: Loaded) -> None:
    transcript = make_transcript(small, [(0.0, "ab")], 0.5)
    with pytest.raises(ArgumentError, match=r"0\.50 s of audio, but 0\.70 s"):
        find_word_times(small, make_noise(0.7), transcript)
    with pytest.raises(ArgumentError, match=r"from \(0, 0\) to \(2, 4\); \(3, 0\) does not exist"):
        find_word_times(small, make_noise(0.5), transcript, heads=[(1, 1), (3, 0)])
    with pytest.raises(ArgumentError, match="none are given"):
        find_word_times(small, make_noise(0.5), transcript, heads=[])
    with pytest.raises(ArgumentError, match="reads text"):
        find_word_times(jumok.load("tiny"), make_noise(0.5), transcript)


def test_a_word_for_json_has_numbers_that_can_be_read(small: Loaded) -> None:
    (word,) = find_word_times(small, make_noise(0.3), make_transcript(small, [(0.0, "ab")], 0.3))
    assert word.to_json() == {
        "text": "ab",
        "start": word.start,
        "end": word.end,
        "probability": round(word.probability, 4),
        "segment": 0,
    }


@pytest.mark.skipif(ctypes.util.find_library("flite") is None, reason="flite is not installed")
def test_whisper_finds_the_words_of_synthesised_speech() -> None:
    """The bound is twice the error that bench/word_times.py measures."""
    loaded = jumok.load(find_converted_folder(Path(download_or_skip("whisper-tiny-en"))))
    assert loaded.speech_tokens.timing_heads == TIMING_HEADS != ()
    utterance = flite.speak("Turn left at the church, cross the market, and ring the bell at the second door.", "slt")
    silence = torch.zeros(RATE)
    samples = torch.cat([silence, utterance.samples, silence])
    words = find_word_times(loaded, samples, transcribe(loaded, samples))
    assert len(words) == len(utterance.words), [word.text for word in words]
    pairs = list(zip(words, utterance.words, strict=True))
    start_errors = [abs(word.start - 1 - (spoken.start or 0)) for word, spoken in pairs]
    end_errors = [abs(word.end - 1 - (spoken.end or 0)) for word, spoken in pairs]
    assert median(start_errors) < 0.04 and max(start_errors) < 0.2, start_errors
    assert median(end_errors) < 0.04 and max(end_errors) < 0.2, end_errors
