"""Inflect Korean verbs and adjectives from their dictionary form, and choose the particles of nouns."""

from __future__ import annotations

from typing import Literal

Style = Literal["plain", "polite", "formal"]

_INITIALS, _VOWELS, _FINALS = (
    "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ",
    "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ",
    " ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ",
)
_BASE = ord("가")
_REGULAR = {  # the stems that keep their final consonant, though most with this consonant change it
    "ㅂ": ("입", "잡", "접", "뽑", "씹", "업", "좁", "집", "꼽"),
    "ㅎ": ("좋", "놓", "넣", "쌓", "낳", "닿"),
}
_IRREGULAR = {  # the stems that change their final consonant, though most with this consonant keep it
    "ㄷ": ("듣", "걷", "싣", "깨닫", "묻"),
    "ㅅ": ("짓", "낫", "붓", "긋", "잇", "젓"),
}
_REGULAR_REU = ("들르", "따르", "치르")
_CONTRACTIONS = {
    "ㅏㅏ": "ㅏ",
    "ㅓㅓ": "ㅓ",
    "ㅗㅏ": "ㅘ",
    "ㅜㅓ": "ㅝ",
    "ㅣㅓ": "ㅕ",
    "ㅐㅓ": "ㅐ",
    "ㅔㅓ": "ㅔ",
    "ㅚㅓ": "ㅙ",
    "ㅕㅓ": "ㅕ",
}
_PARTICLES = {  # after a consonant, after a vowel
    "은": "은는", "는": "은는", "이": "이가", "가": "이가", "을": "을를", "를": "을를", "과": "과와", "와": "과와",
    "아": "아야",
}  # fmt: skip
_STATEMENT_ENDS: dict[Style, str] = {"plain": "다", "polite": "어요", "formal": "습니다"}
_PRONOUNS = {("나", "이"): "내가", ("저", "이"): "제가", ("너", "이"): "네가", ("나", "의"): "내", ("저", "의"): "제"}


