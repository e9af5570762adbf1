"""What the panels of the page have room for: many heads, 48 tokens, narrow windows, whole vectors, progress."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from page_driver import ShownPage, serve_page
from page_models import save_wide_model

import jumok
from jumok.lens.effects.metrics import LogitDifference

pytestmark = pytest.mark.xdist_group("page")

TEXT = "the cat sat; the dog sat; the cat ran; the dog r"  # 48 tokens
TINY_TEXT = "the cat sat; the cat"  # of the server that shows tiny
SOURCES = Path(__file__).parents[2] / "page" / "src"
OpenPage = Callable[..., ShownPage]
# whether an element is completely inside of a panel
IS_INSIDE = """([inner, outer]) => {
    const [a, b] = [inner, outer].map((selector) => document.querySelector(selector).getBoundingClientRect());
    return a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
}"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_wide_model(tmp_path_factory.mktemp("models") / "wide")


@pytest.fixture(scope="module")
def wide(model: Path) -> Iterator[str]:
    """The address of a server that shows a model of 6 layers with 16 heads."""
    with serve_page(str(model), TEXT) as printed:
        yield printed


def test_many_heads_the_selected_one_and_the_text_are_in_view(wide: str, open_page: OpenPage) -> None:
    shown = open_page(wide)
    # a map of 48 tokens has the labels of tokens, if not of all
    assert shown.page.locator("canvas[data-map]").get_attribute("data-labels") in ("all", "some")
    last = shown.page.locator(".jk-layer").last
    assert last.locator(".jk-head").count() == 16
    assert shown.page.evaluate(
        "() => { const panel = document.querySelector('.jk-grid').getBoundingClientRect();"
        " return [...document.querySelectorAll('.jk-head')]"
        ".every((head) => head.getBoundingClientRect().right <= panel.right); }"
    )
    shown.page.set_viewport_size({"width": 1280, "height": 420})  # neither heads nor text fit
    for key in ("0.0", "5.15"):
        shown.page.locator(f'[data-head="{key}"]').evaluate("head => head.click()")
        shown.page.wait_for_function(IS_INSIDE, arg=[f'[data-head="{key}"]', ".jk-grid"])
    shown.page.fill("textarea", TEXT * 5)
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_function("() => document.querySelectorAll('.jk-chip').length === 240")
    shown.page.wait_for_function(IS_INSIDE, arg=['[data-position="239"]', ".jk-sequences"])
    for width in (701, 850):
        shown.page.set_viewport_size({"width": width, "height": 800})
        box = shown.page.locator("header textarea").bounding_box()
        assert box is not None and box["width"] > 400
        assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_an_ablated_head_is_marked_in_its_map(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="1.0"]')
    shown.page.click("[data-action=ablate]")
    shown.wait_for_edits(1)
    shown.wait_for_map("edited")
    canvas = shown.page.locator("canvas[data-map]")
    assert canvas.get_attribute("data-ablated") == "true"
    assert "its output is replaced by zeros" in shown.page.locator(".jk-head-hint").inner_text()
    shown.page.click('[data-head="1.1"]')
    shown.page.wait_for_selector("canvas[data-ablated=false]")


def test_the_computation_marks_the_chosen_key_and_lists_whole_vectors(
    wide: str, open_page: OpenPage, model: Path
) -> None:
    shown = open_page(wide)
    shown.page.click('[data-head="0.0"]')
    shown.page.click(".jk-weights button >> nth=3")
    key = shown.read_link()["selection"]["key"]
    shown.page.click("[data-view=computation]")
    chosen = shown.page.locator(".jk-steps tr[aria-current=true]")
    chosen.wait_for()
    assert chosen.locator("th small").inner_text() == str(key)
    chosen.locator(".jk-vector").first.click()
    numbers = shown.page.locator(".jk-all-numbers li").all_inner_texts()
    with jumok.Lens(str(model)) as lens:
        vector = lens.run(TEXT).attentions["blocks.0.attention"].calls[0].key[0, 0, key]
    read = [float(text.split()[1].replace("−", "-")) for text in numbers]
    assert read == pytest.approx(vector.tolist(), rel=1e-3, abs=1e-6)


