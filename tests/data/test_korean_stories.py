"""Check Korean inflection against forms from a grammar, and the generated stories for words that were not filled in."""

from __future__ import annotations

import itertools
import random
import re
import tomllib
from pathlib import Path

import pytest

from jumok.data.datasets.korean import stories as korean_stories
from jumok.data.datasets.korean.korean_inflection import Style
from jumok.data.datasets.korean.stories import attach_particle, inflect, read_korean_stories

# dictionary form: past, connective 아서, condition 으면, form before a noun, future form before a noun
FORMS = """
가다 갔다 가서 가면 간 갈
먹다 먹었다 먹어서 먹으면 먹은 먹을
보다 봤다 봐서 보면 본 볼
마시다 마셨다 마셔서 마시면 마신 마실
배우다 배웠다 배워서 배우면 배운 배울
하다 했다 해서 하면 한 할
되다 됐다 돼서 되면 된 될
쉬다 쉬었다 쉬어서 쉬면 쉰 쉴
켜다 켰다 켜서 켜면 켠 켤
춥다 추웠다 추워서 추우면 추운 추울
돕다 도왔다 도와서 도우면 도운 도울
입다 입었다 입어서 입으면 입은 입을
듣다 들었다 들어서 들으면 들은 들을
받다 받았다 받아서 받으면 받은 받을
짓다 지었다 지어서 지으면 지은 지을
씻다 씻었다 씻어서 씻으면 씻은 씻을
모르다 몰랐다 몰라서 모르면 모른 모를
부르다 불렀다 불러서 부르면 부른 부를
들르다 들렀다 들러서 들르면 들른 들를
쓰다 썼다 써서 쓰면 쓴 쓸
바쁘다 바빴다 바빠서 바쁘면 바쁜 바쁠
놀다 놀았다 놀아서 놀면 논 놀
하얗다 하얬다 하얘서 하야면 하얀 하얄
좋다 좋았다 좋아서 좋으면 좋은 좋을
"""


@pytest.mark.parametrize("row", FORMS.strip().splitlines())
def test_inflection(row: str) -> None:
    word, *forms = row.split()
    assert [inflect(word, ending, "plain") for ending in ("past", "아서", "으면", "은", "을")] == forms


@pytest.mark.parametrize(
    ("word", "style", "present", "past", "future"),
    [
        ("읽다", "plain", "읽는다", "읽었다", "읽을 것이다"),
        ("만들다", "plain", "만든다", "만들었다", "만들 것이다"),
        ("걷다", "polite", "걸어요", "걸었어요", "걸을 거예요"),
        ("살다", "formal", "삽니다", "살았습니다", "살 것입니다"),
        ("가시다", "formal", "가십니다", "가셨습니다", "가실 것입니다"),
    ],
)
def test_styles(word: str, style: Style, present: str, past: str, future: str) -> None:
    assert [inflect(word, tense, style) for tense in ("present", "past", "future")] == [present, past, future]


def test_particles_follow_the_final_consonant() -> None:
    particles = ("는", "이", "를", "와", "으로", "이나")
    assert [attach_particle("책", name) for name in particles] == ["책은", "책이", "책을", "책과", "책으로", "책이나"]
    assert [attach_particle("차", name) for name in particles] == ["차는", "차가", "차를", "차와", "차로", "차나"]
    assert attach_particle("서울", "으로") == "서울로"
    assert [attach_particle(name, "아") for name in ("민수", "서준이")] == ["민수야", "서준아"]
    assert [attach_particle("나", name) for name in ("이", "의", "는")] == ["내가", "내", "나는"]


@pytest.fixture(scope="module")
def stories() -> dict[str, list[str]]:
    """Two stories of every scene."""
    data = tomllib.loads(Path(korean_stories.__file__).with_suffix(".toml").read_text("utf-8"))
    generator = random.Random(0)
    return {
        name: [korean_stories._Story(generator, data["words"]).write(scene) for _ in range(2)]
        for name, scene in data["scenes"].items()
    }


def test_every_slot_is_filled(stories: dict[str, list[str]]) -> None:
    assert len(stories) > 50
    for story in itertools.chain(*stories.values()):
        assert not re.search(r"[\[\]{}|~A-Za-z]|  ", story), story
        assert story.endswith((".", ".”")), story


def test_a_story_keeps_its_words(stories: dict[str, list[str]]) -> None:
    for story in stories["sick"]:  # what is ill at the beginning has gone at the end
        illness = next(word for word in ("감기", "배탈", "두통", "몸살", "눈병") if word in story)
        assert story.count(illness) == 2, story
    for story in stories["birthday"]:  # what was bought is what pleases
        gift = re.search(r"([가-힣]+)[을를] [샀사][^ ]*", story)
        assert gift is not None and f"“{gift[1]}" in story, story


def test_stories_are_a_function_of_the_seed_and_disjoint() -> None:
    train, held_out = (list(read_korean_stories(split, 40)) for split in ("train", "held-out"))
    assert len(train) + len(held_out) == 40 and held_out and not set(train) & set(held_out)
    assert held_out == list(read_korean_stories("held-out", 40))
    assert not set(train) & set(read_korean_stories("train", 40, seed=1))
