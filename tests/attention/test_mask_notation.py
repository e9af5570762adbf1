"""Masks in notebooks, and what the parser suggests for a mistake."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from jumok.attention import mask
from jumok.attention.mask.base import MASK_FUNCTIONS
from jumok.attention.mask.notation import ALLOWED, FORBIDDEN, evaluate_cells
from jumok.errors import ArgumentError

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("window", "window needs arguments: did you mean window(64)?"),
        ("causal & window", "'window' is not a mask; window needs arguments: did you mean window(64)?"),
        ("padding", "did you mean padding([5, 3])?"),
        ("windw(3)", "did you mean window(64)?"),
        ("Window(3)", "did you mean window(64)?"),
        ("casual", "did you mean causal?"),
        ("causal()", "did you mean causal, without parentheses?"),
        ("causal and window(3)", "join masks with & | ~, not with and, or, not"),
        ("not causal", "join masks with & | ~, not with and, or, not"),
        ("causal, window(3)", "join masks with & | ~, not with commas"),
        ("window()", "write window(n), for example window(64)"),
        ("global_at()", "write global_at(positions), for example global_at([0])"),
        ("17", "choose from causal, window(64), prefix(4), "),
    ],
)
def test_a_mistake_suggests_what_to_write(text: str, suggestion: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        mask.parse(text)
    assert suggestion in str(raised.value)


def test_every_example_is_a_mask() -> None:
    assert set(mask.__all__) == {"Mask", "parse", "causal", "given", *MASK_FUNCTIONS}
    for name, (_, example) in MASK_FUNCTIONS.items():
        assert example.startswith(name) and isinstance(mask.parse(example), mask.Mask)


@pytest.mark.parametrize(
    "expression", ["causal & window(3)", "window(2) | global_at([0])", "~blocks(3)", "padding([3])", "window(100)"]
)
def test_a_notebook_shows_the_cells_of_a_mask(expression: str) -> None:
    parsed = mask.parse(expression)
    drawing = ElementTree.fromstring(parsed._repr_svg_())
    colours = [square.attrib["fill"] for square in drawing.iter(f"{SVG}rect")]
    expected = [ALLOWED if allowed else FORBIDDEN for row in evaluate_cells(parsed) for allowed in row]
    assert colours == expected
    texts = [text.text for text in drawing.iter(f"{SVG}text")]
    assert texts[0] == repr(parsed)
    assert ("the first 32 of" in (texts[1] or "")) == (expression == "window(100)")


def test_drawing_a_mask_in_a_notebook_imports_no_drawing_library() -> None:
    program = (
        "import sys; from jumok.attention import mask\n"
        "assert mask.causal._repr_svg_().startswith('<svg')\n"
        "assert not {'matplotlib', 'jumok.draw'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
