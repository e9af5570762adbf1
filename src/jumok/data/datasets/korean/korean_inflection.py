"""Inflect Korean: particles, the three kinds of endings of verbs and adjectives, and the styles of a sentence.

Stems are written as before "-지"; "|" separates the pieces of a word that become tokens. Vowel contraction and the
stems in ㄹ, 르 and 으 follow from the letters; the irregular stems in ㅂ, ㄷ, ㅅ and ㅎ are listed in
``irregular_forms.toml``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from jumok.data.datasets.korean.english_inflection import Tense

Kind = Literal["verb", "adjective", "copula"]
Style = Literal["plain", "casual", "polite", "formal"]

_IRREGULAR: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("irregular_forms.toml").read_text("utf-8"))[
    "stems"
]
FINAL_NIEUN, FINAL_RIEUL, FINAL_BIEUP = 4, 8, 17  # ㄴ, ㄹ and ㅂ among the 28 final consonants
_FINALS = 28
_PARTICLES = {"을": ("을", "를"), "이": ("이", "가"), "은": ("은", "는"), "과": ("과", "와"), "으로": ("으로", "로")}
_FINAL_SSANG_SIOT = 20  # ㅆ
_VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
_BRIGHT = "ㅏㅑㅗ"  # these take 아, the others 어
_CONTRACTED = {"ㅗ": "ㅘ", "ㅜ": "ㅝ", "ㅣ": "ㅕ", "ㅚ": "ㅙ"}
_UNCHANGED = "ㅏㅓㅐㅔㅕ"

# statement and question, by style
_ENDINGS: dict[Style, tuple[str, str]] = {
    "plain": ("다", "니?"), "casual": ("어", "어?"), "polite": ("어요", "어요?"), "formal": ("습니다", "습니까?"),
}  # fmt: skip
_COPULA: dict[Style, tuple[str, str]] = {
    "plain": ("다", "니?"), "casual": ("야", "야?"), "polite": ("예요", "예요?"), "formal": ("입니다", "입니까?"),
}  # fmt: skip


def choose_particle(word: str, after_consonant: str, after_vowel: str) -> str:
    """Return the particle that follows a Korean word.

    >>> choose_particle("학생", "은", "는"), choose_particle("친구", "은", "는")
    ('은', '는')
    """
    return after_consonant if get_final(word) else after_vowel


def mark(korean: str, particle: str) -> str:
    """Attach a particle; those that depend on the final consonant are named by their form after a consonant."""
    if particle == "으로" and get_final(korean) == FINAL_RIEUL:
        return f"{korean}|로"
    return f"{korean}|{choose_particle(korean, *_PARTICLES.get(particle, (particle, particle)))}"


def get_final(word: str) -> int:
    """Return the number of the final consonant of the last syllable; 0 = none."""
    code = ord(word[-1])
    assert ord("가") <= code <= ord("힣"), f"{word} does not end with Hangul"
    return (code - ord("가")) % _FINALS


def set_final(word: str, final: int) -> str:
    """Replace the final consonant of the last syllable."""
    return word[:-1] + chr(ord(word[-1]) - get_final(word) + final)


def get_vowel(syllable: str) -> str:
    """Return the vowel of a syllable."""
    return _VOWELS[(ord(syllable) - ord("가")) // _FINALS % 21]


def _set_vowel(text: str, vowel: str) -> str:
    shift = _VOWELS.index(vowel) - _VOWELS.index(get_vowel(text[-1]))
    return text[:-1] + chr(ord(text[-1]) + _FINALS * shift)


def _is_irregular(text: str, letter: str) -> bool:
    return text.split()[-1].split("|")[-1] in _IRREGULAR[letter]


def make_infinitive(stem: str) -> str:
    """Return the form with 아 or 어.

    >>> [make_infinitive(stem) for stem in ("가", "먹", "마시", "쓰", "바쁘", "돕", "춥", "듣", "모르", "하얗", "낫")]
    ['가', '먹어', '마셔', '써', '바빠', '도와', '추워', '들어', '몰라', '하얘', '나아']
    """
    last = stem[-1]
    if last == "하":
        return f"{stem[:-1]}해"
    if last == "르" and stem[-2:-1].isalpha():
        return set_final(stem[:-1], FINAL_RIEUL) + ("라" if get_vowel(stem[-2]) in _BRIGHT else "러")
    if _is_irregular(stem, "ㅂ"):
        return set_final(stem, 0) + ("와" if last == "돕" else "워")
    ending = "아" if get_vowel(last) in _BRIGHT else "어"
    if _is_irregular(stem, "ㄷ"):
        return set_final(stem, FINAL_RIEUL) + ending
    if _is_irregular(stem, "ㅅ"):
        return set_final(stem, 0) + ending
    vowel = get_vowel(last)
    if _is_irregular(stem, "ㅎ"):
        return _set_vowel(set_final(stem, 0), "ㅒ" if vowel == "ㅑ" else "ㅐ")
    if get_final(stem) or vowel in "ㅟㅢ":
        return stem + ending
    if vowel == "ㅡ":  # dropped; the vowel before it decides
        is_bright = stem[-2:-1].isalpha() and get_vowel(stem[-2]) in _BRIGHT
        return _set_vowel(stem, "ㅏ" if is_bright else "ㅓ")
    return stem if vowel in _UNCHANGED else _set_vowel(stem, _CONTRACTED[vowel])


def make_past(stem: str) -> str:
    """Return the stem of the past: 갔, 먹었, 추웠."""
    return set_final(make_infinitive(stem), _FINAL_SSANG_SIOT)


def attach(stem: str, ending: str) -> str:
    """Attach an ending to a stem. Endings that begin with 으 or 아 have it only after the stems that need it.

    >>> [attach("돕", ending) for ending in ("지", "으면", "아서", "을")]
    ['돕|지', '도우|면', '도와|서', '도울']
    >>> [attach("놀", ending) for ending in ("지", "으면", "아서", "을", "은", "으니까", "니?")]
    ['놀|지', '놀|면', '놀아|서', '놀', '논', '노|니까', '노|니?']
    """
    if ending.startswith("아"):
        return f"{make_infinitive(stem)}|{ending[1:]}".removesuffix("|")
    if not ending.startswith(("으", "을", "은")):
        drops_rieul = get_final(stem) == FINAL_RIEUL and ending[0] in "니는"
        return f"{set_final(stem, 0) if drops_rieul else stem}|{ending}"
    if _is_irregular(stem, "ㅂ"):
        stem = set_final(stem, 0) + "우"
    elif _is_irregular(stem, "ㄷ"):
        stem = set_final(stem, FINAL_RIEUL)
    elif _is_irregular(stem, "ㅅ"):
        stem = set_final(stem, 0)
    elif _is_irregular(stem, "ㅎ"):
        return _attach_to_open_stem(set_final(stem, 0), ending)
    elif get_final(stem) in (0, FINAL_RIEUL):
        return _attach_to_open_stem(stem, ending)
    return f"{stem}|{ending}" if ending[0] == "으" and stem[-1] != "우" else _attach_to_open_stem(stem, ending)


def _attach_to_open_stem(stem: str, ending: str) -> str:
    """Attach an ending in 으 to a stem that ends with a vowel or ㄹ, or 을 and 은 to any stem."""
    if ending in ("을", "은"):
        if get_final(stem) not in (0, FINAL_RIEUL) or _keeps_syllable(stem):
            return stem + ending
        return set_final(stem, FINAL_RIEUL if ending == "을" else FINAL_NIEUN)
    remaining = ending[1:]
    return f"{set_final(stem, 0) if remaining[0] in '니세시' else stem}|{remaining}"


def _keeps_syllable(stem: str) -> bool:
    """Whether the stem is the form of an irregular one, such as 들 of 듣 or 나 of 낫, which takes a whole syllable."""
    return any(
        stem.split()[-1].split("|")[-1] == set_final(irregular, final)
        for letter, final in (("ㄷ", FINAL_RIEUL), ("ㅅ", 0))
        for irregular in _IRREGULAR[letter]
    )


@dataclass(frozen=True)
class Predicate:
    """The predicate of a clause in pieces, up to its stem: "갈 수 있"; of a copula, up to the noun: "학생"."""

    text: str
    kind: Kind = "verb"

    def connect(self, ending: str) -> str:
        """Attach a connective ending: 가|고, 추우|면, 학생|이|지만."""
        if self.kind != "copula":
            return attach(self.text, ending)
        if ending == "아서":
            return f"{self.text}|{choose_particle(self.text, '이라서', '라서')}"
        remaining = ending.removeprefix("으")
        return f"{self.text}|{choose_particle(self.text, '이', '')}|{remaining}".replace("||", "|")

    def connect_past(self, ending: str) -> str:
        """Attach a connective ending to the past: 갔|지만, 먹었|으니까."""
        return f"{self._make_past()}|{ending}"

    def extend(self, ending: str, text: str, kind: Kind = "verb") -> Predicate:
        """Attach an ending and further words: 가|고 싶."""
        return Predicate(f"{attach(self.text, ending)}{text}", kind)

    def negate(self, *, short: bool = False, unable: bool = False) -> Predicate:
        """Return the negation: 가|지 않, 안 가, 가|지 못하, 못 가."""
        if self.kind == "copula":
            return Predicate(f"{self.text}|{choose_particle(self.text, '이', '가')} 아니", "adjective")
        if not short:
            return self.extend("지", " 못하" if unable else " 않", self.kind)
        *first, last = self.text.split(" ")
        is_noun_verb = self.kind == "verb" and last.endswith("하") and len(last) > 2 and last not in _IRREGULAR["하"]
        words = [*first, last[:-1], "못" if unable else "안", "하"] if is_noun_verb else [
            *first, "못" if unable else "안", last
        ]  # fmt: skip
        return replace(self, text=" ".join(words))

    def honor(self) -> Predicate:
        """Return the honorific form: 가|시; 주무시 and others are special."""
        if self.kind == "copula":
            return self
        *first, last = self.text.split(" ")
        special = {"자": "주무시", "먹": "드시", "마시": "드시", "있": "계시"}.get(last)
        return replace(self, text=" ".join([*first, special or attach(last, "으시")]))

    def finish(self, tense: Tense, style: Style, is_question: bool) -> str:
        """Return the end of a sentence."""
        if tense == "past":
            return f"{self._make_past()}|{_ENDINGS[style][is_question]}"
        if tense == "future":
            future = f"{self.text}|일" if self.kind == "copula" else attach(self.text, "을")
            thing = "것이" if style == "plain" and not is_question else "것" if style == "formal" else "거"
            return f"{future} {thing}|{_COPULA[style][is_question]}"
        if self.kind == "copula":
            return self._finish_copula(style, is_question)
        return self._finish_present(style, is_question)

    def _make_past(self) -> str:
        if self.kind == "copula":
            return f"{self.text}|{choose_particle(self.text, '이었', '였')}"
        return "아니었".join(self.text.rsplit("아니", 1)) if self.text.endswith(" 아니") else make_past(self.text)

    def _finish_copula(self, style: Style, is_question: bool) -> str:
        ending = _COPULA[style][is_question]
        if get_final(self.text) and style == "plain":
            return f"{self.text}|이|{ending}"
        if get_final(self.text) and style in ("casual", "polite"):
            ending = ("이에요" if style == "polite" else "이야") + "?" * is_question
        return f"{self.text}|{ending}"

    def _finish_present(self, style: Style, is_question: bool) -> str:
        stem, question = self.text, "?" * is_question
        has_rieul, is_open = get_final(stem) == FINAL_RIEUL, not get_final(stem)
        if style == "formal":
            if is_open or has_rieul:
                return f"{set_final(stem, FINAL_BIEUP)}|{'니까?' if is_question else '니다'}"
            return f"{stem}|{'습니까?' if is_question else '습니다'}"
        if style in ("casual", "polite"):
            if stem.endswith(" 아니"):
                return f"{stem}|{'에요' if style == 'polite' else '야'}{question}"
            if style == "polite" and stem.endswith("시") and not stem.endswith("마시"):  # honorific
                return f"{stem[:-1]}세요{question}"
            return f"{make_infinitive(stem)}{'|요' if style == 'polite' else ''}{question}"
        if is_question:
            return attach(stem, "니?")
        if self.kind == "adjective":
            return f"{stem}|다"
        return f"{set_final(stem, FINAL_NIEUN)}|다" if is_open or has_rieul else f"{stem}|는다"
