"""Generate short Korean stories, as a pure function of a seed: the model ``korean`` was trained on them.

The words and the scenes are in ``korean_stories.toml``. What is drawn at the beginning of a story (who, where, which
thing) stays the same until its end, so that a model must remember more than the last few words.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from jumok.data.batches.split import Split, assign_split

from .korean_inflection import Style, attach_particle, inflect

STORY_COUNT = 60_000  # of both splits together
_STYLES: tuple[Style, ...] = ("plain", "polite", "formal")
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([^{}:.]+)(?:\.(\d))?(?::([^{}]+))?\}")


def read_korean_stories(split: Split = "train", count: int = STORY_COUNT, seed: int = 0) -> Iterator[str]:
    """Yield the stories of a split, a paragraph each, of ``count`` different ones in both splits."""
    data = tomllib.loads(Path(__file__).with_name("korean_stories.toml").read_text("utf-8"))
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
            word = word.removeprefix("~")
            if ending is not None and ending.endswith(" 싶다"):  # 가고 싶다
                return inflect(word, ending.partition(" ")[0]) + " " + inflect("싶다", "past", self.style)
            return inflect(word, ending or "past", self.style)
        if ending == "이다":
            return attach_particle(word, "이다", self.style)
        return attach_particle(word, ending) if ending else word

    def _draw(self, name: str) -> list[str]:
        """Return the entry of a slot; a new one differs from those of the other slots of its list."""
        if name not in self.drawn:
            kind = name.rstrip("0123456789")
            taken = [entry for other, entry in self.drawn.items() if other.rstrip("0123456789") in (kind, "hero")]
            rows = [[row] if isinstance(row, str) else row for row in self.words[kind]]
            self.drawn[name] = self.generator.choice([row for row in rows if row not in taken])
        return self.drawn[name]