def test_effects_are_measured_as_they_are_chosen(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    shown.page.click('[data-sequence=source] [data-position="7"]')
    shown.page.click("[data-view=effect]")
    shown.page.select_option("[data-action=metric]", "logit-difference")
    shown.page.fill("[data-action=metric-token]", "␣")
    shown.page.fill("[data-action=metric-other]", "s")
    shown.page.select_option("[data-action=metric-position]", "7")
    shown.page.select_option("[data-action=ablation]", "mean")
    shown.page.click("[data-action=measure-heads]")
    line = shown.page.locator(".jk-metric-line")
    line.wait_for()
    effects = jumok.effect("tiny", TINY_TEXT, metric=LogitDifference(" ", "s", 7), by="mean")
    strongest = max(effects, key=lambda effect: abs(effect.effect))
    assert "minus that of token 's' at position 7" in line.inner_text() and "a mean over positions" in line.inner_text()
    first = shown.page.locator(".jk-effect-bars li").first.inner_text()
    assert f"layer {strongest.layer}, head {strongest.head}" in first and f"{abs(strongest.effect):.2f}" in first
    shown.page.fill("[data-action=metric-other]", "no token")
    shown.page.click("[data-action=measure-heads]")
    shown.page.wait_for_selector(".jk-error >> text=a metric needs a single token")


def test_heads_of_a_cell_and_sums_of_several(address: str, open_page: OpenPage) -> None:
    shown = open_page(address)
    with jumok.Lens("tiny") as lens:
        capture = lens.run(TINY_TEXT)
        weights = {f"{layer}.{head}": capture.weights(layer, head) for layer in (0, 1) for head in (0, 1)}
    shown.page.click('[data-head="1.0"]')
    shown.point_at_cell(19, 7)
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_selector("[data-cell-head]")
    order = [row.get_attribute("data-cell-head") for row in shown.page.locator("[data-cell-head]").all()]
    assert order == sorted(weights, key=lambda name: -float(weights[name][19, 7]))
    shown.page.click("[data-action=measure-cell]")
    shown.page.wait_for_selector(".jk-cell-effect")
    (row,) = jumok.effect("tiny", TINY_TEXT, over="edges", verify=None)[:1]
    assert (row.layer, row.head, row.query, row.key) == (1, 0, 19, 7)
    assert f"{abs(row.effect):.2f}" in shown.page.locator(".jk-cell-effect").first.inner_text()

    shown.page.click(".jk-token [aria-pressed] >> nth=0")  # the weights of this head
    shown.page.click("[data-action=several]")
    shown.page.click('[data-head="0.1"]')
    shown.page.click('[data-sequence=source] [data-position="11"]')
    shown.page.wait_for_selector("text=Sum over 2 tokens and 2 heads")
    total = sum(weights[name][query] for name in ("1.0", "0.1") for query in (19, 11))
    largest = shown.page.locator(".jk-weights").first.locator("li").first
    shown.page.wait_for_function(
        "text => document.querySelector('.jk-weights .jk-number').textContent === text", arg=f"{float(total.max()):.4f}"
    )
    assert largest.locator("small").inner_text() == str(int(total.argmax()))
    shown.page.click("text=Only one")
    shown.page.wait_for_selector("text=Sum over", state="detached")


SLOW_LAYERS = """
import time
from jumok import cli
from jumok.web import opened_model

def compute_slowly(*arguments, **settings):
    time.sleep(3)
    return compute_thumbnails(*arguments, **settings)

opened_model.PREVIEW_SECONDS = 0
compute_thumbnails, opened_model.compute_thumbnails = opened_model.compute_thumbnails, compute_slowly
cli.main()
"""


def test_a_slow_run_shows_its_layers_as_they_are_computed(open_page: OpenPage) -> None:
    with serve_page("tiny", "the cat sat", program=("-c", SLOW_LAYERS)) as address:
        shown = open_page(address, ready="[data-previews] canvas[data-loaded=true]")
        assert "layer computed so far" in shown.page.locator(".jk-heads").inner_text()
        shown.wait_for_map()
        assert shown.page.locator("[data-previews]").count() == 0
        assert shown.page.locator(".jk-head canvas[data-loaded=true]").count() == 4


def test_progress_covers_nothing(wide: str, open_page: OpenPage) -> None:
    shown = open_page(wide)
    shown.page.fill("textarea", "the cat sat; " * 9)  # long enough that the measurement is seen on any machine
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_function("() => document.querySelectorAll('.jk-chip').length > 100")
    shown.wait_for_map()
    shown.page.click("[data-view=effect]")
    shown.page.click("[data-action=measure-edges]")
    progress = shown.page.locator("header .jk-task-line")
    progress.wait_for()
    box = progress.bounding_box()
    assert box is not None
    assert shown.page.evaluate(
        "({x, y, width, height}) => [[x, y], [x + width, y], [x, y + height], [x + width / 2, y + height / 2]]"
        ".every(([left, top]) => document.querySelector('.jk-header').contains(document.elementFromPoint(left, top)))",
        box,
    )
    progress.locator("button").click()
    shown.page.wait_for_selector(".jk-task[data-busy=false]", state="attached")


def test_frames_of_kinds_stand_out_from_their_panel() -> None:
    style = (SOURCES / "style.css").read_text("utf-8")
    panels = re.findall(r"--panel: (#\w{6})", style)
    colours = (SOURCES / "colour.ts").read_text("utf-8").partition("KIND_COLOURS")[2].partition("};")[0]
    themes = [re.findall(r'(\w+): "(#\w{6})"', block) for block in colours.split("},")[:2]]
    assert [len(theme) for theme in themes] == [12, 12]
    for panel, theme in zip(panels, themes, strict=True):
        low = {kind: contrast for kind, colour in theme if (contrast := compute_contrast(colour, panel)) < 3}
        assert not low


def compute_contrast(*colours: str) -> float:
    """Return the contrast of two colours, as WCAG defines it."""

    def linearize(level: int) -> float:
        share = level / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    low, high = sorted(
        0.2126 * red + 0.7152 * green + 0.0722 * blue
        for red, green, blue in (map(linearize, bytes.fromhex(colour[1:])) for colour in colours)
    )
    return (high + 0.05) / (low + 0.05)
