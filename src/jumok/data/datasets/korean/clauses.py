"""A clause in both languages: subject, predicate, complements, mode and negation, and how it is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from jumok.data.datasets.korean import words
from jumok.data.datasets.korean.everyday_words import HONORED, IT, ME, WE, YOU, add_ing, capitalize, lower_first
from jumok.data.datasets.korean.predicates import Predicate, Style, attach
from jumok.data.datasets.korean.words import QUESTIONS, WHO, Form, Subject, Tense, Time, Wording, choose_particle

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


@dataclass(frozen=True)
class Clause:
    """A clause in both languages; ``before`` and ``after`` are the Korean and the English complements.

    Attributes:
        head: The English verb, "be", or an impersonal verb of the weather.
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
        if self.mode == "can" and self.is_negative:
            return core.negate(short=True, unable=True) if short else core.extend("을", " 수 없", "adjective")
        if self.mode == "must" and self.is_negative:
            return core.negate(short=short).extend("아도", " 되")
        if self.is_negative and self.mode == "" and self.antonym:
            return Predicate(self.antonym, core.kind)
        if self.is_negative and short and core.kind != "copula":
            core = core.negate(short=True)
        is_first = self.subject in (ME, YOU, WE)
        extended = {
            "": core,
            "want": core.extend("고", " 싶", "adjective") if is_first else core.extend("고", " 싶어 하"),
            "can": core.extend("을", " 수 있", "adjective"),
            "must": core.extend("아야", " 하"),
            "progressive": core.extend("고", " 있", "adjective"),
        }[self.mode] if core.kind != "copula" else core  # fmt: skip
        return extended.negate() if self.is_negative and (not short or core.kind == "copula") else extended

    def list_korean(self, manner: Manner, has_subject: bool = True) -> list[str]:
        """Return what comes before the predicate."""
        subject = self._mark_subject(manner) if has_subject else ""
        parts = [subject, self.time.korean if self.time else ""]
        before = [*self.before]
        if manner.drops_particle and before and before[-1].endswith(("|을", "|를")):
            before[-1] = before[-1][:-2]
        frequency = [self.frequency[0]] if self.frequency else []
        return [part for part in [*(parts[::-1] if manner.time_first else parts), *frequency, *before] if part]

    def _mark_subject(self, manner: Manner) -> str:
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
            return f"{korean}|{choose_particle(korean, '은', '는')}"
        special = {"나": "내|가", "저": "제|가", "너": "네|가"}.get(korean)
        return special or f"{korean}|{choose_particle(korean, '이', '가')}"

    def write_korean(self, tense: Tense, manner: Manner, is_question: bool) -> str:
        """Write the clause as a sentence, in pieces."""
        end = self.build_predicate(manner).finish(tense, manner.style, is_question)
        return " ".join([*self.list_korean(manner), end])

    # English

    def split_verb(self, tense: Tense, *, needs_auxiliary: bool) -> tuple[str, list[str]]:
        """Return the auxiliary, or "" if there is none, and the rest of the verb with its adverb."""
        person = self.subject.person
        adverb = [self.frequency[1]] if self.frequency else []
        base = self.head.split()
        ing = (self.ing or add_ing(base[0])).split()[0]
        is_progressive = self.mode == "progressive" or (self.is_weather and tense == "present" and self.head != "be")
        if is_progressive:
            base = ["be", ing, *base[1:]]
        elif self.mode == "can":
            if tense != "future":
                return "can" if tense == "present" else "could", [*adverb, *base]
            base = ["be", "able", "to", *base]
        elif self.mode in ("want", "must"):
            base = ["want" if self.mode == "want" else "have", "to", *base]
        if tense == "future":
            return "will", [*adverb, *base]
        if base[0] == "be":
            return words.choose_be(person, tense), [*adverb, *base[1:]]
        if needs_auxiliary:
            return words.choose_auxiliary(self.subject, tense), [*adverb, *base]
        past = {"want": "wanted", "have": "had"}.get(base[0]) or self.past.partition(" ")[0]
        verb = words.Verb("", "", base[0], past)
        finite = "has" if base[0] == "have" and person == "singular" and tense == "present" else ""
        return "", [*adverb, finite or words.conjugate_english(verb, self.subject, tense), *base[1:]]

    def list_english(self, tense: Tense, wording: Wording, subject: str = "") -> list[str]:
        """Return the clause as words inside a sentence, with another subject if given."""
        auxiliary, remaining = self.split_verb(tense, needs_auxiliary=self.is_negative)
        if auxiliary:
            remaining = [wording.negate(auxiliary) if self.is_negative else auxiliary, *remaining]
        time = [self.time.english] if self.time else []
        return [subject or lower_first(self.subject), *remaining, *self.after, *time]

    def write_english(self, tense: Tense, wording: Wording, form: Form) -> str:
        """Write the clause as a sentence."""
        if form not in QUESTIONS or self.subject is WHO:
            end = "?" if form in QUESTIONS else ""
            if self.time is not None and wording.time_first and not end:
                plain = replace(self, time=None).list_english(tense, wording)
                return capitalize(" ".join([self.time.english, *plain]))
            return capitalize(" ".join(self.list_english(tense, wording))) + end
        auxiliary, remaining = self.split_verb(tense, needs_auxiliary=True)
        parts = [*remaining, *self.after, *([self.time.english] if self.time else [])]
        return wording.ask(self.question_word, auxiliary, lower_first(self.subject), form, parts)


@dataclass
class Draft:
    """Two functions that write a sentence, with what decides its split; ``everyday`` makes a pair of it."""

    write_korean: Callable[[Manner], str]
    write_english: Callable[[Wording], str]
    key: str
    pattern: str
    subject: Subject = field(default_factory=lambda: IT)
    form: Form = "statement"
