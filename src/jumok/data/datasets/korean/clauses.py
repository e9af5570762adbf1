"""A clause in both languages: subject, predicate, complements, mode and negation, and how it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from jumok.data.datasets.korean.english_inflection import (
    Tense,
    Wording,
    add_ing,
    capitalize,
    choose_auxiliary,
    choose_be,
    conjugate,
)
from jumok.data.datasets.korean.everyday_words import HONORED, IT
from jumok.data.datasets.korean.korean_inflection import Predicate, Style, attach, mark
from jumok.data.datasets.korean.words import ME, QUESTIONS, WE, WHO, YOU, Form, Subject, Time, lower_first

Mode = Literal["", "want", "can", "must", "progressive"]


@dataclass(frozen=True)
class Manner:
    """How a Korean sentence is said."""

    style: Style = "plain"
    subject: Literal["topic", "subject", "dropped"] = "topic"
    time_first: bool = False
    is_short: bool = False  # 안 and 못 before the verb
    is_honorific: bool = False
    drops_particle: bool = False


CONTRACTED = Wording()


@dataclass(frozen=True)
class Clause:
    """A clause in both languages; ``before`` and ``after`` are the Korean and the English complements.

    Attributes:
        head: The English verb, "be", or an impersonal verb of the weather.
        frequency: An adverb before the verb, in both languages.
        key: The words that decide the split.
    """

    subject: Subject
    predicate: Predicate
    head: str
    past: str = ""
    ing: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    mode: Mode = ""
    is_negative: bool = False
    time: Time | None = None
    frequency: tuple[str, str] | None = None
    antonym: str = ""
    key: str = ""
    drops: bool = False  # the subject follows from the predicate
    question_word: str = ""
    is_weather: bool = False

    # Korean

    def build_predicate(self, manner: Manner) -> Predicate:
        """Return the predicate with its mode and negation."""
        core, short = self.predicate, manner.is_short
        if manner.is_honorific and self.subject in (*HONORED, YOU):
            has = self.head == "have"  # 있으시: only a person 계시
            core = replace(core, text=attach(core.text, "으시")) if has else core.honor()
        if core.kind == "copula":
            return core.negate() if self.is_negative else core
        if not self.is_negative:
            return self._extend(core)
        if self.mode == "can":
            return core.negate(short=True, unable=True) if short else core.extend("을", " 수 없", "adjective")
        if self.mode == "must":
            return core.negate(short=short).extend("아도", " 되")
        if self.mode == "" and self.antonym:
            return Predicate(self.antonym, core.kind)
        return self._extend(core.negate(short=True)) if short else self._extend(core).negate()

    def _extend(self, core: Predicate) -> Predicate:
        """Return the predicate with its mode."""
        match self.mode:
            case "want":
                is_first = self.subject in (ME, YOU, WE)
                return core.extend("고", " 싶", "adjective") if is_first else core.extend("고", " 싶어 하")
            case "can":
                return core.extend("을", " 수 있", "adjective")
            case "must":
                return core.extend("아야", " 하")
            case "progressive":
                return core.extend("고", " 있", "adjective")
        return core

    def list_korean(self, manner: Manner, has_subject: bool = True) -> list[str]:
        """Return what comes before the predicate."""
        subject = self.mark_subject(manner) if has_subject else ""
        parts = [subject, self.time.korean if self.time else ""]
        before = [*self.before]
        if manner.drops_particle and before and before[-1].endswith(("|을", "|를")):
            before[-1] = before[-1][:-2]
        frequency = [self.frequency[0]] if self.frequency else []
        return [part for part in [*(parts[::-1] if manner.time_first else parts), *frequency, *before] if part]

    def mark_subject(self, manner: Manner) -> str:
        """Return the Korean subject with its particle; "" if it is dropped."""
        subject, korean = self.subject, self.subject.korean
        if subject is WHO or not korean:
            return korean
        if subject is IT and self.is_weather:
            return ""
        can_drop = subject is ME or subject is YOU or self.drops
        if manner.subject == "dropped" and can_drop:
            return ""
        if manner.is_honorific and subject in HONORED:
            return f"{korean}|께서" if manner.subject == "subject" else f"{korean}|께서|는"
        if subject is ME and manner.style in ("polite", "formal"):
            korean = "저"
        if manner.subject != "subject":
            return mark(korean, "은")
        return {"나": "내|가", "저": "제|가", "너": "네|가"}.get(korean) or mark(korean, "이")

    def write_korean(self, tense: Tense, manner: Manner, form: Form) -> str:
        """Write the clause as a sentence, in pieces."""
        end = self.build_predicate(manner).finish(tense, manner.style, form in QUESTIONS)
        return " ".join([*self.list_korean(manner), end])

    # English

    def split_verb(self, tense: Tense, *, needs_auxiliary: bool) -> tuple[str, list[str]]:
        """Return the auxiliary, or "" if there is none, and the rest of the verb with its adverb."""
        person = self.subject.person
        adverb = [self.frequency[1]] if self.frequency else []
        base = self.head.split()
        is_progressive = self.mode == "progressive" or (self.is_weather and tense == "present" and self.head != "be")
        if is_progressive:
            base = ["be", (self.ing or add_ing(base[0])).split()[0], *base[1:]]
        elif self.mode == "can":
            if tense != "future":
                return "can" if tense == "present" else "could", [*adverb, *base]
            base = ["be", "able", "to", *base]
        elif self.mode in ("want", "must"):
            base = ["want" if self.mode == "want" else "have", "to", *base]
        if tense == "future":
            return "will", [*adverb, *base]
        if base[0] == "be":
            return choose_be(person, tense), [*adverb, *base[1:]]
        if needs_auxiliary:
            return choose_auxiliary(person, tense), [*adverb, *base]
        past = "" if self.mode else self.past.partition(" ")[0]
        return "", [*adverb, conjugate(base[0], past, person, tense), *base[1:]]

    def list_english(self, tense: Tense, wording: Wording, subject: str = "") -> list[str]:
        """Return the clause as words inside a sentence, with another subject if given."""
        auxiliary, remaining = self.split_verb(tense, needs_auxiliary=self.is_negative)
        if auxiliary:
            remaining = [wording.negate(auxiliary) if self.is_negative else auxiliary, *remaining]
            if self.is_negative and self.frequency and self.frequency[1] == "sometimes":
                # "doesn't sometimes" would deny that it happens at all
                remaining[:2] = remaining[1::-1]
        time = [self.time.english] if self.time else []
        return [subject or lower_first(self.subject), *remaining, *self.after, *time]

    def write_english(self, tense: Tense, wording: Wording, form: Form) -> str:
        """Write the clause as a sentence: "Did he go?", "Did he not go?", "When did he go?"."""
        if form not in QUESTIONS or self.subject is WHO:
            if self.time is not None and wording.time_first and form not in QUESTIONS:
                plain = replace(self, time=None).list_english(tense, wording)
                return capitalize(" ".join([self.time.english, *plain]))
            return capitalize(" ".join(self.list_english(tense, wording))) + "?" * (form in QUESTIONS)
        auxiliary, remaining = self.split_verb(tense, needs_auxiliary=True)
        start = [auxiliary, lower_first(self.subject)]
        if form == "negative question":
            start = [wording.negate(auxiliary), start[1]] if wording.is_contracted else [*start, "not"]
        time = [self.time.english] if self.time else []
        words = [self.question_word, *start, *remaining, *self.after, *time]
        return capitalize(" ".join(word for word in words if word)) + "?"

    def draft(self, tense: Tense, form: Form, name: str) -> Draft:
        """Return the sentence of this clause; ``name`` is the kind of sentence."""
        return Draft(
            lambda manner: self.write_korean(tense, manner, form),
            lambda wording: self.write_english(tense, wording, form),
            self.key,
            f"{name}, {form}, {tense}",
            self.subject,
            form,
        )


@dataclass
class Draft:
    """Two functions that write a sentence, with what decides its split; ``sentences`` makes a pair of it."""

    write_korean: Callable[[Manner], str]
    write_english: Callable[[Wording], str]
    key: str
    pattern: str
    subject: Subject = IT
    form: Form = "statement"
