"""Open the built site in Chromium as a reader would, and fail if something is wrong: ``check_site.py site``.

Sizes and times are those of the first visit to the home page over HTTP. Everything else is checked from disk: contrast,
alternative texts, names in the accessibility tree, sizes of controls, requests, horizontal scrolling, the search, the
translator, and that the exercises of the lessons say what ``jumok check`` says.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "page"))

from chromium import ARGUMENTS, MISSING, find_browser  # noqa: E402

from jumok.errors import ArgumentError  # noqa: E402
from jumok.lab.exercises import EXERCISES, NumberExercise, QuizExercise, WordExercise, check_answer  # noqa: E402
from jumok.translation import translate  # noqa: E402

MOST_BYTES = 2_000_000  # of the home page, with the engine and the model of the translator
MOST_SECONDS = 1.0  # until something is painted
LEAST_CONTRAST = 4.5
HOME = "index.html"
API_PAGES = ("jumok.html", "jumok.lens.html")  # the others look the same
LANGUAGES = {"en": "", "ko": "ko/"}
SCREENS: tuple[dict[str, Any], ...] = (
    {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
    {"viewport": {"width": 1440, "height": 900}},
)
# in the accessibility tree, elements with these roles need a name
NAMED_ROLES = {"button", "link", "textbox", "searchbox", "checkbox", "radio", "slider", "combobox", "image", "dialog"}
LESSONS = ("course/d0", "course/d1", "course/d2", "course/d3", "course/d4", "speech", "retrieval")
VERDICTS = {"en": ("Right. ", "Not yet. "), "ko": ("맞습니다. ", "아직 아닙니다. ")}
SENTENCE, WITHOUT_SHE = "그녀는 어제 도서관에서 책을 읽었다", "I read a book at the library yesterday"

FIND_PROBLEMS = Path(__file__).with_name("find_problems.js").read_text(encoding="utf-8")


class Handler(SimpleHTTPRequestHandler):
    """Serves the site without a line for each request."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing."""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@contextmanager
