"""Test the datasets of the catalogue: complete, labelled, and without overlap between splits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalogue_cache import CACHE, download_or_skip
from jumok.data.batches import split
from jumok.data.datasets import image_galleries, text_corpora
from jumok.errors import DataError, JumokError


@pytest.fixture
def _cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(CACHE))


def read_splits(read: Callable[[split.Split], Iterator[Any]]) -> tuple[list[Any], list[Any]]:
    return list(read("train")), list(read("held-out"))


def test_missing_data_is_downloaded_only_with_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    message = "shakespeare is not in the cache; download it with: jumok data get shakespeare"
    with pytest.raises(DataError, match=message):
        next(text_corpora.read_shakespeare())
    requests: list[str] = []

    def download(name: str, report: Callable[[str], None]) -> Path:
        requests.append(name)
        raise JumokError("download")

    monkeypatch.setattr(text_corpora.catalogue, "download_entry", download)
    with pytest.raises(JumokError, match="download"):
        next(text_corpora.read_shakespeare(download_report=lambda line: None))
    assert requests == ["shakespeare"]


def test_split_depends_on_the_text_alone() -> None:
    held = sum(split.assign_split(f"example {number}") == "held-out" for number in range(20_000))
    assert 1850 < held < 2150  # a tenth, within 3.5 standard deviations
    assert all(split.assign_split(f" Example  {n} ") == split.assign_split(f"example {n}") for n in range(200))
    assert split.hash_to_fraction("주목") == 0.9617236273004401  # must never change


@pytest.mark.usefixtures("_cache")
def test_shakespeare_is_complete_and_split() -> None:
    folder = download_or_skip("shakespeare")
    train, held = read_splits(text_corpora.read_shakespeare)
    size = sum(len(path.read_text(encoding="utf-8")) for path in folder.glob("*.txt"))
    assert abs(sum(map(len, train + held)) - size) <= 42  # a last line may have no end
    assert 0.07 < sum(map(len, held)) / size < 0.13
    assert any("To be, or not to be" in passage for passage in train + held)


@pytest.mark.usefixtures("_cache")
def test_gutenberg_reads_two_books_in_latin_1() -> None:
    download_or_skip("gutenberg")
    text = "".join("".join(passages) for passages in read_splits(text_corpora.read_gutenberg))
    assert "Brunetière, Coppée, Hauptmann, Barrès, Bourget, Lemaître" in text.replace("\n", " ")
    assert "Cæsar, my Lo" in text and len(text) > 11_700_000


@pytest.mark.usefixtures("_cache")
def test_en_ko_splits_share_no_text() -> None:
    download_or_skip("en-ko")
    train, held = read_splits(text_corpora.read_en_ko)
    assert len(set(train)) + len(set(held)) == len(train) + len(held) == 34_006
    assert 0.09 < len(held) / 34_006 < 0.11
    for column in (0, 1):
        assert not {split.normalize_text(pair[column]) for pair in train} & {
            split.normalize_text(pair[column]) for pair in held
        }
    reversed_pairs = list(text_corpora.read_en_ko("held-out", source="ko", target="en"))
    assert reversed_pairs == [(korean, english) for english, korean in held]
    assert text_corpora.number_placeholders("{b} and {a}, {b}", "{a}와 {b}") == ("{0} and {1}, {0}", "{1}와 {0}")


@pytest.mark.usefixtures("_cache")
def test_sentiment_has_three_labels() -> None:
    download_or_skip("sentiment")
    train, held = read_splits(text_corpora.read_sentiment)
    assert len(train) + len(held) == 23_619 and {label for _, label in held} == {"negative", "neutral", "positive"}
    assert not {words for words, _ in train} & {words for words, _ in held}
    assert ("Yay. Another good phone interview.", "positive") in train + held
    assert any("We were 17 deep last night & the love was so strong" in words for words, _ in train + held)


@pytest.mark.usefixtures("_cache")
def test_emoji_have_names_and_skin_tones_stay_in_one_split() -> None:
    download_or_skip("emoji")
    train, held = read_splits(lambda name: image_galleries.load_emoji(name, tones=True))
    assert len(train) + len(held) == 3786 and all(path.is_file() for path, _ in held)
    plain = [{re.sub(": .*skin tone.*", "", name) for _, name in emoji} for emoji in (train, held)]
    assert not plain[0] & plain[1]
    assert (
        len(plain[0]) + len(plain[1]) < 1911 + 60
    )  # except for pairs of people, skin tones are variants of the same emoji
    korean = {path.name: name for path, name in image_galleries.load_emoji("train", language="ko")}
    english = {path.name: name for path, name in image_galleries.load_emoji("train")}
    assert korean.keys() == english.keys() and english["1f63a.png"] == "grinning cat"
    assert korean["1f63a.png"] == "활짝 웃는 고양이 얼굴" and len(english) < 1911


@pytest.mark.usefixtures("_cache")
def test_mnist_held_out_is_its_test_set() -> None:
    download_or_skip("mnist")
    digits = image_galleries.load_mnist("held-out")
    assert digits.pixels.shape == (10_000, 1, 28, 28) and digits.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert digits.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
