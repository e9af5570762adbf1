"""Compare transcripts with transformers' ``generate`` on the same weights: windows, times, beams, languages."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_whisper import LETTERS, save_whisper
from torch import Tensor
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

import jumok
from jumok.checkpoint import Loaded
from jumok.data.audio.log_mel import HOP
from jumok.errors import ArgumentError
from jumok.tasks.speech import Transcript, TranscriptionSettings, transcribe, transcribe_segments, window_decoding
from jumok.tasks.speech.window_decoding import TokenRules, WindowText

WINDOW = 70 * HOP  # samples of the small model's window
#: no second attempt, as transformers decodes by default
ONCE: dict[str, Any] = {
    "temperatures": (),
    "least_log_probability": None,
    "greatest_compression": None,
    "greatest_no_speech": None,
    "certain_no_speech": None,
}


def make_audio(length: int, seed: int = 0) -> Tensor:
    """Return noise whose loudness and colour change, so that different windows give different texts."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(length, generator=generator)
    loudness = torch.linspace(0.2, 4 + seed, length).sin().abs()
    return 0.3 * loudness * noise.cumsum(0).sin()


def compute_features(samples: Tensor, padding: str) -> Tensor:
    extractor = WhisperFeatureExtractor(feature_size=13, chunk_length=1)
    settings = {"sampling_rate": 16_000, "return_tensors": "pt", "truncation": False}
    if padding == "window":
        samples = torch.nn.functional.pad(samples, (0, max(0, WINDOW - len(samples))))
    return extractor(samples.numpy(), padding="longest", **settings)["input_features"]


