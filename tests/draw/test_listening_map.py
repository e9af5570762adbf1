"""Listening maps: spectrogram, words and weights over one time axis."""

from __future__ import annotations

import re
from pathlib import Path

import numpy
import pytest
from PIL import Image

from jumok.draw import DrawError, ListeningTexts, TimedText, save_listening_map

BANDS, FRAMES, POSITIONS = 7, 50, 25  # half a second
SOUND = numpy.zeros((BANDS, FRAMES))
WORDS = [TimedText("hello", 1.0, 1.2), TimedText("주목", 1.2, 1.5)]


def save(path: Path, **changes) -> Path:
    weights = numpy.full((3, POSITIONS), 0.01)
    arguments = {"labels": ["hel", "lo", "주목"], "words": WORDS, "seconds": 0.5, "begin": 1.0}
    arguments["spans"] = [(1.0, 1.2), (1.0, 1.2), (1.2, 1.5)]
    arguments = {"spectrogram": SOUND, "weights": weights, **arguments, **changes}
    return save_listening_map(path, **arguments)


def test_words_labels_and_names_are_drawn(tmp_path: Path) -> None:
    texts = ListeningTexts("제목", "caption", "초", "가중치", "쓰는 토큰", "주파수")
    image = save(tmp_path / "map.svg", texts=texts, bands=[(2.5, "1 kHz")]).read_text()
    drawn = re.findall("<!-- (.+) -->", image)
    assert {"hello", "hel", "lo", "제목", "caption", "초", "가중치", "쓰는 토큰", "주파수", "1 kHz"} <= set(drawn)
    assert drawn.count("주목") == 2  # above the spectrogram, and as a row
    assert {"1.0", "1.5"} <= set(drawn) and "0.0" not in drawn  # the axis begins where the audio begins
    assert image.count("stroke: #d1462f; stroke-width: 0.7") == 2  # both rows of a word share a frame
    assert save(tmp_path / "again.svg", texts=texts, bands=[(2.5, "1 kHz")]).read_text() == image


def test_sound_and_weights_share_the_time_axis(tmp_path: Path) -> None:
    sound, weights = SOUND.copy(), numpy.zeros((3, POSITIONS))
    sound[:, 30:32] = 1.0  # 0.30 to 0.32 s
    weights[:, 15] = 1.0  # the same 20 ms
    path = save(tmp_path / "map.png", spectrogram=sound, weights=weights, words=[], spans=())
    with Image.open(path) as image:
        pixels = numpy.asarray(image.convert("RGB")).astype(int)
    is_sound = numpy.abs(pixels - (0x10, 0x1D, 0x2E)).sum(-1) < 12
    is_weight = numpy.abs(pixels - (0x08, 0x30, 0x6B)).sum(-1) < 12  # the darkest of "Blues"
    is_weight[:, int(pixels.shape[1] * 0.85) :] = False  # the colour bar
    columns = [numpy.flatnonzero(is_dark.sum(0) > 20) for is_dark in (is_sound, is_weight)]
    assert len(columns[0]) > 10
    assert abs(columns[0][0] - columns[1][0]) <= 1 and abs(columns[0][-1] - columns[1][-1]) <= 1


def test_words_that_would_overlap_stand_on_another_line(tmp_path: Path) -> None:
    long_words = [TimedText("incomprehensibly", 1.0 + 0.04 * index, 1.04 + 0.04 * index) for index in range(4)]
    heights = []
    for words in (WORDS, long_words):
        with Image.open(save(tmp_path / "map.png", words=words)) as image:
            heights.append(image.height)
    assert heights[1] > heights[0] + 50


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["hel"]}, "3 rows of weights"),
        ({"spans": [None]}, "3 rows of weights"),
        ({"seconds": 0.0}, "a length above 0"),
        ({"spectrogram": numpy.full((2, 2), numpy.nan)}, "finite numbers"),
        ({"spectrogram": numpy.zeros(4)}, "finite numbers"),
        ({"scale": "cubic"}, "'cubic' is unknown"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(tmp_path: Path, changes, message) -> None:
    with pytest.raises(DrawError, match=message):
        save(tmp_path / "map.png", **changes)
