"""Line plots: several side by side share one legend, and a name looks the same in each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jumok.draw import DrawError, LinePanel, save_panel_row
from jumok.draw.line_plot import COLOURS


def test_panels_share_one_legend_and_their_colours(tmp_path: Path) -> None:
    panels = [
        LinePanel({"a": [(1, 2), (2, 3)], "b": [(1, 1), (2, 1)]}, title="left", from_zero=True, mark=2),
        LinePanel({"b": [(4, 10), (1024, 1000)], "empty": []}, title="right", log_across=True, log_vertical=True),
    ]
    image = save_panel_row(tmp_path / "panels.svg", panels).read_text()
    texts = re.findall("<!-- (.+) -->", image)
    assert {"left", "right", "1,024", "1,000"} <= set(texts) and "empty" not in texts
    assert texts.count("a") == texts.count("b") == 1
    lines = re.findall(r"stroke: (#\w{6}); stroke-width: 1.6", image)
    assert lines.count(COLOURS[0]) == 2 and lines.count(COLOURS[1]) == 3  # in the legend, and in one or two plots
    assert "stroke-dasharray" in image  # the mark
    plain = save_panel_row(tmp_path / "plain.svg", [LinePanel({"a": [(1, 2), (2, 3)]})]).read_text()
    assert "stroke-dasharray" not in plain and "<!-- 0.0 -->" not in plain and "<!-- 0.0 -->" in image


def test_a_logarithmic_axis_of_one_decade_has_plain_numbers(tmp_path: Path) -> None:
    panel = LinePanel({"a": [(1, 2.7), (2, 30)]}, log_vertical=True)
    texts = re.findall("<!-- (.+) -->", save_panel_row(tmp_path / "decade.svg", [panel]).read_text())
    assert {"4", "10", "20"} <= set(texts), texts
    assert not any("math" in text for text in texts), texts


def test_no_panel_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DrawError, match="give at least one panel"):
        save_panel_row(tmp_path / "panels.png", [])
