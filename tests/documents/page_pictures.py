"""Draw the pictures of the page for the README and the guide: the real page in a real browser, 1280 x 800.

    python tests/documents/page_pictures.py [--train-image] [--only NAME] [--out FOLDER]

starts ``jumok look --open``, does in Chromium what a reader would do, and writes docs/pictures/page/NAME-LANGUAGE.png.
The pictures of smollm2 and of whisper-tiny-en are drawn only if the catalogue's cache has them; the latter hears a
sentence that flite speaks, and is drawn by ``jumok look --png`` too. The pictures of an image need a trained model,
which ``--train-image`` trains first: 150 steps on MNIST, about two minutes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "page"))  # the driver that the tests of the page use

from chromium import ARGUMENTS, MISSING, find_browser  # noqa: E402
from page_driver import ShownPage, serve_page  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402

from jumok.data.catalogue import locate_entry  # noqa: E402

PICTURES = ROOT / "docs" / "pictures" / "page"
LOCALES = {"en": "en-US", "ko": "ko-KR"}
IS_IDLE = "() => document.querySelector('.jk-task')?.dataset.busy === 'false'"

REPEATED = "the cat sat; the cat"
STORY = "When Mary and John went to the store, John gave a drink to"
OTHER_STORY = "When Mary and John went to the store, Mary gave a drink to"
KOREAN_SENTENCE = "나는 매일 학교에 간다"
SPOKEN = "My brother plays the guitar, and my sister plays the piano."
HIDDEN_WORD = "guitar"
BOOKS = ("carroll-alice.txt", "burgess-busterbrown.txt")
QUESTION = "What did the Caterpillar smoke?"


@dataclass(frozen=True)
class Picture:
    """One picture of the page.

    Attributes:
        name: The beginning of the file's name.
        model: The model that the page opens.
        text: Its input.
        prepare: Does what a reader would do before the picture is taken.
        theme: "light" or "dark".
        languages: The languages of the page.
    """

    name: str
    model: str
    text: str
    prepare: Callable[[ShownPage], None]
    theme: str = "light"
    languages: tuple[str, ...] = ("en", "ko")


def show_first_look(shown: ShownPage) -> None:
    """Change nothing: what a user sees first."""


def edit_a_head(shown: ShownPage) -> None:
    """Ablate the head that copies, and show both maps with their difference."""
    shown.page.click('[data-head="0.1"]')
    shown.page.click("[data-action=ablate]")
    shown.wait_for_edits(1)
    shown.page.click('[data-head="1.0"]')
    shown.page.click("[data-show=all]")
    for name in ("clean", "edited", "difference"):
        shown.wait_for_map(name)


def show_computation(shown: ShownPage) -> None:
    """Show the computation of one row of the head that copies, with all steps."""
    shown.page.click('[data-head="1.0"]')
    shown.page.click("[data-view=computation]")
    shown.page.wait_for_selector(".jk-steps tbody tr")


def measure_effects(shown: ShownPage) -> None:
    """Measure the effects of all heads and of the strongest edges."""
    shown.page.click("[data-view=effect]")
    shown.page.click("[data-action=measure-heads]")
    shown.page.wait_for_selector(".jk-effect-bars li", timeout=300_000)
    shown.page.click("[data-action=measure-edges]")
    shown.page.wait_for_selector(".jk-edge-list li", timeout=300_000)


def show_lines(shown: ShownPage) -> None:
    """Show the weights of the head that copies as lines."""
    shown.page.click('[data-head="1.0"]')
    shown.page.click("[data-view=lines]")
    shown.page.wait_for_function("() => Number(document.querySelector('.jk-lines').dataset.lines) > 0")


def compare_names(shown: ShownPage) -> None:
    """Replace the second name by the first one, and patch the head that restores most of the answer."""
    shown.page.click("[data-action=contrast]")
    shown.page.fill("[data-contrast-input]", OTHER_STORY)
    shown.page.click("[data-action=compare]")
    shown.page.wait_for_selector("[data-value=clean]", timeout=300_000)
    shown.page.click("[data-action=sweep]")
    shown.page.locator("[data-restores] button").first.click(timeout=600_000)
    shown.page.wait_for_selector("[data-value=patched]", timeout=300_000)
    shown.page.set_viewport_size({"width": 1280, "height": 1000})
    shown.page.locator(".jk-pairs-all").evaluate("element => element.scrollIntoView()")


def generate_text(shown: ShownPage) -> None:
    """Let the model continue the text, and go to the third token."""
    generate = shown.page.locator("header").get_by_text("Generate", exact=True)
    generate.or_(shown.page.locator("header").get_by_text("이어 쓰기", exact=True)).click()
    shown.page.wait_for_selector(".jk-new")
    for _ in range(3):
        shown.page.click("[data-action=later]")


def hide_a_word(shown: ShownPage) -> None:
    """Hide the stretch of audio in which a word is spoken, and choose the word that is written in its place."""
    shown.page.set_viewport_size({"width": 1280, "height": 900})
    word = shown.page.locator(".jk-spoken-words button", has_text=HIDDEN_WORD)
    canvas, spoken = shown.page.locator("canvas[data-sound]").bounding_box(), word.bounding_box()
    assert canvas is not None and spoken is not None
    shown.page.mouse.move(spoken["x"], canvas["y"] + 20)
    shown.page.mouse.down()
    shown.page.mouse.move(spoken["x"] + spoken["width"], canvas["y"] + 20, steps=4)
    shown.page.mouse.up()
    shown.page.click("[data-action=hide-sound]")
    shown.page.wait_for_selector("[data-transcript=edited]", timeout=120_000)
    shown.page.locator(".jk-spoken-words button", has_text="sister").click()


TEXT_PICTURES = (
    Picture("first-look", "tiny", REPEATED, show_first_look),
    Picture("first-look-dark", "tiny", REPEATED, show_first_look, theme="dark"),
    Picture("edited", "tiny", REPEATED, edit_a_head),
    Picture("computation", "tiny", REPEATED, show_computation),
    Picture("effect", "tiny", REPEATED, measure_effects),
    Picture("lines", "tiny", REPEATED, show_lines),
    Picture("generation", "tiny", REPEATED, generate_text),
    Picture("translator", "translator", KOREAN_SENTENCE, show_first_look),
)
LARGE_PICTURES = (
    Picture("smollm2", "smollm2", STORY, show_first_look),
    Picture("contrast", "smollm2", STORY, compare_names),
)


def open_and_draw(browser: Browser, address: str, picture: Picture, language: str, path: Path) -> None:
    """Open the page, do what the picture needs, and write the picture.

    Args:
        browser: The browser.
        address: The address of the server.
        picture: The picture.
        language: "en" or "ko".
        path: Where to write it.
    """
    shown = ShownPage(browser, locale=LOCALES[language], color_scheme=picture.theme)
    shown.page.goto(address)
    shown.page.wait_for_selector("canvas[data-map][data-complete=true], .jk-picture canvas", timeout=300_000)
    wait_until_idle(shown)
    picture.prepare(shown)
    wait_until_idle(shown)
    shown.page.mouse.move(1279, 799)  # a pointer over a map shows a value
    shown.page.wait_for_timeout(500)  # the last frame
    shown.page.screenshot(path=path)
    shown.close()
    shrink(path)


def wait_until_idle(shown: ShownPage) -> None:
    """Wait until no run is under way and the kinds of heads have arrived, which are computed last.

    Args:
        shown: The page.
    """
    shown.page.wait_for_function(IS_IDLE, timeout=600_000)
    shown.page.wait_for_selector(".jk-kinds i", timeout=600_000)


def shrink(path: Path) -> None:
    """Write a picture with 256 colours, a third of its size.

    Args:
        path: The picture.
    """
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    # of Pillow's methods the one with the smallest error; dithering would draw dots into the maps
    reduced = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    reduced.save(path, optimize=True)


@contextmanager
def train_image_model(is_trained: bool) -> Iterator[tuple[Picture, ...]]:
    """Train a ViT on handwritten digits in a temporary folder, and yield the pictures that it makes possible.

    Args:
        is_trained: Whether to train it; without it there are no such pictures.
    """
    if not is_trained:
        yield ()
        return
    with TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "jumok", "train", "image", "--data", "mnist", "--steps", "150"]
        subprocess.run([*command, "--out", str(folder / "vit")], check=True)
        # the run keeps one image that it did not train on
        yield (Picture("image", str(folder / "vit"), str(folder / "vit" / "example.png"), show_first_look),)


@contextmanager
def speak_sentence(draws_audio: bool) -> Iterator[tuple[Picture, ...]]:
    """Speak a sentence into a temporary file, and yield the pictures that it makes possible."""
    if not draws_audio or locate_entry("whisper-tiny-en") is None:
        yield ()
        return
    import torch

    from jumok.data.audio import flite
    from jumok.web.input_media import write_wav

    with TemporaryDirectory() as name:
        path = Path(name) / "talk.wav"
        path.write_bytes(write_wav(torch.as_tensor(flite.speak(SPOKEN, voice="slt").samples)))
        yield (Picture("audio", "whisper-tiny-en", str(path), hide_a_word),)


def draw_answers(browser: Browser, folder: Path) -> None:
    """Draw an answer from two books, beside its passages, without the passage that it cites.

    Args:
        browser: The browser.
        folder: Where to write the pictures.
    """
    books = locate_entry("gutenberg")
    if books is None or locate_entry("smollm2") is None or locate_entry("minilm") is None:
        return
    with TemporaryDirectory() as name:
        notes = Path(name) / "books"
        notes.mkdir()
        for book in BOOKS:
            shutil.copy(books / book, notes)
        with serve_page(str(notes), QUESTION, command="ask") as address:
            for language, locale in LOCALES.items():
                shown = ShownPage(browser, locale=locale)
                shown.page.set_viewport_size({"width": 1280, "height": 900})
                shown.page.goto(address)
                shown.page.wait_for_selector(".jk-controls", timeout=600_000)  # measured last
                shown.page.click("[data-passage='0'] button")
                shown.page.wait_for_selector(".jk-sentence[data-done=true]", timeout=300_000)
                shown.page.wait_for_timeout(500)  # the last frame
                target = folder / f"answer-{language}.png"
                shown.page.screenshot(path=target)
                shown.close()
                shrink(target)
                sys.stdout.write(f"{target.name} {target.stat().st_size // 1000} KB\n")


def draw_listening_maps(picture: Picture, folder: Path) -> None:
    """Draw the spectrogram of the sentence with its words and the cross-attention, as ``jumok look --png`` does.

    Args:
        picture: The picture of the page with the same audio.
        folder: Where to write the pictures.
    """
    for language in picture.languages:
        path = folder / f"speech-{language}.png"
        options = ["--language", language, "--png", str(path)]
        command = [sys.executable, "-m", "jumok", "look", picture.model, picture.text, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        shrink(path)


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description="Draw the pictures of the page.")
    parser.add_argument("--train-image", action="store_true", help="train an image model, and draw its picture")
    parser.add_argument("--only", help="draw only pictures whose name begins like this")
    parser.add_argument("--out", type=Path, default=PICTURES, help="the folder of the pictures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = find_browser()
    if path is None:
        sys.exit(MISSING)
    with (
        sync_playwright() as playwright,
        train_image_model(options.train_image) as image_pictures,
        speak_sentence(draws_audio=not options.only or "audio".startswith(options.only)) as audio_pictures,
    ):
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        if not options.only or "answer".startswith(options.only):
            draw_answers(browser, options.out)
        large = LARGE_PICTURES if locate_entry("smollm2") is not None else ()
        for picture in (*TEXT_PICTURES, *large, *image_pictures, *audio_pictures):
            if options.only and not picture.name.startswith(options.only):
                continue
            if picture in audio_pictures:
                draw_listening_maps(picture, options.out.parent)
            with serve_page(picture.model, picture.text) as address:
                for language in picture.languages:
                    target = options.out / f"{picture.name}-{language}.png"
                    open_and_draw(browser, address, picture, language, target)
                    sys.stdout.write(f"{target.name} {target.stat().st_size // 1000} KB\n")
        browser.close()


if __name__ == "__main__":
    main()
