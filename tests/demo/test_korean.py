"""Check the model ``korean``, which comes with the package: its size, what it knows of words, and that it remembers."""

from __future__ import annotations

import pytest
import torch
from safetensors import safe_open

import jumok
from jumok.checkpoint import Loaded
from jumok.checkpoint.resolve import resolve_model_path
from jumok.data.datasets.korean.stories import read_korean_stories


@pytest.fixture(scope="module")
def korean() -> Loaded:
    return jumok.load("korean")


def score(korean: Loaded, text: str, ending: str) -> float:
    """Return the log-probability of an ending after a text."""
    tokenizer = korean.require_tokenizer()
    before, ids = len(tokenizer.encode(text)), tokenizer.encode(text + ending)
    with torch.inference_mode():
        log_probabilities = korean.model(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
    return sum(log_probabilities[position - 1, ids[position]].item() for position in range(before, len(ids)))


def test_korean_is_small_and_stored_in_half_precision(korean: Loaded) -> None:
    path = resolve_model_path("korean") / "model.safetensors"
    assert path.stat().st_size <= 6_000_000
    with safe_open(path, "pt") as file:
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"F16"}  # noqa: SIM118
    assert next(korean.model.parameters()).dtype == torch.float32


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("나는 학교에", " 갔다.", " 먹었다."),
        ("나는 학교에", " 간다.", " 가요."),  # 나 is not polite
        ("저는 학교에", " 갔어요.", " 갔다."),
        ("할머니는 병원에서", " 아픈", " 달콤한"),
        ("봄에는 꽃이", " 폈다.", " 먹었다."),
        ("어제 도서관에서 책을", " 읽었다.", " 마셨다."),
    ],
)
def test_korean_prefers_words_that_fit(korean: Loaded, text: str, right: str, wrong: str) -> None:
    assert score(korean, text, right) > score(korean, text, wrong)


def test_korean_remembers_who_and_what(korean: Loaded) -> None:
    """A word from the beginning of the story is likelier than another one; a 5-gram model cannot know it."""
    story = (
        "어제는 {0}의 생일이었어요. 저는 {0}에게 줄 선물을 골랐어요. {0}가 노래를 부르는 것을 좋아해서 {1}을 샀어요. "
        "상자를 열어 본 {0}는 활짝 웃었어요. 우리는 다 같이 케이크를 먹고 사진을 찍었어요. “"
    )
    for name in ("민수", "지우", "미나", "태호"):
        for gift, other in (("책", "그림"), ("그림", "책"), ("로봇", "장갑"), ("장갑", "로봇")):
            text = story.format(name, gift)
            assert score(korean, text, f"{gift}이 정말") > score(korean, text, f"{other}이 정말") + 1


def test_korean_predicts_held_out_stories(korean: Loaded) -> None:
    tokenizer = korean.require_tokenizer()
    losses = []
    for story in read_korean_stories("held-out", 150, seed=1):
        ids = torch.tensor([tokenizer.encode(f"\n{story}\n")])
        with torch.inference_mode():
            losses.append(torch.nn.functional.cross_entropy(korean.model(ids[:, :-1]).logits[0], ids[0, 1:]).item())
    assert sum(losses) / len(losses) < 0.75  # interpolated 5-grams: see bench/language/korean.py
