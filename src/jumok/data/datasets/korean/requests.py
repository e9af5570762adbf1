"""Requests, proposals and permissions: Please open the window; Shall we go?; May I sit here?"""

from __future__ import annotations

import random

from jumok.data.datasets.korean.action_patterns import get_stem
from jumok.data.datasets.korean.clauses import Clause, Draft, Manner
from jumok.data.datasets.korean.draws import can_count, draw_action_words, draw_count, find_counter
from jumok.data.datasets.korean.english_inflection import Wording, capitalize
from jumok.data.datasets.korean.everyday_words import LEXICON, NOUNS
from jumok.data.datasets.korean.korean_inflection import FINAL_BIEUP, FINAL_RIEUL, Predicate, get_final, mark, set_final
from jumok.data.datasets.korean.words import YOU

REQUESTS = ("please", "order", "do", "do not", "let us", "shall we", "may", "may not", "give", "direction")


def draw_request(generator: random.Random) -> Draft:
    """창문을 열어 주세요 = Please open the window; 같이 영화를 보자 = Let's watch a movie together"""
    kind = generator.choice(REQUESTS)
    if kind == "give":
        return _draw_give(generator)
    if kind == "direction":
        korean, english = generator.choice(LEXICON["directions"]["ways"])
        verb = generator.choice((("가", "Go"), ("가", "Go"), ("보", "Look")))
        return _draft_fixed(mark(korean, "으로"), verb[0], f"{verb[1]} {english}", f"direction {korean} {verb[0]}")
    clause = draw_action_words(generator, "statement", "")
    while "너" in clause.key.split() or not _can_request(clause, kind):
        clause = draw_action_words(generator, "statement", "")
    verb_phrase = " ".join([clause.head, *clause.after])
    key = f"You {clause.key.removeprefix(clause.subject.english + ' ')}"
    before = " ".join(clause.before)
    core = clause.predicate
    is_together = (
        kind in ("let us", "shall we")
        and "with" not in verb_phrase
        and "alone" not in verb_phrase
        and "together" not in verb_phrase
        and generator.random() < 0.5
    )
    if is_together:
        before, verb_phrase = f"같이 {before}".strip(), f"{verb_phrase} together"

    def write(core: Predicate, manner: Manner) -> str:
        plain, casual, polite, formal = {
            "please": ("아 주세요",) * 2 + ("아 주세요", "아 주십시오"),
            "order": ("으세요", "아", "으세요", "으십시오"),
            "do": ("으세요", "아", "으세요", "으십시오"),
            "do not": ("지 마세요", "지 마", "지 마세요", "지 마십시오"),
            "let us": ("자", "자", "읍시다", "읍시다"),
            "shall we": ("을까?", "을까?", "을까요?", "을까요?"),
            "may": ("아도 되니?", "아도 돼?", "아도 돼요?", "아도 됩니까?"),
            "may not": ("으면 안 된다", "으면 안 돼", "으면 안 돼요", "으면 안 됩니다"),
        }[kind]
        ending = {"plain": plain, "casual": casual, "polite": polite, "formal": formal}[manner.style]
        if kind == "please" and manner.drops_particle:  # 도와주세요 without a space
            ending = ending.replace("아 ", "아")
        return _end_request(core, ending)

    english = {
        "please": f"Please {verb_phrase}", "order": capitalize(verb_phrase), "do": capitalize(verb_phrase),
        "do not": f"Don't {verb_phrase}", "let us": f"Let's {verb_phrase}", "shall we": f"Shall we {verb_phrase}?",
        "may": f"May I {verb_phrase}?", "may not": f"You must not {verb_phrase}",
    }[kind]  # fmt: skip
    other = {
        "do not": f"Please don't {verb_phrase}", "may": f"Can I {verb_phrase}?",
        "may not": f"You mustn't {verb_phrase}", "please": f"{capitalize(verb_phrase)} please",
    }.get(kind)  # fmt: skip
    return Draft(
        lambda manner: f"{before} {write(core, manner)}".strip(),
        lambda wording: other if other and not wording.is_contracted else english,
        key, f"{kind}, statement, present", YOU,
    )  # fmt: skip


def _can_request(clause: Clause, kind: str) -> bool:
    if clause.head == "be late":
        return kind in ("do not", "may not")
    return clause.predicate.kind == "verb" and get_stem(clause) not in LEXICON["verb_lists"]["no_request"]


def _end_request(core: Predicate, ending: str) -> str:
    """Attach an ending of a request, whose words and pieces are set."""
    first, _, remaining = ending.partition(" ")
    if first.startswith("을"):
        return core.connect("을") + (f"|{first[1:]}" if first != "을" else "") + (f" {remaining}" if remaining else "")
    if first == "읍시다":
        stem = core.connect("으면").removesuffix("|면").removesuffix("|으면")
        open_stem = get_final(stem) in (0, FINAL_RIEUL)
        return f"{set_final(stem, FINAL_BIEUP)}|시다" if open_stem else f"{stem}|읍시다"
    return core.connect(first) + (f" {remaining}" if remaining else "")


def _draft_fixed(before: str, stem: str, english: str, key: str) -> Draft:
    core = Predicate(stem)
    endings = {"plain": "으세요", "casual": "아", "polite": "으세요", "formal": "으십시오"}
    return Draft(
        lambda manner: f"{before} {_end_request(core, endings[manner.style])}",
        lambda wording: english if wording.is_contracted else f"Please {english[0].lower()}{english[1:]}",
        key, "direction, statement, present", YOU,
    )  # fmt: skip


def _draw_give(generator: random.Random) -> Draft:
    """커피 두 잔 주세요 = Please give me two cups of coffee"""
    groups = ("hot drinks", "cold drinks", "alcohol", "fruit", "snacks", "food", "things", "tickets", "texts")
    noun = generator.choice(NOUNS[generator.choice(groups)])
    korean, english = noun.korean, noun.english
    if find_counter(noun) and generator.random() < 0.7 and can_count(noun):
        korean, english = draw_count(generator, noun)
    elif generator.random() < 0.25 and noun.is_countable:
        korean, english = f"이 {korean}", f"this {noun.bare}"

    def write_korean(manner: Manner) -> str:
        ending = {"casual": "줘", "formal": "주십시오"}.get(manner.style, "주세요")
        return f"{korean if manner.drops_particle or manner.is_short else mark(korean, '을')} {ending}"

    def write_english(wording: Wording) -> str:
        if wording.is_contracted:
            return f"Please give me {english}"
        return f"{capitalize(english)} please"

    return Draft(write_korean, write_english, f"give {noun.korean}", "give, statement, present", YOU)