def split_syllable(syllable: str) -> tuple[str, str, str]:
    """Return the initial consonant, the vowel and the final consonant (" " = none) of a syllable."""
    code = ord(syllable) - _BASE
    return _INITIALS[code // 588], _VOWELS[code // 28 % 21], _FINALS[code % 28]


def join_syllable(initial: str, vowel: str, final: str = " ") -> str:
    """Return the syllable of these letters: the inverse of `split_syllable`."""
    return chr(_BASE + (_INITIALS.index(initial) * 21 + _VOWELS.index(vowel)) * 28 + _FINALS.index(final))


def attach_particle(noun: str, particle: str, style: Style = "plain") -> str:
    """Append a particle in the form that follows the noun; 이다 is in the past, in the style.

    >>> attach_particle("학교", "을"), attach_particle("서울", "으로"), attach_particle("나", "이")
    ('학교를', '서울로', '내가')
    """
    final = split_syllable(noun[-1])[2]
    if particle == "이다":
        return noun + ("이었" if final != " " else "였") + _STATEMENT_ENDS[style]
    if particle == "으로":
        return noun + ("로" if final in " ㄹ" else "으로")
    if particle == "아" and noun.endswith("이"):  # 서준이 -> 서준아
        return noun[:-1] + "아"
    if particle in ("이나", "이고", "야", "이요", "이었고"):
        bare = "였고" if particle == "이었고" else particle.removeprefix("이")
        return noun + (bare if final == " " else "이" + particle.removeprefix("이"))
    if particle not in _PARTICLES:
        return _PRONOUNS.get((noun, particle), noun + particle)
    after_consonant, after_vowel = tuple(_PARTICLES[particle])
    return _PRONOUNS.get((noun, after_consonant)) or noun + (after_vowel if final == " " else after_consonant)


def inflect(word: str, ending: str, style: Style = "plain") -> str:
    """Append an ending to a verb or an adjective in the dictionary form.

    Args:
        word: The dictionary form, such as "춥다"; words before the verb are kept.
        ending: "past", "present" (of a verb) or "future" at the end of a sentence, in the style; or an ending as in a
            grammar: 아서 and 았지만 depend on the vowel of the stem, 으면, ㄴ and ㄹ on its last consonant.
        style: The style of a sentence's end.

    >>> [inflect("춥다", ending) for ending in ("past", "아서", "고", "으면", "ㄴ")]
    ['추웠다', '추워서', '춥고', '추우면', '추운']
    >>> [inflect("걷다", "past", style) for style in ("plain", "polite", "formal")]
    ['걸었다', '걸었어요', '걸었습니다']
    """
    stem = word.removesuffix("다")
    if ending == "past":
        return inflect(word, "았" + _STATEMENT_ENDS[style])
    if ending == "future":
        return inflect(word, "ㄹ") + {"plain": " 것이다", "polite": " 거예요", "formal": " 것입니다"}[style]
    if ending == "present":
        if style == "polite":
            return inflect(word, "아요")
        final = split_syllable(stem[-1])[2]
        if style == "formal":
            return stem + "습니다" if final not in " ㄹ" else _set_final(stem, "ㅂ") + "니다"
        return stem + "는다" if final not in " ㄹ" else _set_final(stem, "ㄴ") + "다"
    if ending[0] in "아았":
        infinitive = _make_infinitive(stem)
        return infinitive + ending[1:] if ending[0] == "아" else _set_final(infinitive, "ㅆ") + ending[1:]
    if ending[0] in "으시ㄴㄹㅂ":
        return _append_after_vowel(stem, ending)
    if ending[0] in "니는" and split_syllable(stem[-1])[2] == "ㄹ":  # ㄹ is dropped before ㄴ
        stem = _set_final(stem, " ")
    return stem + ending


def _set_final(word: str, final: str) -> str:
    initial, vowel, _ = split_syllable(word[-1])
    return word[:-1] + join_syllable(initial, vowel, final)


def _soften_stem(stem: str) -> str:
    """Return the stem as it is before a vowel: 춥 -> 추우, 듣 -> 들, 짓 -> 지(으), 빨갛 -> 빨가."""
    final = split_syllable(stem[-1])[2]
    word = stem.split()[-1]
    if final == "ㅂ" and not word.endswith(_REGULAR["ㅂ"]):
        return _set_final(stem, " ") + "우"
    if final == "ㄷ" and word.endswith(_IRREGULAR["ㄷ"]):
        return _set_final(stem, "ㄹ")
    if final == "ㅅ" and word.endswith(_IRREGULAR["ㅅ"]):
        return _set_final(stem, " ")
    if final == "ㅎ" and not word.endswith(_REGULAR["ㅎ"]):
        return _set_final(stem, " ")
    return stem


def _make_infinitive(stem: str) -> str:
    """Return the form with 아 or 어: 가, 먹어, 마셔, 해, 추워, 들어, 몰라, 써."""
    initial, vowel, final = split_syllable(stem[-1])
    soft = _soften_stem(stem)
    if final == "ㅎ" and soft != stem:
        return soft[:-1] + join_syllable(initial, "ㅒ" if vowel == "ㅑ" else "ㅐ")  # 빨갛 -> 빨개, 하얗 -> 하얘
    if final == "ㅅ" and soft != stem:
        return soft + ("아" if vowel in "ㅏㅗ" else "어")  # 짓 -> 지어, without contraction
    if stem.endswith("하"):
        return stem[:-1] + "해"
    if vowel == "ㅡ" and final == " ":
        before = split_syllable(stem[-2])[1] if len(stem) > 1 and stem[-2] != " " else "ㅓ"
        ending = "ㅏ" if before in "ㅏㅗ" else "ㅓ"
        if stem.endswith("르") and not stem.endswith(_REGULAR_REU):
            return _set_final(stem[:-1], "ㄹ") + join_syllable("ㄹ", ending)  # 모르 -> 몰라
        return stem[:-1] + join_syllable(initial, ending)  # 쓰 -> 써
    if soft.endswith("우") and soft != stem:  # 춥 -> 추워, but 돕 -> 도와
        return soft[:-1] + ("와" if stem.endswith(("돕", "곱")) else "워")
    initial, vowel, final = split_syllable(soft[-1])
    ending = "ㅏ" if vowel in "ㅏㅗㅑ" else "ㅓ"
    if final == " " and vowel + ending in _CONTRACTIONS:
        return soft[:-1] + join_syllable(initial, _CONTRACTIONS[vowel + ending])
    return soft + join_syllable("ㅇ", ending)


def _append_after_vowel(stem: str, ending: str) -> str:
    """Append 으면, 으러, 시었, ㄴ, ㄹ or ㅂ: 으 is dropped after a vowel, ㄹ before ㄴ, ㅂ and 시."""
    soft = _soften_stem(stem)
    changed = soft != stem
    final = split_syllable(soft[-1])[2]
    bare = ending[1:] if ending[0] == "으" else ending
    needs_eu = final not in " ㄹ" or (changed and split_syllable(stem[-1])[2] in "ㄷㅅ")
    if needs_eu:
        if bare[0] in "ㄴㄹㅂ":
            return soft + join_syllable("ㅇ", "ㅡ", bare[0]) + bare[1:]
        return soft + "으" + bare
    if final == "ㄹ" and (bare[0] in "ㄴㅂ시니"):
        soft = _set_final(soft, " ")
    if bare[0] in "ㄴㄹㅂ":
        return _set_final(soft, bare[0]) + bare[1:]
    return soft + bare