def open_page(browser: Browser, problems: list[str], **settings: Any) -> Iterator[Page]:
    """Open an empty page, and collect what goes wrong in it."""
    context = browser.new_context(**settings)
    page = context.new_page()

    def report(problem: str) -> None:
        problems.append(f"{page.url}: {problem}")

    page.on("console", lambda message: report(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: report(str(error)))
    # a request that the next page ends is no failure
    page.on(
        "requestfailed", lambda request: None if request.failure == "net::ERR_ABORTED" else report(request.url[:120])
    )
    page.on("request", lambda request: None if is_local(request.url) else report(f"external request: {request.url}"))
    yield page
    context.close()


def is_local(address: str) -> bool:
    """Return whether an address is on this machine."""
    return address.startswith(("file:", "data:", "blob:", "http://127.0.0.1:"))


def measure_home(browser: Browser, address: str, prefix: str, problems: list[str]) -> str:
    """Load the home page as a new visitor, and describe its bytes and its first paint."""
    sizes: dict[str, int] = {}
    with open_page(browser, problems, **SCREENS[1]) as page:
        page.on(
            "response", lambda response: sizes.update({response.url: int(response.headers.get("content-length", 0))})
        )
        page.goto(f"{address}{prefix}{HOME}", wait_until="networkidle")
        page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length")
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000")
        ready = page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart") / 1000
        before = sum(sizes.values())
        page.hover(".translator")
        page.wait_for_function("() => globalThis.jumokLive?.engine && globalThis.jumokLive?.pack", timeout=30_000)
        page.wait_for_load_state("networkidle")
    after = sum(sizes.values())
    if after > MOST_BYTES:
        problems.append(f"{prefix}{HOME}: {after:,} bytes: {sizes}")
    if paint > MOST_SECONDS:
        problems.append(f"{prefix}{HOME}: first paint after {paint:.2f} s")
    times = f"first paint {paint:.2f} s, loaded {ready:.2f} s"
    return f"{prefix}{HOME}: {before:,} bytes, {times}; with the model {after:,} bytes"


def check_pages(browser: Browser, site: Path, problems: list[str]) -> None:
    """Look at all pages but most of the API, light on a phone and dark on a desk; at the home pages also otherwise."""
    pages = [page for page in sorted(site.rglob("*.html")) if not page.is_relative_to(site / "saved")]
    pages = [page for page in pages if "reference/jumok." not in page.as_posix() or page.name in API_PAGES]
    homes = [site / prefix / HOME for prefix in LANGUAGES.values()]
    visits = (("light", 0, pages), ("dark", 1, pages), ("dark", 0, homes), ("light", 1, homes))
    for theme, size, visited in visits:
        with open_page(browser, problems, color_scheme=theme, **SCREENS[size]) as page:
            for path in visited:
                page.goto(path.as_uri())
                found = page.evaluate(FIND_PROBLEMS, LEAST_CONTRAST) + find_unnamed(page)
                where = f"{path.relative_to(site)} ({theme}, {SCREENS[size]['viewport']['width']})"
                problems += [f"{where}: {problem}" for problem in found]


def find_unnamed(page: Page) -> list[str]:
    """Return the elements of the accessibility tree that a screen reader cannot name."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    shown = [node for node in nodes if not node["ignored"] and node["role"]["value"] in NAMED_ROLES]
    return [f"a {node['role']['value']} without a name" for node in shown if not node["name"].get("value", "").strip()]


def check_search(browser: Browser, site: Path, problems: list[str]) -> None:
    """Search for a class and for a Korean word, from disk."""
    queries = {"": ("Lens", "jumok.Lens"), "ko/": ("인과 마스크", "인과")}
    with open_page(browser, problems) as page:
        for prefix, (query, expected) in queries.items():
            page.goto((site / prefix / HOME).as_uri())
            page.click("[data-action=search]")
            page.fill("#site-search input", query)
            page.wait_for_selector("#site-results a", timeout=10_000)
            first = page.locator("#site-results a").first.inner_text()
            if expected not in first:
                problems.append(f"{prefix}: the search for {query!r} finds {first!r} first")
            with page.expect_navigation():
                page.keyboard.press("Enter")
            if not page.locator("article").count():
                problems.append(f"{prefix}: the search leads nowhere")


def check_translator(browser: Browser, site: Path, problems: list[str]) -> None:
    """Take a word away, type a sentence and take a layer away, from disk."""
    with open_page(browser, problems) as page:
        page.goto((site / HOME).as_uri())

        def expect(condition: str, what: str) -> None:
            try:
                page.wait_for_function(
                    f"() => {{ const text = document.querySelector('.target').innerText; return {condition} }}",
                    timeout=20_000,
                )
            except Exception:
                problems.append(f"translator: {what}: {page.locator('.target').inner_text()!r}")

        def write(text: str) -> str:
            return f"text.replace(/\\s+/g, ' ').includes({text!r})"

        page.click(".source button")
        expect(write(WITHOUT_SHE), "a hidden word changes the translation")
        page.fill(".translator input", "고양이가 물을 마신다")
        expect(write("The cat drinks water"), "a typed sentence is translated")
        page.click(".heads .layer:nth-of-type(2) button")
        page.click(".actions button:nth-of-type(2)")
        expect(f"!({write('The cat drinks water')})", "without the last layer's heads it breaks")


def check_exercises(browser: Browser, site: Path, problems: list[str]) -> int:
    """Answer the exercises of the lessons in the browser, and compare with ``jumok check``; return the answers."""
    count = 0
    with open_page(browser, problems) as page:
        for language, prefix in LANGUAGES.items():
            for lesson in LESSONS:
                page.goto((site / prefix / f"{lesson}.html").as_uri())
                for name, exercise in EXERCISES.items():
                    cell = page.locator(f"[data-cell='{name}']")
                    if name.partition("-")[0] != Path(lesson).name or not isinstance(
                        exercise, NumberExercise | WordExercise | QuizExercise
                    ):
                        continue
                    if not cell.count():
                        problems.append(f"{prefix}{lesson}: no field for {name}")
                    elif isinstance(exercise, QuizExercise):
                        count += check_quiz(page, name, exercise, language, problems)
                    else:
                        for answer in list_answers(exercise):
                            cell.locator("input").fill(answer)
                            cell.locator("button").click()
                            shown = cell.locator(".verdict").inner_text()
                            expected = describe_verdict(name, answer, language)
                            count += 1
                            if " ".join(shown.split()) != " ".join(expected.split()):
                                problems.append(f"{prefix}{name} {answer!r}: {shown!r} instead of {expected!r}")
    return count


def check_quiz(page: Page, name: str, exercise: QuizExercise, language: str, problems: list[str]) -> int:
    """Choose the first options, then the right ones; return the number of answers."""
    right = exercise.compute()
    for options in ([1] * len(right), right):
        for question, option in enumerate(options):
            page.locator(f"[data-cell='{name}'] fieldset").nth(question).locator("input").nth(option - 1).check()
        page.locator(f"[data-cell='{name}'] button").click()
        verdict = check_answer(name, options)
        shown = page.locator(f"[data-cell='{name}'] fieldset .verdict").all_inner_texts()
        expected = [f"{VERDICTS[language][not part.right]}{part.reason.select(language)}" for part in verdict.parts]
        total = page.locator(f"[data-cell='{name}'] .quiz > .verdict").inner_text()
        if shown != expected or total != verdict.reason.select(language):
            problems.append(f"{name} ({language}): {shown} {total!r} instead of {expected}")
    return 2


def list_answers(exercise: NumberExercise | WordExercise) -> list[str]:
    """Return right, wrong and unreadable answers."""
    computed = [exercise.compute(), *(mistake.compute() for mistake in exercise.mistakes)]
    if isinstance(exercise, WordExercise):
        return [*(f" '{next(iter(words)).upper()}' " for words in computed), "zebra's", ""]
    texts = [" ".join(map(repr, map(float, numbers))) for numbers in computed]
    right = list(computed[0])
    larger = ", ".join(str(number + 1234567) for number in right)
    smaller = f"[{' '.join(str(number - 0.00001234 - exercise.tolerance) for number in right)}]"
    return [*texts, larger, smaller, "0", "1,234,567", "256 MB", "1 2 3 4 5 6 7", "abc", "0.5 it's", "inf", "1e999", ""]


def describe_verdict(name: str, answer: str, language: str) -> str:
    """Return what ``jumok check`` says of an answer."""
    right, wrong = VERDICTS[language]
    try:
        verdict = check_answer(name, answer)
    except ArgumentError as error:
        return f"{wrong}{translate(str(error), language)}"
    return f"{right if verdict.right else wrong}{verdict.reason.select(language)}"


def check_files(site: Path, problems: list[str]) -> int:
    """Check what can be seen in the files of all pages; return their number."""
    pages = sorted(site.rglob("*.html"))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        language = "ko" if page.is_relative_to(site / "ko") else "en"
        if page.parent.name != "saved" and f'<html lang="{language}"' not in text:
            problems.append(f"{page.relative_to(site)}: no language")
        if re.search(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"(?:https?:)?//", text):
            problems.append(f"{page.relative_to(site)}: loads something from elsewhere")
        if re.search(r"<img(?![^>]*\balt=)", text):
            problems.append(f"{page.relative_to(site)}: an image without an alternative text")
    return len(pages)


def main() -> None:
    """Check the site in the folder that the command line names."""
    site = Path(sys.argv[1]).resolve()
    path = find_browser()
    if path is None:
        sys.exit(MISSING)
    problems: list[str] = []
    count = check_files(site, problems)
    with sync_playwright() as playwright, serve(site) as address:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        for prefix in LANGUAGES.values():
            sys.stdout.write(f"{measure_home(browser, address, prefix, problems)}\n")
        check_pages(browser, site, problems)
        check_search(browser, site, problems)
        check_translator(browser, site, problems)
        answers = check_exercises(browser, site, problems)
        browser.close()
    sys.stdout.write(f"{count} pages, {answers} answers to exercises, {len(problems)} problems\n")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
