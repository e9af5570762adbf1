"""Generate short Korean stories, as a pure function of a seed: the model ``korean`` was trained on them.

The words and the scenes are in ``stories.toml``. What is drawn at the beginning of a story (who, where, which
thing) stays the same until its end, so that a model must remember more than the last few words.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from jumok.data.batches.split import Split, assign_split
from jumok.data.datasets.korean.english_inflection import Tense
from jumok.data.datasets.korean.korean_inflection import (
    FINAL_RIEUL,
    Predicate,
    Style,
    attach,
    choose_particle,
    get_final,
    make_past,
)

STORY_COUNT = 60_000  # of both splits together
_STYLES: tuple[Style, ...] = ("plain", "polite", "formal")
# after a consonant, after a vowel
_PARTICLES = {particle: (pair[0], pair[1]) for pair in ("은는", "이가", "을를", "과와") for particle in pair}
_PARTICLES |= {name: (name, name.removeprefix("이")) for name in ("이나", "이고", "이요")}
_PARTICLES |= {"야": ("이야", "야"), "아": ("아", "야"), "이었고": ("이었고", "였고"), "으로": ("으로", "로")}
_PRONOUNS = {"나이": "내가", "저이": "제가", "나의": "내", "저의": "제"}
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([^{}:.]+)(?:\.(\d))?(?::([^{}]+))?\}")


def read_korean_stories(split: Split = "train", count: int = STORY_COUNT, seed: int = 0) -> Iterator[str]:
    """Yield the stories of a split, a paragraph each, of ``count`` different ones in both splits."""
    data = tomllib.loads(Path(__file__).with_name("stories.toml").read_text("utf-8"))
    generator = random.Random(f"korean stories {seed}")
    scenes = list(data["scenes"].values())
    used: set[str] = set()
    while len(used) < count:
        story = _Story(generator, data["words"]).write(generator.choice(scenes))
        if story not in used:
            used.add(story)
            if assign_split(story) == split:
                yield story


class _Story:
    """The words drawn so far, by the names of their slots, and the style of the sentences."""

    def __init__(self, generator: random.Random, words: dict[str, list[str | list[str]]]) -> None:
        self.generator = generator
        self.words = words
        self.style: Style = generator.choices(_STYLES, (5, 3, 2))[0]
        first_person = "나" if self.style == "plain" else "저"
        self.drawn: dict[str, list[str]] = {}
        self.drawn["hero"] = [first_person if generator.random() < 0.4 else self._draw("friend0")[0]]

    def write(self, sentences: list[str]) -> str:
        return " ".join(_SLOT.sub(self._fill, self._choose(sentence)) for sentence in sentences)

    def _choose(self, sentence: str) -> str:
        """Replace "[a|b]" by one of its wordings; "[a]" alone may be left out."""

        def choose(match: re.Match[str]) -> str:
            wordings = match[1].split("|")
            return self.generator.choice(wordings if len(wordings) > 1 else [*wordings, ""])

        while "[" in sentence:  # choices inside choices
            sentence = _CHOICE.sub(choose, sentence)
        return sentence

    def _fill(self, slot: re.Match[str]) -> str:
        name, column, ending = slot[1], int(slot[2] or 0), slot[3]
        is_list = name in self.drawn or name.rstrip("0123456789") in self.words
        word = self._draw(name)[column] if is_list else name
        if word.startswith("~") or (not is_list and word.endswith("다")):
            return inflect(word.removeprefix("~"), ending or "past", self.style)
        if ending == "이다":
            return Predicate(word, "copula").finish("past", self.style, False).replace("|", "")
        return attach_particle(word, ending) if ending else word

    def _draw(self, name: str) -> list[str]:
        """Return the entry of a slot; a new one differs from those of the other slots of its list."""
        if name not in self.drawn:
            kind = name.rstrip("0123456789")
            taken = [entry for other, entry in self.drawn.items() if other.rstrip("0123456789") in (kind, "hero")]
            rows = [[row] if isinstance(row, str) else row for row in self.words[kind]]
            self.drawn[name] = self.generator.choice([row for row in rows if row not in taken])
        return self.drawn[name]


def attach_particle(noun: str, particle: str) -> str:
    """Append a particle in the form that follows the noun.

    >>> attach_particle("학교", "을"), attach_particle("서울", "으로"), attach_particle("나", "가")
    ('학교를', '서울로', '내가')
    """
    after_consonant, after_vowel = _PARTICLES.get(particle, (particle, particle))
    if noun + after_consonant in _PRONOUNS:
        return _PRONOUNS[noun + after_consonant]
    if particle == "아" and noun.endswith("이"):  # 서준이 -> 서준아
        return noun[:-1] + "아"
    if particle == "으로" and get_final(noun) == FINAL_RIEUL:
        return noun + "로"
    return noun + choose_particle(noun, after_consonant, after_vowel)


def inflect(word: str, ending: str, style: Style) -> str:
    """Append an ending to the dictionary form of a verb or an adjective, and perhaps 싶다.

    Args:
        ending: "past", "present" (of a verb) or "future" at the end of a sentence, in the style; or a connective ending
            as in ``korean_inflection``; with 았, the connective ending of the past.

    >>> [inflect("걷다", ending, "polite") for ending in ("past", "고", "아서", "았지만", "고 싶다")]
    ['걸었어요', '걷고', '걸어서', '걸었지만', '걷고 싶었어요']
    """
    stem = word.removesuffix("다")
    if ending in ("past", "present", "future"):
        text = Predicate(stem).finish(cast(Tense, ending), style, False)
    elif ending == "고 싶다":
        text = Predicate(stem).extend("고", " 싶").finish("past", style, False)
    else:
        text = make_past(stem) + ending[1:] if ending[0] == "았" else attach(stem, ending)
    return text.replace("|", "")
