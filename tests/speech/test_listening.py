"""The experiment ``listening``: matching words, choosing heads where the answer is known, ablations, and the lesson."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_whisper import save_whisper
from torch import Tensor

import jumok
from catalogue_cache import download_or_skip
from jumok.checkpoint import Loaded
from jumok.checkpoint.conversion import find_converted_folder
from jumok.data.audio.utterance import SpokenWord
from jumok.data.audio.voices import Voice
from jumok.errors import ArgumentError, CheckpointError
from jumok.lab.experiments import run_experiment
from jumok.lab.experiments.listening import (
    AblationRow,
    HeadTiming,
    build_ablations,
    describe_listening,
    measure_listening,
    transcribe_ablated,
)
from jumok.lab.experiments.setups.timed_speech import (
    CALIBRATION_TEXTS,
    HeardSpeech,
    TimedSpeech,
    compute_errors,
    compute_median,
    count_word_errors,
    list_heads,
    match_words,
    speak_pairs,
)
from jumok.lab.result import Result
from jumok.tasks.speech import Transcript
from jumok.tasks.speech.word_times import WindowWeights, WordTokens

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "audio"))

from head_choice import SCORING_TEXTS, choose_heads, compute_interval  # type: ignore[import-not-found]

RATE = 16_000


def make_heard(delays: list[int], starts: list[int], positions: int = 101) -> HeardSpeech:
    """Return a recording of one-token words; head i listens ``delays[i]`` positions after the start of each word."""
    weights = torch.full((len(delays), len(starts), positions), 0.001)
    for head, delay in enumerate(delays):
        for row, start in enumerate(starts):
            weights[head, row, start + delay : start + delay + 3] = 0.3
    words = tuple(WordTokens(str(row), row, row + 1, row + 1) for row in range(len(starts)))
    spoken = tuple(SpokenWord(str(row), start / 50, None) for row, start in enumerate(starts))
    window = WindowWeights(
        0.0,
        tuple(range(len(starts))),
        words,
        (0,) * len(starts),
        weights,
        torch.zeros(len(starts)),
        torch.zeros(positions),
    )
    speech = TimedSpeech(torch.zeros(positions * 320), spoken)
    matches = tuple((row, row) for row in range(len(starts)))
    return HeardSpeech(speech, Transcript((), None, positions / 50), (window,), matches)


def test_errors_are_the_delays_of_the_heads() -> None:
    recordings = make_heard([0, 3, -2], [7, 29, 53, 71])
    for head, delay in enumerate([0, 3, -2]):
        assert recordings.measure_errors([head]) == pytest.approx([delay / 50] * 4)
    assert [recordings.measure_monotony(head) for head in range(3)] == [1.0, 1.0, 1.0]
    # without pauses the first word begins with the audio
    assert recordings.measure_errors([0], pauses=False)[0] == pytest.approx(-7 / 50)


def test_a_head_that_looks_back_is_less_monotone() -> None:
    recordings = make_heard([0], [7, 53, 29, 71, 41])
    assert recordings.measure_monotony(0) == pytest.approx(2 / 4)


def test_the_chosen_head_is_the_one_in_time_although_all_are_monotone() -> None:
    recordings = [make_heard([4, -3, 0, 2], [7, 29, 53]), make_heard([4, -3, 0, 2], [11, 41, 83])]
    assert choose_heads(recordings, 4) == [2]
    assert compute_median(compute_errors(recordings, [0])) == pytest.approx(0.08)


def test_two_heads_are_chosen_if_only_together_they_hear_every_word() -> None:
    deaf = [make_heard([0, 0, 5], [7, 29, 53, 71]) for _ in range(2)]
    for recording, missing in zip(deaf, ((0, slice(0, 2)), (1, slice(2, 4))), strict=True):
        for window in deaf[0].windows + deaf[1].windows:
            window.weights[missing[0], missing[1]] = 1e-4
        assert recording.measure_errors([missing[0]]) != pytest.approx([0.0] * 4)
    assert choose_heads(deaf, 3) == [0, 1]


def test_words_are_matched_in_order_and_errors_are_counted() -> None:
    recognised, spoken = ["the", "the", "cat", "sad", "on", "mat"], ["The", "cat", "sat", "on", "the", "mat."]
    assert match_words(recognised, spoken) in ([(1, 0), (2, 1), (4, 3), (5, 5)], [(0, 0), (2, 1), (4, 3), (5, 5)])
    assert count_word_errors(recognised, spoken) == 3  # one inserted, one replaced, one deleted
    assert count_word_errors([], spoken) == 6 and count_word_errors(spoken, spoken) == 0


def test_word_errors_equal_those_of_jiwer() -> None:
    jiwer = pytest.importorskip("jiwer")
    generator = torch.Generator().manual_seed(5)
    for _ in range(20):
        texts = [[f"w{int(word)}" for word in torch.randint(7, (11,), generator=generator)] for _ in range(2)]
        expected = round(jiwer.wer(" ".join(texts[1]), " ".join(texts[0])) * len(texts[1]))
        assert count_word_errors(texts[0], texts[1]) == expected


def test_the_interval_contains_the_median_and_shrinks_with_more_words() -> None:
    errors = torch.randn(400, generator=torch.Generator().manual_seed(1)).tolist()
    low, high = compute_interval(errors)
    assert low <= compute_median(errors) <= high
    narrow = high - low
    low, high = compute_interval(errors[:25])
    assert high - low > 2 * narrow


def test_calibration_and_scoring_share_no_sentence() -> None:
    assert not set(CALIBRATION_TEXTS) & set(SCORING_TEXTS)


def test_synthesised_pairs_have_pauses_and_starts() -> None:
    pytest.importorskip("espeakng_loader", reason="espeak-ng is not installed")
    first, second = speak_pairs(
        ["Open it.", "Every apple.", "Ice."], [Voice("espeak", "en-us"), Voice("espeak", "en")], 3
    )
    for speech in (first, second):
        assert [word.text for word in speech.words] == ["Open", "it.", "Every", "apple."]
        for number in (0, 2):  # the sound begins where the first word of each sentence begins
            start = speech.words[number].start
            assert start is not None and start >= 0.2
            before, after = (speech.samples[round((start + shift) * RATE) :][:800] for shift in (-0.1, 0.02))
            assert before.abs().max() < 0.01 < 0.05 < after.abs().max()
    assert torch.equal(
        speak_pairs(["Open it.", "Every apple."], [Voice("espeak", "en-us")], 3)[0].samples, first.samples
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = tmp_path_factory.mktemp("whisper")
    save_whisper(folder, ())
    return jumok.load(folder)


def make_noise() -> Tensor:
    return 0.3 * torch.randn(9000, generator=torch.Generator().manual_seed(2)).cumsum(0).sin()


def test_transcription_under_edits_ablates_every_step(small: Loaded) -> None:
    samples = make_noise()
    clean = transcribe_ablated(small, samples, ())
    edited = transcribe_ablated(small, samples, build_ablations(list_heads(small)))
    assert clean.segments and clean.segments != edited.segments
    # ablating all heads of the cross-attention is the same as zeroing their output projections' inputs
    model = small.model
    saved = [block.cross.output.weight.detach().clone() for block in model.decoder]
    with torch.no_grad():
        for block in model.decoder:
            block.cross.output.weight.zero_()
        expected = transcribe_ablated(small, samples, ())
        for block, weight in zip(model.decoder, saved, strict=True):
            block.cross.output.weight.copy_(weight)
    assert [segment.token_ids for segment in edited.segments] == [segment.token_ids for segment in expected.segments]
    assert transcribe_ablated(small, samples, ()) == clean  # nothing remains of the edits


def make_result(**changes: float) -> Result:
    heads = tuple(
        HeadTiming(block, head, 0.02 if (block, head) == (1, 2) else 0.3, 0.3, 0.9 + 0.01 * head * (1 - block))
        for block in range(2)
        for head in range(3)
    )
    best = AblationRow("best", ((1, 2),), 0.4, -0.5, 0.2)
    control = AblationRow("random", ((0, 1),), 0.2, -0.3, 0.05)
    rows = (AblationRow("none", (), 0.1, -0.2, 0.04), replace(best, **changes), control)
    return describe_listening(3, 76, 0, heads, 0.045, rows)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_numbers_appear_in_both_languages(language: str, tmp_path: Path) -> None:
    outcome = make_result()
    sentences = " ".join(text.select(language) for text in outcome.sentences)
    for number in ("1.2", "20 ms", "45 ms", "40.0%", "10.0%", "20.0%", "0.300", "0.100", "200 ms", "50 ms", "0.92"):
        assert number in sentences, number
    errors, monotony, ablations = (table.select_language(language) for table in outcome.tables)
    assert errors[2][3] == "20 (+300)" and errors[1][1] == "300 (+300)" and monotony[1][3] == "0.92"
    assert [row[2] for row in ablations[1:]] == ["10.0%", "40.0%", "20.0%"]
    assert outcome.save_picture(tmp_path / "heads.png", language).stat().st_size > 1000
    assert outcome.exceptions == [] and outcome.to_json(language)["holds"]


def test_a_control_that_matters_as_much_is_admitted() -> None:
    assert ["Words" in text.english for text in make_result(word_error_rate=0.2).exceptions] == [True]
    assert ["Times" in text.english for text in make_result(error=0.05).exceptions] == [True]


def test_mistakes_are_explained(small: Loaded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="2 to 18 sentences"):
        measure_listening(1, model=small)
    with pytest.raises(ArgumentError, match="15 heads, so 1 to 7"):
        measure_listening(2, counts=(8,), model=small)
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match="jumok data get whisper-tiny-en"):
        run_experiment("listening", quick=True)


@pytest.mark.slow
def test_whisper_has_heads_that_listen_in_time() -> None:
    pytest.importorskip("espeakng_loader", reason="espeak-ng is not installed")
    loaded = jumok.load(find_converted_folder(download_or_skip("whisper-tiny-en")))
    steps: list[tuple[int, int]] = []
    outcome = measure_listening(2, counts=(3,), draws=1, model=loaded, progress=lambda *step: steps.append(step))
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    best = min(outcome.numbers["heads"], key=lambda head: head.error)
    assert (best.block, best.head) in ((1, 5), (2, 1)) and best.error < 0.03
    by_name = {(head.block, head.head): head for head in outcome.numbers["heads"]}
    assert by_name[1, 2].monotony > 0.97 and by_name[1, 2].error > 0.1  # monotone, and not in time
    clean, ablated, control = outcome.numbers["ablations"]
    assert ablated.error > 2 * max(clean.error, control.error)
