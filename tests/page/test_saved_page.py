"""The page as one file, opened from disk without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from page_driver import ShownPage
from page_models import save_long_model

import jumok
from jumok.lens import Ablate, KnockOut
from jumok.web.saved_file import save_html
from jumok.web.session import Start

pytestmark = pytest.mark.xdist_group("page")

OpenPage = Callable[..., ShownPage]
TEXT = "the cat sat; the cat"


def test_a_saved_run_with_edits_has_both_sides_and_every_view(open_page: OpenPage, tmp_path: Path) -> None:
    edit = KnockOut(layer=0, head=0, query=19, key=18)
    path = save_html(tmp_path / "saved.html", Start("tiny", TEXT, edits=(edit,)))
    shown = open_page(path.as_uri(), offline=True)
    shown.page.click('[data-head="1.0"]')
    with jumok.Lens("tiny") as lens:
        clean, edited = lens.run(TEXT).weights(1, 0), lens.run(TEXT, edits=[edit]).weights(1, 0)
    shown.page.click("[data-show=clean]")
    shown.wait_for_map("clean")
    assert shown.point_at_cell(19, 7).endswith(f"{clean[19, 7]:.4f}")
    shown.page.click("[data-show=edited]")
    shown.wait_for_map("edited")
    assert shown.point_at_cell(19, 7).endswith(f"{edited[19, 7]:.4f}")
    shown.page.click("[data-show=all]")
    shown.wait_for_map("difference")
    assert shown.page.locator(".jk-edit-list li").count() == 1
    assert shown.page.locator("[data-action=ablate]").count() == 0  # a file cannot run a model

    shown.page.click("[data-view=lines]")
    shown.page.wait_for_function("() => Number(document.querySelector('.jk-lines').dataset.lines) > 0")
    shown.page.click("[data-view=computation]")
    shown.page.wait_for_selector(".jk-steps tbody tr")
    shown.page.click("[data-view=generation]")
    shown.page.wait_for_selector(".jk-new")
    shown.page.click("[data-action=every-head]")
    shown.page.wait_for_selector(".jk-every-head tr")
    shown.page.click("[data-view=map]")
    shown.wait_for_map("difference")
    shown.point_at_cell(19, 7)
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_selector(f'[data-cell-head="1.0"]:has-text("{edited[19, 7]:.4f}")')
    assert shown.page.locator("[data-cell-head]").count() == 4
    assert shown.page.locator("[data-action=measure-cell]").count() == 0  # nor measure
    shown.page.click("[data-action=language]")
    assert "저장한 파일" in shown.page.locator(".jk-note").first.inner_text()
    shown.page.click("[data-action=python]")
    shown.page.wait_for_function("() => document.querySelector('[data-action=python]').textContent === '복사했습니다'")


def test_the_page_saves_what_it_shows(open_page: OpenPage, address: str) -> None:
    shown = open_page(address)
    shown.page.click('[data-head="0.1"]')
    shown.page.click("[data-action=ablate]")
    shown.wait_for_edits(1)
    with shown.page.expect_download() as download:
        shown.page.click("text=Save as HTML")
    path = Path(download.value.path()).rename(Path(download.value.path()).with_suffix(".html"))
    saved = open_page(path.as_uri(), offline=True)
    assert saved.read_predictions("edited") == shown.read_predictions("edited")
    with jumok.Lens("tiny") as lens:
        weights = lens.run(TEXT, edits=[Ablate(layer=0, head=1)]).weights(1, 0)
    saved.page.click('[data-head="1.0"]')
    saved.page.click("[data-show=edited]")
    saved.wait_for_map("edited")
    assert saved.point_at_cell(19, 7).endswith(f"{weights[19, 7]:.4f}")


@pytest.mark.slow
def test_tiles_of_a_long_text_are_computed_in_the_file(open_page: OpenPage, tmp_path: Path) -> None:
    folder = save_long_model(tmp_path / "long")
    text = ("the quick brown fox " * 400)[:6144]  # the complete maps of four heads would not fit
    path = save_html(tmp_path / "long.html", Start(str(folder), text), layer="1", head=1)
    shown = open_page(path.as_uri(), offline=True)
    assert path.stat().st_size < 32e6 and b'"form":"qk"' in path.read_bytes()
    box = shown.page.locator("canvas[data-map]").bounding_box()
    assert box is not None
    shown.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.9)
    for _ in range(30):
        shown.page.mouse.wheel(0, -400)
    shown.wait_for_map()
    shown.page.wait_for_function("() => /: [0-9]/.test(document.querySelector('.jk-value').textContent)")
    written = shown.page.locator(".jk-value").inner_text()
    query, key = (int(part.split("]")[0]) for part in written.split("[")[1:3])
    with jumok.Lens(str(folder)) as lens:
        row = lens.run(text).row(1, 1, query)
    number = float(written.rpartition(": ")[2].split(" ")[0].replace("−", "-"))
    assert number == pytest.approx(float(row[key]), rel=0.006)
