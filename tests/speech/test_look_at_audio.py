"""Audio as the input of a lens: its labels, its transcript with and without edits, and ``jumok look``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import jumok
from jumok.checkpoint import Loaded
from jumok.cli import cli
from jumok.errors import ArgumentError
from jumok.tasks.labelled_input import prepare_input
from jumok.tasks.speech.audio_window import compute_features
from jumok.tasks.speech.listening import (
    compute_listening,
    hide_audio,
    list_timing_sites,
    locate_words,
    transcribe_with_edits,
)
from jumok.tasks.speech.window_decoding import transcribe_window
from speech.small_speech import SECONDS, TONE_SECONDS, play_tones, save_listener, train_listener, write_wav
from speech.small_whisper import save_whisper

pytestmark = pytest.mark.xdist_group("listener")
TONES = "도파미"
STARTS = (0.10, 0.46, 0.82)  # seconds: gaps of 0.1, 0.12 and 0.12, and tones of 0.24


@pytest.fixture(scope="module")
def listener() -> Loaded:
    return train_listener()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("audio")
    save_listener(parent / "listener")
    write_wav(parent / "tones.wav", play_tones(TONES))
    return parent


def test_positions_have_times_and_the_transcript_is_the_target(listener) -> None:
    samples = play_tones(TONES)
    labelled = prepare_input(listener, samples)
    features, target = labelled.inputs
    torch.testing.assert_close(features[0], compute_features(samples, listener.model))
    assert labelled.source[:3] == ["0.00 s", "0.02 s", "0.04 s"] and len(labelled.source) == round(SECONDS * 50)
    assert labelled.answer == "도 파 미" and labelled.prompt == 2 and labelled.answer_length == 5
    assert labelled.target == ["<|start|>", "<|notimestamps|>", "도", "␣", "파", "␣", "미"]
    words = [("<start>", range(1, 2)), ("도", range(2, 3)), ("파", range(3, 5)), ("미", range(5, 7))]
    assert labelled.target_words == words
    assert target.tolist() == [[*listener.speech_tokens.build_prompt(timestamps=False), *target[0, 2:].tolist()]]
    assert labelled.audio is not None and labelled.audio.seconds == len(samples) / 16_000 and not labelled.warning


def test_a_file_and_its_samples_are_the_same_input(listener, folder) -> None:
    from_file = prepare_input(listener, str(folder / "tones.wav"))
    from_samples = prepare_input(listener, play_tones(TONES))
    torch.testing.assert_close(from_file.inputs[0], from_samples.inputs[0], atol=1e-2, rtol=0)  # 16 bits
    assert from_file.answer == from_samples.answer


def test_a_long_recording_is_read_in_a_window(listener) -> None:
    samples = torch.cat([play_tones(TONES), torch.zeros(9_600), play_tones("레도레")])
    first, second = prepare_input(listener, samples), prepare_input(listener, samples, begin=1.8)
    assert first.answer == "도 파 미" and second.answer == "레 도 레"
    assert second.source[1] == "1.82 s" and len(second.source) == len(first.source)
    assert "the seconds from 0.0 to 1.6" in first.warning and "the seconds from 1.8 to 3.1" in second.warning
    # what counts as silence depends on the loudest frame of the whole recording, as in a transcription
    torch.testing.assert_close(first.inputs[0][0], compute_features(samples, listener.model)[:, :160])
    with pytest.raises(ArgumentError, match="cannot begin at 9"):
        prepare_input(listener, samples, begin=9.0)


def test_the_language_is_detected_and_kept(tmp_path) -> None:
    save_whisper(tmp_path / "whisper")
    loaded = jumok.load(tmp_path / "whisper")
    samples = 0.1 * torch.randn(8_000)
    labelled = prepare_input(loaded, samples)
    assert labelled.language in loaded.speech_tokens.languages and labelled.prompt == 4
    expected = loaded.speech_tokens.build_prompt(labelled.language, timestamps=False)
    assert labelled.inputs[1][0, :4].tolist() == expected
    with jumok.Lens(loaded) as lens:
        assert (
            transcribe_with_edits(lens, labelled.inputs[0], (), "ko").prompt[1] == loaded.speech_tokens.languages["ko"]
        )


def test_the_limit_cuts_a_transcript(listener) -> None:
    labelled = prepare_input(listener, play_tones(TONES), limit=3)
    assert labelled.unfinished and labelled.answer == "도 파" and labelled.answer_length == 3


def test_a_model_of_text_refuses_audio(folder) -> None:
    with pytest.raises(ArgumentError, match=r"tones\.wav is audio, but this gpt model reads text"):
        prepare_input(jumok.load("tiny"), str(folder / "tones.wav"))


def test_hidden_audio_is_not_read(listener) -> None:
    labelled = prepare_input(listener, play_tones(TONES))
    edits = hide_audio(listener.model, 0.46, 0.70)
    keys = range(22, 37)  # 0.44 to 0.74: with the neighbours that hear the stretch
    assert [edit.layer for edit in edits] == ["encoder.0.attention", "decoder.0.cross"]
    assert all(edit.key == tuple(keys) for edit in edits)
    with jumok.Lens(listener) as lens:
        clean, edited = lens.run(*labelled.inputs), lens.run(*labelled.inputs, edits=edits)
    for site in ("encoder.0.attention", "decoder.0.cross"):
        assert float(clean.weights(site)[..., keys].sum()) > 0.1
        assert float(edited.weights(site)[..., keys].abs().sum()) == 0.0
        assert float(edited.weights(site).sum(-1).sub(1).abs().max()) < 1e-5


def test_nothing_in_a_hidden_stretch_matters(listener) -> None:
    samples = play_tones(TONES)
    changed = samples.clone()
    changed[7_360:11_200] = 0.2 * torch.randn(3_840, generator=torch.Generator().manual_seed(1))  # 0.46 to 0.70 s
    edits = hide_audio(listener.model, 0.46, 0.70)
    target = prepare_input(listener, samples).inputs[1]
    with jumok.Lens(listener) as lens:
        outputs = [
            lens.run(prepare_input(listener, audio).inputs[0], target, edits=applied, logits=True).logits
            for audio in (samples, changed)
            for applied in (edits, ())
        ]
    torch.testing.assert_close(outputs[0], outputs[2], atol=1e-5, rtol=0)
    assert float((outputs[1] - outputs[3]).abs().max()) > 0.1  # without the edits, the noise is heard


def test_a_hidden_tone_changes_its_word_only(listener) -> None:
    features = prepare_input(listener, play_tones(TONES)).inputs[0]
    clean = transcribe_window(listener, features)
    with jumok.Lens(listener) as lens:
        assert transcribe_with_edits(lens, features) == clean
        for index, start in enumerate(STARTS):
            edits = hide_audio(listener.model, start, start + TONE_SECONDS)
            words = transcribe_with_edits(lens, features, edits).text.split()
            changed = [number for number, (word, tone) in enumerate(zip(words, TONES, strict=True)) if word != tone]
            assert changed == [index]
        assert transcribe_window(listener, features) == clean  # the edits are gone


def test_an_edit_that_changes_nothing_in_a_transcript_is_refused(listener) -> None:
    labelled = prepare_input(listener, play_tones(TONES))
    with jumok.Lens(listener) as lens:
        source = lens.run(*labelled.inputs, keep="input")
        edit = jumok.lens.Patch("decoder.0.cross", part="residual", source=source, positions=500)
        with pytest.raises(ArgumentError, match="500 is not one of them"):
            transcribe_with_edits(lens, labelled.inputs[0], [edit])


@pytest.mark.parametrize(("start", "end"), [(-0.1, 0.5), (0.5, 0.5), (1.0, 1.7)])
def test_a_stretch_outside_the_window_is_refused(listener, start, end) -> None:
    with pytest.raises(ArgumentError, match=r"between 0 and 1\.6 seconds"):
        hide_audio(listener.model, start, end)


def test_words_are_heard_where_they_are_played(listener) -> None:
    labelled = prepare_input(listener, play_tones(TONES))
    with jumok.Lens(listener) as lens:
        capture = lens.run(*labelled.inputs)

    def read_rows(site, head, rows):
        return capture.weights(site, head)[rows.start : rows.stop]

    words = locate_words(listener, labelled)
    assert [word.text for word in words] == ["도", "파", "미"]
    assert [word.rows for word in words] == [range(1, 2), range(2, 4), range(4, 6)]
    assert all(
        abs(word.start - start) < 0.2 and word.end > word.start for word, start in zip(words, STARTS, strict=True)
    )
    assert list_timing_sites(listener) == [("decoder.0.cross", 0), ("decoder.0.cross", 1)]
    weights = compute_listening(read_rows, [word.rows for word in words], [("decoder.0.cross", 1)])
    expected = capture.weights("decoder.0.cross", 1)[2:4].mean(0)
    torch.testing.assert_close(weights[1], expected)


def test_look_prints_when_words_are_spoken(folder) -> None:
    arguments = ["look", str(folder / "listener"), str(folder / "tones.wav")]
    shown = CliRunner().invoke(cli, arguments, catch_exceptions=False).output
    assert "1.26 seconds of audio in 80 positions of 20 ms; answer: 도 파 미" in shown
    assert "mean of the 2 heads that follow the audio in time" in shown and "0.06 s[" not in shown
    korean = CliRunner().invoke(cli, [*arguments, "--language", "ko"], catch_exceptions=False).output
    assert "단어를 말한 때와 들은 곳" in korean
    fields = json.loads(CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False).output)
    assert [word["word"] for word in fields["listening"]] == ["도", "파", "미"]
    assert all(0 <= word["start"] < word["end"] <= 1.26 and 0 < word["share"] <= 1 for word in fields["listening"])


def test_look_at_a_head_and_at_a_later_part(folder) -> None:
    arguments = ["look", str(folder / "listener"), str(folder / "tones.wav")]
    head = [*arguments, "--layer", "decoder.0.cross", "--head", "-1"]
    assert "(decoder.0.cross.1)" in CliRunner().invoke(cli, head, catch_exceptions=False).output
    encoder = [*arguments, "--layer", "encoder.0.attention"]
    assert "where the last 40 tokens look most" in CliRunner().invoke(cli, encoder, catch_exceptions=False).output
    later = json.loads(CliRunner().invoke(cli, [*arguments, "--from", "0.4", "--json"]).stdout)
    assert later["source"][0] == "0.40 s" and all(word["start"] >= 0.4 for word in later["listening"])
    refused = CliRunner().invoke(cli, ["look", "tiny", "a text", "--from", "1"])
    assert refused.exit_code == 2 and "--from is for audio" in refused.stderr


def test_effect_measures_a_word_of_the_transcript(listener, folder) -> None:
    arguments = ["effect", str(folder / "listener"), str(folder / "tones.wav"), "--position", "2", "--json"]
    fields = json.loads(CliRunner().invoke(cli, arguments, catch_exceptions=False).output)
    assert "'파' at position 3" in fields["metric_text"] and len(fields["rows"]) == 6
    features, target = prepare_input(listener, str(folder / "tones.wav")).inputs
    with torch.no_grad():
        log_probabilities = listener.model(features, target).logits[0, 3].log_softmax(-1)
    assert fields["clean"] == pytest.approx(float(log_probabilities[target[0, 4]]), abs=1e-4)


def test_look_draws_the_spectrogram_with_its_words(folder, tmp_path) -> None:
    arguments = ["look", str(folder / "listener"), str(folder / "tones.wav"), "--language", "ko"]
    CliRunner().invoke(cli, [*arguments, "--svg", str(tmp_path / "tones.svg")], catch_exceptions=False)
    drawn = re.findall("<!-- (.+) -->", (tmp_path / "tones.svg").read_text())
    assert all(drawn.count(tone) == 2 for tone in TONES)  # above the spectrogram, and as a row
    assert {"초", "가중치", "쓰는 토큰", "주파수", "1 kHz"} <= set(drawn)
    CliRunner().invoke(cli, [*arguments, "--words", "--svg", str(tmp_path / "words.svg")], catch_exceptions=False)
    drawn = re.findall("<!-- (.+) -->", (tmp_path / "words.svg").read_text())
    assert "␣" not in drawn and "쓰는 단어" in drawn
    CliRunner().invoke(cli, [*arguments, "--heat-map", "--svg", str(tmp_path / "map.svg")], catch_exceptions=False)
    assert "주파수" not in (tmp_path / "map.svg").read_text()
