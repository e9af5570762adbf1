"""Tests of jumok.draw: terminal maps, images, fonts, and error messages."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from rich.cells import cell_len

from jumok import draw
from jumok.draw import figure, panel
from jumok.errors import JumokError

ENGLISH = ["<bos>", "The", "cat", "sat", "on", "the", "doormat"]
KOREAN = ["▁나는", "▁오늘", "▁학교에", "서", "▁공부했", "다."]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def causal_weights(count: int, heads: int | None = None, seed: int = 0) -> numpy.ndarray:
    """Random causal attention weights [head, query, key], or [query, key] without heads."""
    scores = numpy.random.default_rng(seed).normal(size=(heads or 1, count, count)) * 1.5
    weights = numpy.exp(scores) * numpy.tril(numpy.ones((count, count)))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights if heads else weights[0]


@pytest.fixture
def hangul() -> Path:
    """A font with Hangul. Where koreanize_matplotlib is installed a font must be found, so no skip there."""
    file = draw.find_hangul_font()
    if file is None and importlib.util.find_spec("koreanize_matplotlib") is None:
        pytest.skip("neither a Hangul font nor koreanize_matplotlib is installed")
    assert file is not None
    return file


def read_pixels(path: Path) -> numpy.ndarray:
    from PIL import Image

    with Image.open(path) as image:
        return numpy.asarray(image.convert("RGB")).astype(int)


# Terminal


def test_terminal_shows_labels_values_and_zeros() -> None:
    text = draw.render_terminal_heat_map(
        [[1, 0], [0.472, 0.528]], ["I", "am"], ["I", "am"], title="head 0", color=False
    )
    lines = text.split("\n")
    assert lines[0] == "head 0"
    assert lines[1].split() == ["I", "am"]
    assert lines[2].split() == ["I", "1.00", "·"]
    assert lines[3].split() == ["am", "0.47", "0.53"]
    assert "\x1b" not in text


def test_terminal_distinguishes_zero_from_small_weights() -> None:
    text = draw.render_terminal_heat_map([[0.001, 0.0, -0.00005, 1.00005]], ["q"], list("abcd"), color=False)
    assert text.split("\n")[1].split() == ["q", "0.00", "·", "·", "1.00"]


def test_terminal_color_does_not_change_the_text() -> None:
    plain = draw.render_terminal_heat_map(causal_weights(7), ENGLISH, ENGLISH, color=False)
    colored = draw.render_terminal_heat_map(causal_weights(7), ENGLISH, ENGLISH)
    assert ESCAPES.sub("", colored) == plain
    first_row = colored.split("\n")[1]
    assert "\x1b[38;5;231;48;5;18m" in first_row  # white on dark for 1.00
    assert "\x1b[2m" in first_row  # faint zeros
    light = draw.render_terminal_heat_map([[0.05]], ["a"], ["a"])
    assert "\x1b[38;5;16;48;5;189m" in light  # black on light


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [None, 80, 60, 30])
def test_terminal_aligns_korean_and_english(color: bool, width: int | None) -> None:
    labels = [*KOREAN, "그리고", "attention", "."]
    text = draw.render_terminal_heat_map(causal_weights(9), labels, labels, color=color, width=width)
    rows = ESCAPES.sub("", text).split("\n")[:10]
    assert len({cell_len(row) for row in rows}) == 1
    assert cell_len(rows[0]) <= (width or 80)
    # The decimal points of a column are aligned, measured in terminal cells.
    points = {cell_len(row[: row.index(".", len("attention") - 4)]) for row in rows[1:8]}
    assert len(points) == 1


def test_terminal_truncates_labels_with_an_ellipsis() -> None:
    labels = [f"attention{i}" for i in range(12)]
    text = draw.render_terminal_heat_map(causal_weights(12), labels, labels, color=False)
    assert "atten…" in text.split("\n")[0]
    long = draw.render_terminal_heat_map([[1.0]], ["가" * 20], ["나" * 20], color=False)
    assert "가" * 7 + "…" in long and "나" * 5 + "…" in long
    assert len({cell_len(line) for line in long.split("\n")}) == 1


def test_terminal_width_omits_keys_and_says_how_many() -> None:
    labels = [f"t{i}" for i in range(40)]
    text = draw.render_terminal_heat_map(causal_weights(40), labels, labels, color=False, width=60, title="x" * 99)
    lines = text.split("\n")
    assert all(cell_len(line) <= 60 for line in lines)
    assert lines[0].endswith("…")
    shown = len(lines[1].split())
    assert lines[-1] == f"… {40 - shown} more keys not shown"
    assert draw.render_terminal_heat_map([[0.5, 0.5]], ["q"], ["a", "b"], color=False, width=9).endswith(
        "1 more key not shown"
    )
    assert "not shown" not in draw.render_terminal_heat_map(causal_weights(40), labels, labels)


def test_terminal_shows_control_characters_and_spaces() -> None:
    labels = ["a\nb", "\x1b[31m", " ", "\u200b", "\udc80"]
    text = draw.render_terminal_heat_map(causal_weights(5), labels, labels, color=False)
    assert len(text.split("\n")) == 6
    for shown in (r"a\nb", r"\x1b[31m", "␣", r"\u200b", r"\udc80"):
        assert shown in text
    assert "\x1b" not in text
    text.encode("utf-8")


def test_decomposed_hangul_is_composed() -> None:
    text = draw.render_terminal_heat_map([[1.0]], ["\u1102\u1161"], ["\u1102\u1161"], color=False)
    assert text.count("나") == 2


# Invalid inputs


def error_message(call: Callable[[], object]) -> str:
    """Call a function that must raise a DrawError, and return its message."""
    with pytest.raises(draw.DrawError) as caught:
        call()
    assert isinstance(caught.value, JumokError)
    message = str(caught.value)
    assert not message[0].isupper() and not message.endswith(".") and ";" in message  # what is wrong; what to do
    return message


@pytest.mark.parametrize("kind", ["terminal", "image", "grid"])
def test_invalid_patterns_and_labels_raise(kind: str, tmp_path: Path) -> None:
    def call(pattern: object, queries: list[str], keys: list[str]) -> str:
        if kind == "terminal":
            return error_message(lambda: draw.render_terminal_heat_map(pattern, queries, keys))
        function = draw.save_heat_map if kind == "image" else draw.save_head_grid
        return error_message(lambda: function(tmp_path / "map.png", pattern, queries, keys))

    two = ["a", "b"]
    message = call([[1, 0], [0.5, 0.5]], ["a", "b", "c"], two)
    assert "3 query labels" in message and "2 queries" in message
    message = call([[1, 0], [0.5, 0.5]], two, ["a"])
    assert "1 key labels" in message and "2 keys" in message
    assert "not finite" in call([[1, 0], [float("nan"), 0.5]], two, two)
    assert "not finite" in call([[1, 0], [float("inf"), 0.5]], two, two)
    assert "1.5" in call([[1, 0], [1.5, 0.5]], two, two)
    assert "-0.25" in call([[1, 0], [-0.25, 0.5]], two, two)
    assert "1 dimensions" in call([1, 0], two, two)
    assert "5 dimensions" in call(numpy.ones((1, 1, 1, 2, 2)), two, two)
    assert "2 batch rows" in call(numpy.ones((2, 1, 2, 2)), two, two)
    assert "empty" in call(numpy.ones((0, 2)), [], two)
    assert "not numbers" in call([["x", "y"], ["z", "w"]], two, two)
    assert "not numbers" in call(numpy.ones((2, 2), dtype=complex), two, two)
    assert "cannot be read" in call([[1, 0], [1]], two, two)
    assert not list(tmp_path.iterdir())


def test_weights_may_exceed_the_range_by_rounding_errors() -> None:
    draw.render_terminal_heat_map([[1.00009, -0.00009]], ["q"], ["a", "b"])
    error_message(lambda: draw.render_terminal_heat_map([[1.0002, 0]], ["q"], ["a", "b"]))


def test_several_heads_raise_where_one_is_drawn(tmp_path: Path) -> None:
    two = ["a", "b"]
    assert "head_grid" in error_message(lambda: draw.render_terminal_heat_map(causal_weights(2, 3), two, two))
    assert "3 heads" in error_message(lambda: draw.save_heat_map(tmp_path / "a.png", causal_weights(2, 3), two, two))
    assert "1.00" in draw.render_terminal_heat_map(causal_weights(2, 1), two, two)


def test_too_narrow_a_width_is_error_message() -> None:
    message = error_message(lambda: draw.render_terminal_heat_map([[1.0]], ["query"], ["key"], width=10))
    assert "at least 11" in message
    assert "1.00" in draw.render_terminal_heat_map([[1.0]], ["query"], ["key"], width=11)


def test_invalid_image_arguments_raise(tmp_path: Path) -> None:
    for name in ("map.jpg", "map", "map.pdf"):
        assert ".png or .svg" in error_message(
            lambda name=name: draw.save_heat_map(tmp_path / name, [[1]], ["a"], ["a"])
        )
        assert name in error_message(lambda name=name: draw.save_head_grid(tmp_path / name, [[1]], ["a"], ["a"]))
    message = error_message(
        lambda: draw.save_head_grid(tmp_path / "a.png", causal_weights(1, 3), ["a"], ["a"], titles=["one", "two"])
    )
    assert "2 titles" in message and "3 heads" in message
    many = [str(i) for i in range(201)]
    assert "201 by 201" in error_message(
        lambda: draw.save_heat_map(tmp_path / "a.png", numpy.ones((201, 201)), many, many, values=True)
    )
    assert "missing" in error_message(lambda: draw.save_heat_map(tmp_path / "missing" / "a.png", [[1]], ["a"], ["a"]))


def test_tensors_of_every_dtype_are_accepted_with_a_gradient_too() -> None:
    torch = pytest.importorskip("torch")
    two = ["a", "b"]
    weights = torch.softmax(torch.zeros(2, 2), dim=-1)
    for tensor in (weights, weights.half(), weights.bfloat16(), weights.double(), weights.clone().requires_grad_()):
        assert "0.50" in draw.render_terminal_heat_map(tensor, two, two)
    assert "1.00" in draw.render_terminal_heat_map(torch.ones(2, 2, dtype=torch.bool), two, two)


def test_head_grid_takes_what_multihead_returns(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from jumok import MultiHead

    torch.manual_seed(0)
    output, weights = MultiHead(12, 3)(torch.randn(1, 5, 12), weights=True)
    assert weights.shape == (1, 3, 5, 5) and weights.requires_grad
    words = list("abcde")
    expected = draw.save_head_grid(tmp_path / "a.png", weights[0].detach().numpy(), words, words).read_bytes()
    for returned in (weights, (output, weights)):
        assert draw.save_head_grid(tmp_path / "b.png", returned, words, words).read_bytes() == expected
    two_layers = (weights, weights)  # two layers are not a pair of output and weights
    assert "dimensions" in error_message(lambda: draw.save_head_grid(tmp_path / "c.png", two_layers, words, words))


def test_missing_matplotlib_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for call in (
        lambda: draw.save_heat_map(tmp_path / "a.png", [[1]], ["a"], ["a"]),
        lambda: draw.save_head_grid(tmp_path / "a.png", [[1]], ["a"], ["a"]),
        draw.find_hangul_font,
    ):
        assert 'pip install "jumok[draw]"' in error_message(call)
    assert "1.00" in draw.render_terminal_heat_map([[1]], ["a"], ["a"])


# Images


def test_png_has_colors_and_a_sensible_size(tmp_path: Path) -> None:
    path = draw.save_heat_map(str(tmp_path / "map.png"), causal_weights(7), ENGLISH, ENGLISH, title="head 0")
    assert path == tmp_path / "map.png"
    image = read_pixels(path)
    height, width, _ = image.shape
    assert 500 < width < 1500 and 500 < height < 1500
    assert (image[0] == 255).all()  # a white margin
    blue = image[:, :, 2] - image[:, :, 0]
    assert (blue > 60).mean() > 0.05
    # The weight 1.00 at the first query is dark, and the masked half is nearly white.
    assert (image.sum(axis=2) < 250).mean() > 0.005
    assert (image.sum(axis=2) > 700).mean() > 0.4


def test_the_largest_weight_is_the_darkest_cell(tmp_path: Path) -> None:
    weights = numpy.zeros((4, 4))
    weights[3, 0] = 1  # the last query, the first key: lower left
    image = read_pixels(draw.save_heat_map(tmp_path / "map.png", weights, list("abcd"), list("abcd"), values=False))
    from matplotlib import colormaps

    darkest = numpy.round(numpy.array(colormaps[panel.COLOR_MAP](1.0)[:3]) * 255)
    body = image[:, : int(image.shape[1] * 0.78)]  # without the colour bar
    rows, columns = numpy.nonzero((abs(body - darkest) <= 1).all(axis=2))
    assert len(rows) > 1000
    assert rows.min() > image.shape[0] * 0.6 and columns.max() < image.shape[1] * 0.5


def test_values_are_shown_by_default_on_small_maps(tmp_path: Path) -> None:
    def shows_values(count: int, values: bool | None) -> bool:
        labels = [f"t{i}" for i in range(count)]
        path = draw.save_heat_map(tmp_path / "m.svg", numpy.full((count, count), 0.37), labels, labels, values=values)
        return "<!-- 0.37 -->" in path.read_text(encoding="utf-8")

    assert shows_values(24, None) and not shows_values(25, None)
    assert shows_values(25, True) and not shows_values(3, False)


def test_svg_draws_every_text_as_paths(tmp_path: Path) -> None:
    path = draw.save_heat_map(tmp_path / "map.svg", causal_weights(7), ENGLISH, ENGLISH, title="head 0")
    text = path.read_text(encoding="utf-8")
    for label in ["The", "cat", "doormat", "key", "query", "weight", "head 0", "1.00", "·", "0", "1"]:
        assert f"<!-- {label} -->" in text
    assert "<text" not in text and "<dc:date>" not in text


def test_head_grid_draws_every_head_with_shared_labels(tmp_path: Path) -> None:
    path = draw.save_head_grid(tmp_path / "grid.svg", causal_weights(7, 8), ENGLISH, ENGLISH, title="layer 0")
    text = path.read_text(encoding="utf-8")
    for head in range(8):
        assert f"<!-- head {head} -->" in text
    assert text.count("<!-- weight -->") == 1
    assert "<!-- layer 0 -->" in text and "<!-- 1.00 -->" in text
    titled = draw.save_head_grid(
        tmp_path / "b.svg", causal_weights(9, 2), list("abcdefghi"), list("abcdefghi"), titles="xy"
    )
    text = titled.read_text(encoding="utf-8")
    assert "<!-- x -->" in text and "<!-- y -->" in text
    assert "<!-- 1.00 -->" not in text  # nine by nine is too large for values
    image = read_pixels(draw.save_head_grid(tmp_path / "grid.png", causal_weights(7, 8), ENGLISH, ENGLISH))
    assert image.shape[1] > image.shape[0] > 300
    assert (image[:, :, 2] - image[:, :, 0] > 60).mean() > 0.05


def test_a_large_map_stays_small_and_omits_labels(tmp_path: Path) -> None:
    labels = [f"t{i}" for i in range(300)]
    path = draw.save_heat_map(tmp_path / "map.svg", causal_weights(300), labels, labels)
    text = path.read_text(encoding="utf-8")
    assert "<!-- t0 -->" in text and "<!-- t1 -->" not in text
    assert max(read_pixels(draw.save_heat_map(tmp_path / "m.png", causal_weights(300), labels, labels)).shape) < 2000


@pytest.mark.parametrize("label", ["$x_1$", "$\\frac{$", "a_b^c", "\\alpha", "100%", "{}", "<!--&-->"])
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_labels_are_never_parsed_as_formulas(
    label: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import mathtext

    def parse(*_: object, **__: object) -> None:
        raise AssertionError("a label was parsed as a formula")

    monkeypatch.setattr(mathtext.MathTextParser, "parse", parse)
    path = draw.save_heat_map(tmp_path / f"map.{suffix}", [[1]], [label], [label], title=label)
    draw.save_head_grid(tmp_path / f"grid.{suffix}", [[1]], [label], [label], titles=[label], title=label)
    if suffix == "svg" and "<" not in label:
        assert path.read_text(encoding="utf-8").count(f"<!-- {label} -->") == 3


def test_missing_glyphs_become_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure, "find_hangul_font", lambda: None)
    labels = ["\U0001f916", "漢", "a\nb", "\udc80"]
    path = draw.save_heat_map(tmp_path / "map.svg", causal_weights(4), labels, labels)
    text = path.read_text(encoding="utf-8")
    for shown in (r"\U0001f916", r"\u6f22", r"a\nb", r"\udc80"):
        assert f"<!-- {shown} -->" in text
    draw.save_heat_map(tmp_path / "map.png", causal_weights(4), labels, labels)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_equal_input_gives_equal_bytes(suffix: str, tmp_path: Path) -> None:
    import matplotlib

    def draw_map_and_grid(name: str) -> tuple[bytes, bytes]:
        heat_map = draw.save_heat_map(tmp_path / f"{name}.{suffix}", causal_weights(7), ENGLISH, ENGLISH, title="t")
        grid = draw.save_head_grid(tmp_path / f"{name}-grid.{suffix}", causal_weights(3, 5), list("abc"), list("abc"))
        return heat_map.read_bytes(), grid.read_bytes()

    before = draw_map_and_grid("before")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "font.weight": "bold"}):
        settings = dict(matplotlib.rcParams)
        assert draw_map_and_grid("after") == before  # the caller's settings have no effect
        assert dict(matplotlib.rcParams) == settings  # and stay unchanged
    assert b"Software" not in before[0] and b"date" not in before[0]


def test_import_is_light_and_pyplot_is_never_used(tmp_path: Path) -> None:
    code = (
        "import sys; from jumok import draw\n"
        "assert not {'matplotlib', 'rich', 'torch'} & set(sys.modules)\n"
        "draw.save_heat_map(sys.argv[1], [[1]], ['a'], ['a'])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    source = str(Path(draw.__file__).parents[2])
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {source!r})\n{code}",
            str(tmp_path / "a.png"),
        ],
        check=True,
    )


# Hangul


def test_hangul_without_a_font_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure, "find_hangul_font", lambda: None)
    for labels, title in ((["나"], ""), (["a"], "층"), (["ㅋ"], "")):
        message = error_message(
            lambda labels=labels, title=title: draw.save_heat_map(
                tmp_path / "a.png", [[1]], labels, labels, title=title
            )
        )
        assert "fonts-nanum" in message and "pip install koreanize-matplotlib" in message
    error_message(lambda: draw.save_head_grid(tmp_path / "a.png", [[1]], ["나"], ["나"]))
    assert not list(tmp_path.iterdir())
    draw.save_heat_map(tmp_path / "a.png", [[1]], ["a"], ["Ġthe▁é"])  # Latin text does not need that font


def test_no_hangul_font_is_found_where_none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure, "HANGUL_FAMILIES", ("DejaVu Sans",))  # installed, but without Hangul
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert draw.find_hangul_font() is None


def test_the_font_inside_koreanize_matplotlib_is_found_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("koreanize_matplotlib") is None:
        pytest.skip("koreanize_matplotlib is not installed")
    monkeypatch.setattr(figure, "HANGUL_FAMILIES", ())
    file = draw.find_hangul_font()
    assert file is not None and file.name == "NanumGothic.ttf"
    assert "koreanize_matplotlib" in file.parts
    assert "koreanize_matplotlib" not in sys.modules


def test_the_regular_font_of_an_installed_family_comes_first(
    hangul: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from matplotlib import font_manager

    def entry(name: str, weight: int) -> font_manager.FontEntry:
        file = tmp_path / name
        file.write_bytes(hangul.read_bytes())
        return font_manager.FontEntry(fname=str(file), name="Our Hangul", style="normal", weight=weight)

    missing = font_manager.FontEntry(fname=str(tmp_path / "missing.ttf"), name="Our Hangul", weight=400)
    entries = [missing, entry("bold.ttf", 700), entry("regular.ttf", 400)]
    monkeypatch.setattr(figure, "HANGUL_FAMILIES", ("Our Hangul",))
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [*font_manager.fontManager.ttflist, *entries])
    assert draw.find_hangul_font() == tmp_path / "regular.ttf"


def test_different_syllables_have_different_glyphs(hangul: Path, tmp_path: Path) -> None:
    # A missing glyph is drawn as the same box for every syllable.
    def draw_label(label: str) -> numpy.ndarray:
        return read_pixels(draw.save_heat_map(tmp_path / "map.png", [[1]], ["q"], [label]))

    first, second = draw_label("나"), draw_label("너")
    assert first.shape != second.shape or (first != second).sum() > 30
    assert (draw_label("나") == first).all()

    def read_paths(label: str) -> set[str]:
        path = draw.save_heat_map(tmp_path / "map.svg", [[1]], ["q"], [label])
        return set(re.findall(r' d="([^"]+)"', path.read_text(encoding="utf-8")))

    assert read_paths("나") != read_paths("너")


def test_korean_labels_use_two_fonts_and_are_reproducible(hangul: Path, tmp_path: Path) -> None:
    # "▁" is in matplotlib's own font but not in NanumGothic, so one label needs two fonts.
    path = draw.save_heat_map(tmp_path / "map.svg", causal_weights(6), KOREAN, KOREAN, title="층 0, 머리 1")
    text = path.read_text(encoding="utf-8")
    for label in [*KOREAN, "층 0, 머리 1"]:
        assert f"<!-- {label} -->" in text
    again = draw.save_heat_map(tmp_path / "again.svg", causal_weights(6), KOREAN, KOREAN, title="층 0, 머리 1")
    assert again.read_bytes() == path.read_bytes()
    png = draw.save_head_grid(tmp_path / "grid.png", causal_weights(6, 5), KOREAN, KOREAN, title="층 0")
    assert draw.save_head_grid(tmp_path / "b.png", causal_weights(6, 5), KOREAN, KOREAN, title="층 0").read_bytes() == (
        png.read_bytes()
    )
    assert "koreanize_matplotlib" not in sys.modules
