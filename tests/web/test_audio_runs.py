"""Runs of models that read audio: the sound, its words, where they are heard, and transcripts under edits."""

from __future__ import annotations

import contextlib
import io
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from page_client import PageClient

import jumok
from jumok.checkpoint import Loaded
from jumok.tasks.labelled_input import prepare_input
from jumok.tasks.speech.listening import hide_audio
from jumok.web.model_list import list_models
from jumok.web.session import Session, Start
from speech.small_speech import TONE_SECONDS, play_tones, save_listener, train_listener, write_wav

TONES, CROSS, SITES = "도파미", 2, 3  # the index of the cross-attention, and the number of attentions
SECOND_TONE = 0.46


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("audio")
    save_listener(parent / "listener")
    write_wav(parent / "tones.wav", play_tones(TONES))
    return parent


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[PageClient]:
    session = Session(Start(str(folder / "listener"), str(folder / "tones.wav")))
    yield PageClient(session)
    session.close()


@pytest.fixture(scope="module")
def listener() -> Loaded:
    return train_listener()


def run(client: PageClient, folder: Path, edits: list[Any] | None = None) -> dict[str, Any]:
    return client.ask("run", model=str(folder / "listener"), text=None, edits=edits or [])


def hide_second_tone(listener: Loaded) -> list[dict[str, Any]]:
    edits = hide_audio(listener.model, SECOND_TONE, SECOND_TONE + TONE_SECONDS)
    return [edit.to_json() for edit in edits]


def test_the_sound_is_sent_once_on_request(client, folder) -> None:
    hello = client.ask("hello")
    assert hello["text"] == "" and {"audio", "listening"} <= set(hello["can"])
    assert next(entry["reads"] for entry in hello["models"] if entry["name"] == hello["model"]) == "audio"
    body, buffers = client.wait(client.begin("run", model=hello["model"], text="", edits=[]))
    assert buffers == () and body["text"] is None and body["image"] is None
    sound, samples = body["audio"], play_tones(TONES)
    assert sound["seconds"] == len(samples) / 16_000 and sound["positions"] == 63
    assert [word["text"] for word in sound["words"]] == [*TONES]
    assert [word["rows"] for word in sound["words"]] == [[1, 2], [2, 4], [4, 6]]
    assert sound["heads"] == [[CROSS, 0], [CROSS, 1]] and len(body["sites"]) == SITES
    assert body["answer"] == "도 파 미" and body["edited_answer"] is None and body["generated"] == 2

    shape, (wav, spectrogram) = client.wait(client.begin("audio", run=body["run"]))
    with wave.open(io.BytesIO(wav)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        sent = numpy.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767
    numpy.testing.assert_allclose(sent, samples.numpy(), atol=1e-4)
    loudness = numpy.frombuffer(spectrogram, numpy.uint8).reshape(shape["bands"], shape["frames"])
    assert loudness.shape == (12, 126) == (sound["bands"], sound["frames"])
    assert loudness[:, 20].max() == 255 and loudness[:, 4].max() < 100  # a tone, and the gap before it
    assert loudness[:, 20].argmax() < loudness[:, 95].argmax() < loudness[:, 58].argmax()  # do, mi, fa


def test_where_words_are_heard(client, folder, listener) -> None:
    body = run(client, folder)
    labelled = prepare_input(listener, str(folder / "tones.wav"))
    with jumok.Lens(listener) as lens:
        weights = lens.run(*labelled.inputs).weights("decoder.0.cross")[..., :63]
    for fields, expected in (({}, weights.mean(0)), ({"site": CROSS, "head": 1}, weights[1])):
        floats = client.ask_floats("listening", run=body["run"], show="clean", **fields).reshape(3, 63)
        rows = torch.stack([expected[1:2].mean(0), expected[2:4].mean(0), expected[4:6].mean(0)])
        numpy.testing.assert_allclose(floats, rows.numpy(), atol=1e-6)


def test_a_hidden_stretch_changes_the_transcript_and_undo_restores_it(client, folder, listener) -> None:
    edits = hide_second_tone(listener)
    body = run(client, folder, edits)
    words = body["edited_answer"].split()
    assert body["answer"] == "도 파 미" and words[0] == "도" and words[1] != "파" and words[2] == "미"
    keys = edits[0]["key"]
    listening = client.ask_floats("listening", run=body["run"], show="edited").reshape(3, 63)
    assert float(listening[:, keys].max()) == 0.0 and float(listening[1].sum()) > 0.5
    line = client.ask_floats("line", run=body["run"], show="edited", site=0, head=0, query=30)
    assert float(line[keys].max()) == 0.0
    assert run(client, folder)["edited_answer"] is None


def test_code_reproduces_the_transcripts(client, folder, listener) -> None:
    body = run(client, folder, hide_second_tone(listener))
    code = client.ask("code", run=body["run"], selection={"site": CROSS, "head": 0, "query": 2, "key": 30})["code"]
    assert "key=range(22, 37)" in code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert f"clean transcript: {body['answer']}\n" in printed.getvalue()
    assert f"edited transcript: {body['edited_answer']}\n" in printed.getvalue()


def test_other_edits_change_the_transcript_too(client, folder) -> None:
    edits = [{"edit": "Ablate", "layer": "decoder.0.cross"}]
    assert run(client, folder, edits)["edited_answer"] != "도 파 미"
    mean = [{"edit": "Ablate", "layer": "decoder.0.cross", "head": 0, "by": "mean"}]
    body = run(client, folder, mean)
    assert body["edited_answer"] is None and "cannot write a transcript under these edits" in body["notes"][0]


def test_a_later_part_of_a_recording(folder, tmp_path) -> None:
    samples = torch.cat([play_tones(TONES), torch.zeros(9_600), play_tones("레도레")])
    path = write_wav(tmp_path / "long.wav", samples)
    session = Session(Start(str(folder / "listener"), str(path), begin=1.8))
    body = run(PageClient(session), folder)
    session.close()
    assert body["answer"] == "레 도 레" and body["audio"]["begin"] == 1.8 and body["source"][0] == "1.80 s"
    assert "the seconds from 1.8 to 3.1" in body["notes"][0]


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("listening", {"show": "edited"}, "no edits"),
        ("listening", {"show": "clean", "site": 0, "head": 0}, "choose a cross-attention"),
        ("listening", {"show": "clean", "site": CROSS, "head": 2}, "head must be"),
        ("listening", {"show": "clean", "site": 99, "head": 0}, "site must be"),
    ],
)
def test_invalid_asks_are_refused(client, folder, kind, fields, message) -> None:
    body = run(client, folder)
    failure = client.fail(kind, run=body["run"], **fields)
    assert failure.reason == "invalid" and message in str(failure)


def test_a_run_of_text_has_no_sound() -> None:
    session = Session(Start("tiny", "the cat"))
    client = PageClient(session)
    body = client.ask("run", model="tiny", text="the cat", edits=[])
    assert body["audio"] is None
    assert "is not audio" in str(client.fail("audio", run=body["run"]))
    session.close()


def test_a_model_of_audio_needs_a_recording(client, folder) -> None:
    failure = client.fail("run", model=str(folder / "listener"), text=str(folder / "tones.wav"), edits=[])
    assert "jumok look MODEL talk.wav --open" in str(failure)  # a typed path is never opened
    assert list_models("whisper-tiny-en")["whisper-tiny-en"].reads == "audio"
