"""The page with audio: it plays, follows the words, hides a stretch, and works as a file, in Korean, by keyboard."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from page_driver import ShownPage, serve_page

from catalogue_cache import download_or_skip
from jumok.checkpoint.conversion import find_converted_folder
from jumok.data.audio import flite
from jumok.errors import ArgumentError
from jumok.tasks.speech.listening import hide_audio
from jumok.web.saved_file import save_html
from jumok.web.session import Start
from speech.small_speech import play_tones, save_listener, train_listener, write_wav

pytestmark = pytest.mark.xdist_group("page")

OpenPage = Callable[..., ShownPage]
SECONDS = 1.26  # of the three tones; the second one sounds from 0.46 to 0.70
#: remember every word that is highlighted, with the time of the player
RECORD_WORDS = """() => {
  window.spokenWords = [];
  new MutationObserver(() => {
    const word = document.querySelector('.jk-spoken')?.textContent;
    if (!word || word === window.spokenWords.at(-1)?.[0]) return;
    window.spokenWords.push([word, document.querySelector('audio').currentTime]);
  }).observe(document.querySelector('.jk-spoken-words'), { subtree: true, attributes: true });
}"""
READ_PLAYER = "() => { const player = document.querySelector('audio'); return [player.currentTime, player.duration] }"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("sound")
    save_listener(parent / "listener")
    write_wav(parent / "tones.wav", play_tones("도파미"))
    return parent


@pytest.fixture(scope="module")
def sound_address(folder: Path) -> Iterator[str]:
    """The address of a server that shows three tones."""
    with serve_page(str(folder / "listener"), str(folder / "tones.wav")) as printed:
        yield printed


def drag_over(shown: ShownPage, start: float, end: float, seconds: float = SECONDS) -> None:
    """Drag the mouse over the audio, from one second to another."""
    canvas = shown.page.locator("canvas[data-sound]")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    xs = [box["x"] + box["width"] * time / seconds for time in (start, (start + end) / 2, end)]
    shown.page.mouse.move(xs[0], box["y"] + 30)
    shown.page.mouse.down()
    for x in xs[1:]:
        shown.page.mouse.move(x, box["y"] + 30)
    shown.page.mouse.up()


def wait_for_sound(shown: ShownPage) -> None:
    shown.page.wait_for_selector("[data-action=play-sound]:not([disabled])")
    shown.page.wait_for_function("() => document.querySelector('audio').readyState >= 3")


def read_transcripts(shown: ShownPage) -> tuple[str, str]:
    shown.page.wait_for_selector("[data-transcript=edited]")
    return tuple(shown.page.locator(f"[data-transcript={side}]").inner_text() for side in ("clean", "edited"))


def measure_colour(shown: ShownPage, second: float) -> list[int]:
    """Return the colour of the canvas near its top at a moment of the audio."""
    return shown.page.evaluate(
        "share => { const canvas = document.querySelector('canvas[data-sound]');"
        " const copy = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });"
        " copy.drawImage(canvas, -Math.floor(canvas.width * share), -4);"
        " return [...copy.getImageData(0, 0, 1, 1).data].slice(0, 3) }",
        second / SECONDS,
    )


def test_the_audio_plays_and_its_words_are_followed(open_page: OpenPage, sound_address: str) -> None:
    shown = open_page(sound_address)
    wait_for_sound(shown)
    assert shown.page.evaluate(READ_PLAYER) == [0, pytest.approx(SECONDS, abs=0.01)]
    assert shown.page.locator(".jk-spoken-words button").all_inner_texts() == ["도", "파", "미"]
    assert shown.page.locator(".jk-spoken").count() == 0  # silence
    assert shown.page.locator("[data-sequence=source]").count() == 0  # no chips for 80 times

    shown.page.evaluate(RECORD_WORDS)
    shown.page.click("[data-action=play-sound]")
    shown.page.wait_for_function("() => document.querySelector('audio').ended")
    spoken = shown.page.evaluate("() => window.spokenWords")
    assert [word for word, _ in spoken] == ["도", "파", "미"]
    assert 0.05 < spoken[0][1] < spoken[1][1] < spoken[2][1] < SECONDS
    assert "Play" in shown.page.locator("[data-action=play-sound]").inner_text()


def test_a_word_is_chosen_with_its_attention(open_page: OpenPage, sound_address: str) -> None:
    shown = open_page(sound_address)
    wait_for_sound(shown)
    shown.page.click("[data-word='0']")
    shown.page.wait_for_selector(".jk-spoken:text-is('도')")
    first = measure_colour(shown, 0.2)
    shown.page.click("[data-word='2']")
    shown.page.wait_for_selector(".jk-spoken:text-is('미')")
    assert shown.page.evaluate(READ_PLAYER)[0] == pytest.approx(0.82, abs=0.05)
    assert shown.read_link()["selection"]["query"] == 4  # the row that writes "␣", of which the word begins
    # the weights of the word are orange where it is heard: more red than blue
    later, earlier = measure_colour(shown, 0.94), measure_colour(shown, 0.2)
    assert later[0] - later[2] > 60 > earlier[0] - earlier[2] and first[0] - first[2] > 60
    shown.page.click("[data-listening=head]")
    shown.page.wait_for_selector("[data-listening=head][aria-pressed=true]")
    assert "Next token" in shown.page.locator(".jk-predictions h2").inner_text()


def test_a_hidden_stretch_changes_the_transcript(open_page: OpenPage, sound_address: str) -> None:
    shown = open_page(sound_address)
    wait_for_sound(shown)
    drag_over(shown, 0.465, 0.695)
    button = shown.page.locator("[data-action=hide-sound]")
    assert button.inner_text() == "Knock out 0.46–0.70 s"
    button.click()
    shown.wait_for_edits(1)  # one change, though every attention has its own edit
    clean, edited = read_transcripts(shown)
    assert clean == "도 파 미" and edited.split()[0] == "도" and edited.split()[1] != "파" and edited.split()[2] == "미"
    assert shown.page.locator("[data-transcript=clean] del").all_inner_texts() == ["파"]
    assert shown.page.locator("[data-transcript=edited] ins").all_inner_texts() == [edited.split()[1]]
    assert "Audio hidden · 0.44–0.74 s · 2 attentions" in shown.page.locator(".jk-edit-list").inner_text()
    assert shown.read_link()["edits"] == [edit.to_json() for edit in hide_audio(train_listener().model, 0.46, 0.70)]

    shown.page.click("[data-action=python]")
    shown.page.wait_for_function("() => document.querySelector('[data-action=python]').textContent === 'Copied'")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(shown.page.evaluate("() => navigator.clipboard.readText()"), {})
    assert f"edited transcript: {edited}\n" in printed.getvalue()

    address = shown.page.evaluate("() => location.href")
    again = open_page(address)
    assert read_transcripts(again) == (clean, edited)  # a link keeps the stretch

    shown.page.click("[data-action=undo]")
    shown.wait_for_edits(0)
    shown.page.wait_for_selector("[data-transcript=edited]", state="detached")
    shown.page.click("[data-action=redo]")
    assert read_transcripts(shown) == (clean, edited)
    shown.page.click(".jk-edit-list button")
    shown.wait_for_edits(0)


def test_the_keyboard_plays_selects_and_hides_in_korean(open_page: OpenPage, sound_address: str) -> None:
    shown = open_page(sound_address, locale="ko-KR", color_scheme="dark")
    wait_for_sound(shown)
    canvas = shown.page.locator("canvas[data-sound]")
    assert "스페이스로 재생" in (canvas.get_attribute("aria-label") or "")
    canvas.focus()
    for _ in range(4):
        shown.page.keyboard.press("ArrowRight")
    assert canvas.get_attribute("aria-valuenow") == "0.4"
    for _ in range(3):
        shown.page.keyboard.press("Shift+ArrowRight")
    assert shown.page.locator("[data-action=hide-sound]").inner_text() == "0.40–0.70초 숨기기"
    assert "고른 구간: 0.40초부터 0.70초까지" in shown.page.locator(".jumok > div.jk-live").inner_text()
    shown.page.keyboard.press("Delete")
    shown.wait_for_edits(1)
    assert read_transcripts(shown)[1] != "도 파 미"
    assert "숨긴 소리" in shown.page.locator(".jk-edit-list").inner_text()
    shown.page.keyboard.press("Control+z")
    shown.wait_for_edits(0)
    shown.page.keyboard.press("Home")
    shown.page.keyboard.press(" ")
    shown.page.wait_for_function("() => document.querySelector('audio').currentTime > 0.05")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_function("() => document.querySelector('audio').paused")
    shown.page.locator("[data-word='0']").focus()
    shown.page.keyboard.press("ArrowRight")
    assert shown.page.evaluate("() => document.activeElement.textContent") == "파"


def test_other_views_work_on_audio(open_page: OpenPage, sound_address: str) -> None:
    shown = open_page(sound_address)
    shown.page.click('[data-head="0.0"]')  # the encoder
    shown.wait_for_map()
    assert shown.page.locator("[data-listening=head]").is_disabled()
    for view, selector in (("lines", ".jk-lines"), ("computation", ".jk-steps tbody tr"), ("generation", ".jk-new")):
        shown.page.click(f"[data-view={view}]")
        shown.page.wait_for_selector(selector)
    shown.page.click("[data-view=effect]")
    shown.page.click("text=Measure all heads")
    shown.page.wait_for_selector(".jk-effect-bars button")


def test_a_saved_file_plays_without_a_network(open_page: OpenPage, folder: Path, tmp_path: Path) -> None:
    edits = tuple(hide_audio(train_listener().model, 0.46, 0.70))
    start = Start(str(folder / "listener"), str(folder / "tones.wav"), edits=edits)
    shown = open_page(save_html(tmp_path / "tones.html", start).as_uri(), offline=True)
    wait_for_sound(shown)
    assert shown.page.evaluate(READ_PLAYER)[1] == pytest.approx(SECONDS, abs=0.01)
    clean, edited = read_transcripts(shown)
    assert clean == "도 파 미" and edited != clean
    assert shown.page.locator("[data-action=hide-sound]").count() == 0  # a file cannot run a model
    shown.page.evaluate(RECORD_WORDS)
    shown.page.click("[data-action=play-sound]")
    shown.page.wait_for_function("() => document.querySelector('audio').ended")
    assert [word for word, _ in shown.page.evaluate("() => window.spokenWords")] == ["도", "파", "미"]
    shown.page.click("[data-word='2']")
    colour = measure_colour(shown, 0.94)
    assert colour[0] - colour[2] > 60
    shown.page.click("[data-listening=head]")
    shown.page.wait_for_selector("[data-listening=head][aria-pressed=true]")


@pytest.mark.slow
def test_whisper_hears_other_words_without_a_stretch(open_page: OpenPage, tmp_path: Path) -> None:
    folder = find_converted_folder(Path(download_or_skip("whisper-tiny-en")))
    try:
        speech = flite.speak("It was the best of times, it was the worst of times.", voice="slt")
    except ArgumentError as error:
        pytest.skip(str(error))
    seconds = len(speech.samples) / 16_000
    path = write_wav(tmp_path / "times.wav", torch.as_tensor(speech.samples))
    with serve_page(str(folder), str(path)) as address:
        shown = open_page(address)
        wait_for_sound(shown)
        words = shown.page.locator(".jk-spoken-words button").all_inner_texts()
        assert " ".join(words).lower().startswith("it was the best of times")
        best = next(word for word in speech.words if word.text.lower() == "best")
        assert shown.page.evaluate(READ_PLAYER)[1] == pytest.approx(seconds, abs=0.01)
        shown.page.click(f"[data-word='{words.index('best')}']")
        shown.page.wait_for_selector(".jk-spoken:text-is('best')")
        assert shown.page.evaluate(READ_PLAYER)[0] == pytest.approx(best.start, abs=0.15)
        drag_over(shown, best.start, best.end, seconds)
        shown.page.click("[data-action=hide-sound]")
        clean, edited = read_transcripts(shown)
        assert "best" in clean and "best" not in edited and "worst of times" in edited
        shown.page.click("[data-action=undo]")
        shown.page.wait_for_selector("[data-transcript=edited]", state="detached")