@pytest.fixture(scope="module", params=["multilingual", "English"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Loaded, Any]:
    folder = tmp_path_factory.mktemp("whisper")
    theirs = save_whisper(folder, ("en", "ko", "de") if request.param == "multilingual" else ())
    return jumok.load(folder), theirs.eval()


def build_arguments(loaded: Loaded) -> dict[str, Any]:
    return {"language": "ko", "task": "transcribe"} if loaded.speech_tokens.languages else {}


def test_an_exported_folder_transcribes_without_arguments(pair: tuple[Loaded, Any], tmp_path: Path) -> None:
    loaded, _ = pair
    tokens = loaded.speech_tokens
    assert tokens is not None and tokens.first_time is not None
    suppressed = (*tokens.suppressed, *range(tokens.first_time, loaded.model.config.vocabulary))
    loaded = replace(loaded, speech_tokens=replace(tokens, suppressed=suppressed))
    jumok.save(loaded, tmp_path / "exported", format="huggingface")
    theirs = WhisperForConditionalGeneration.from_pretrained(tmp_path / "exported").eval()
    samples = make_audio(7777)
    output = theirs.generate(compute_features(samples, "window"))[0].tolist()
    transcript = transcribe(loaded, samples, TranscriptionSettings(timestamps=False, **ONCE))
    expected = [token for token in output if token < LETTERS]
    assert [token for segment in transcript.segments for token in segment.token_ids] == expected != []


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("length", [2000, 7777, WINDOW])
def test_short_audio_equals_transformers(pair: tuple[Loaded, Any], length: int, beams: int) -> None:
    loaded, theirs = pair
    samples = make_audio(length, seed=length)
    features = compute_features(samples, "window")
    # random parameters would write times although the prompt asks for none, and transformers would read them
    times = range(loaded.speech_tokens.first_time, loaded.config.vocabulary)
    suppressed = (*loaded.speech_tokens.suppressed, *times)
    loaded = replace(loaded, speech_tokens=replace(loaded.speech_tokens, suppressed=suppressed))
    arguments = {"num_beams": beams, "do_sample": False, "suppress_tokens": list(suppressed)}
    tokens = theirs.generate(features, **arguments, **build_arguments(loaded))[0].tolist()
    expected = [token for token in tokens if token < LETTERS]
    language = "ko" if loaded.speech_tokens.languages else None
    settings = TranscriptionSettings(language, timestamps=False, beams=beams, **ONCE)
    transcript = transcribe(loaded, samples, settings)
    assert [token for segment in transcript.segments for token in segment.token_ids] == expected
    assert expected, "the test needs a text"


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_long_audio_equals_transformers(pair: tuple[Loaded, Any], seed: int, beams: int) -> None:
    """Several windows: the next one begins where the last complete segment ended."""
    loaded, theirs = pair
    samples = make_audio(5 * WINDOW + 1234, seed)
    features = compute_features(samples, "longest")
    mask = torch.ones(1, features.shape[-1], dtype=torch.long)
    arguments = {"return_timestamps": True, "return_segments": True, "num_beams": beams, "do_sample": False}
    output = theirs.generate(features, attention_mask=mask, **arguments, **build_arguments(loaded))
    # a text without a letter is no text for us: transformers keeps it
    expected = [
        (round(float(segment["start"]), 2), [token for token in segment["tokens"].tolist() if token < LETTERS])
        for segment in output["segments"][0]
    ]
    language = "ko" if loaded.speech_tokens.languages else None
    transcript = transcribe(loaded, samples, TranscriptionSettings(language, beams=beams, **ONCE))
    decode = loaded.require_tokenizer().decode
    expected = [row for row in expected if any(letter.isalnum() for letter in decode(row[1]))]
    assert [(segment.start, list(segment.token_ids)) for segment in transcript.segments] == expected
    assert len({segment.window for segment in transcript.segments}) >= 5


def test_language_is_detected_as_in_transformers(pair: tuple[Loaded, Any]) -> None:
    loaded, theirs = pair
    if not loaded.speech_tokens.languages:
        pytest.skip("this model has one language")
    for seed in range(4):
        samples = make_audio(WINDOW, seed)
        (token,) = theirs.detect_language(compute_features(samples, "window")).tolist()
        code = next(code for code, language in loaded.speech_tokens.languages.items() if language == token)
        assert transcribe(loaded, samples, TranscriptionSettings(**ONCE)).language == code


def test_rules_of_times_equal_transformers(pair: tuple[Loaded, Any]) -> None:
    """Random texts with times in any order: the same tokens are forbidden."""
    loaded, theirs = pair
    tokens = loaded.speech_tokens
    vocabulary = loaded.config.vocabulary
    rules = TokenRules(tokens, True, vocabulary, torch.device("cpu"))
    processor = WhisperTimeStampLogitsProcessor(theirs.generation_config, begin_index=0)
    generator = torch.Generator().manual_seed(7)
    first = tokens.first_time
    for _ in range(300):
        length = int(torch.randint(0, 6, (), generator=generator))
        is_time = torch.rand(length, generator=generator) < 0.5
        times = torch.randint(first, vocabulary, (length,), generator=generator)
        letters = torch.randint(0, LETTERS, (length,), generator=generator)
        text = torch.where(is_time, times, letters).tolist()
        scores = torch.randn(1, vocabulary, generator=generator) * 3
        scores[0, list(tokens.suppressed)] = -torch.inf
        if not text:
            scores[0, list(tokens.suppressed_first)] = -torch.inf
        expected = processor(torch.tensor([text], dtype=torch.long), scores)
        assert torch.equal(rules.restrict(scores, [text]), expected), text


def test_segments_stream(pair: tuple[Loaded, Any]) -> None:
    """The first segment is there before the second window is decoded."""
    loaded, _ = pair
    done: list[float] = []
    samples = make_audio(4 * WINDOW, 1)
    segments = transcribe_segments(
        loaded, samples, TranscriptionSettings("en", **ONCE), lambda now, _: done.append(now)
    )
    next(segments)
    assert done == []
    list(segments)
    assert done == sorted(done) and done[-1] == pytest.approx(len(samples) / 16_000, abs=0.01)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (torch.zeros(100), "the audio is too short: 100 samples, 6 ms"),
        (torch.zeros(2, 16_000), "samples must be a tensor of floats [sample], not torch.float32[2, 16000]"),
        (torch.zeros(16_000, dtype=torch.int16), "not torch.int16[16000]"),
        (torch.tensor([0.0] * 500 + [float("nan")]), "the samples contain NaN or infinity"),
        ([0.0] * 999, "audio must be the path of a file, or a tensor of samples at 16,000 per second, not a list"),
    ],
)
def test_wrong_samples_are_refused(pair: tuple[Loaded, Any], samples: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        jumok.run(pair[0], [samples])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 0}, "beams must be from 1 to 64, not 0"),
        ({"task": "sing"}, "unknown task 'sing'"),
        ({"language": "xx"}, "xx"),
        ({"temperatures": (0.0,)}, "temperatures must be above 0"),
        ({"limit": 4}, "unknown setting 'limit' of a transcription; choose from language, task"),
    ],
)
def test_wrong_settings_are_refused(pair: tuple[Loaded, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        jumok.run(pair[0], make_audio(3000), **options)


def test_other_models_do_not_transcribe() -> None:
    with pytest.raises(ArgumentError, match="this gpt model reads text; it cannot transcribe audio"):
        transcribe(jumok.load("tiny"), torch.zeros(16_000))


def test_attempts_stop_at_the_first_good_text(pair: tuple[Loaded, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Random parameters give improbable texts: all temperatures are tried, and the most probable text is kept."""
    loaded, _ = pair
    samples = make_audio(3000, 5)
    attempts: list[WindowText] = []

    def record(text: WindowText, settings: TranscriptionSettings) -> bool:
        attempts.append(text)
        return should_try_again(text, settings)

    should_try_again = window_decoding._should_try_again
    monkeypatch.setattr(window_decoding, "_should_try_again", record)
    settings = TranscriptionSettings(
        "en", timestamps=False, temperatures=(0.4, 0.9), least_log_probability=0.0, greatest_no_speech=None
    )
    first = transcribe(loaded, samples, settings)
    assert [attempt.temperature for attempt in attempts] == [0.0, 0.4, 0.9]
    best = max(attempts, key=lambda attempt: attempt.log_probability)
    assert [segment.log_probability for segment in first.segments] == [best.log_probability]
    assert transcribe(loaded, samples, settings) == first  # the same seed gives the same text

    attempts.clear()
    easy = TranscriptionSettings("en", timestamps=False, least_log_probability=-100.0, greatest_compression=100.0)
    transcribe(loaded, samples, easy)
    assert [attempt.temperature for attempt in attempts] == [0.0]


def test_improbable_text_beside_no_speech_is_silence(pair: tuple[Loaded, Any]) -> None:
    loaded, _ = pair
    samples = make_audio(3 * WINDOW, 5)
    silent = TranscriptionSettings("en", greatest_no_speech=0.0, least_log_probability=0.0)
    assert transcribe(loaded, samples, silent) == Transcript((), "en", len(samples) / 16_000)


def test_saved_folder_gives_the_same_text(pair: tuple[Loaded, Any], tmp_path: Path) -> None:
    loaded, _ = pair
    jumok.save(loaded, tmp_path / "own")
    samples = make_audio(2 * WINDOW, 3)
    settings = TranscriptionSettings("en", **ONCE)
    expected, actual = (transcribe(model, samples, settings) for model in (loaded, jumok.load(tmp_path / "own")))
    assert [segment.token_ids for segment in actual.segments] == [segment.token_ids for segment in expected.segments]
    assert actual.text == expected.text and actual.text
