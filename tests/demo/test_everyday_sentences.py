"""Check the everyday Korean-English sentences: inflection, one translation each, and no overlap between the splits."""

from __future__ import annotations

import unicodedata
from collections import defaultdict

import pytest

import jumok
from jumok.data.datasets.korean import everyday_words, words
from jumok.data.datasets.korean.clauses import Manner
from jumok.data.datasets.korean.connected import parse_clause
from jumok.data.datasets.korean.english_inflection import Tense, Wording
from jumok.data.datasets.korean.korean_inflection import Kind, Predicate, make_past
from jumok.data.datasets.korean.sentences import SentencePair, list_phrase_pairs, make_sentence_pairs


@pytest.fixture(scope="module")
def pairs() -> dict[str, list[SentencePair]]:
    return {"train": make_sentence_pairs(600), "held-out": make_sentence_pairs(60, "held-out")}


def test_no_combination_and_no_sentence_is_in_both_splits(pairs: dict[str, list[SentencePair]]) -> None:
    for name in ("combination", "korean", "variant", "english", "english_variant"):
        train, held_out = ({getattr(pair, name) for pair in pairs[split]} for split in ("train", "held-out"))
        assert train and held_out and not train & held_out, name


def test_each_sentence_has_one_translation(pairs: dict[str, list[SentencePair]]) -> None:
    to_english, to_korean = defaultdict(set), defaultdict(set)
    for pair in [*pairs["train"], *pairs["held-out"], *list_phrase_pairs()]:
        for source in (pair.korean, pair.variant):
            to_english[source].add(pair.english)
        for source in (pair.english, pair.english_variant) if pair.pattern != "phrase" else ():  # phrases are polite
            to_korean[source].add(pair.korean)
    assert [(sentence, answers) for sentence, answers in to_english.items() if len(answers) > 1] == []
    assert [(sentence, answers) for sentence, answers in to_korean.items() if len(answers) > 1] == []


# stem and past, written by hand
PASTS = """
가 갔 오 왔 돌아오 돌아왔 걸어가 걸어갔 살 살았 자 잤 일하 일했 놀 놀았 쉬 쉬었 달리 달렸 수영하 수영했
운동하 운동했 울 울었 웃 웃었 춤추 춤췄 노래하 노래했 먹 먹었 마시 마셨 요리하 요리했 읽 읽었 쓰 썼 보 봤 사 샀
팔 팔았 만들 만들었 배우 배웠 가르치 가르쳤 공부하 공부했 만나 만났 돕 도왔 기다리 기다렸 청소하 청소했 열 열었
닫 닫았 듣 들었 치 쳤 그리 그렸 사용하 사용했 고치 고쳤 보내 보냈 받 받았 가져오 가져왔 입 입었
잃어버리 잃어버렸 심 심었 찍 찍었 좋아하 좋아했 사랑하 사랑했 하 했 행복하 행복했 피곤하 피곤했 바쁘 바빴
아프 아팠 친절하 친절했 슬프 슬펐 배고프 배고팠 유명하 유명했 젊 젊었 건강하 건강했 똑똑하 똑똑했 강하 강했
정직하 정직했 부지런하 부지런했 조용하 조용했 용감하 용감했 비싸 비쌌 싸 쌌 작 작았 크 컸 무겁 무거웠
가볍 가벼웠 예쁘 예뻤 깨끗하 깨끗했
"""


def test_pasts_are_those_written_by_hand() -> None:
    forms = PASTS.split()
    pasts = dict(zip(forms[::2], forms[1::2], strict=True))
    assert {stem: make_past(stem) for stem in pasts} == pasts
    simple = [*words.ADJECTIVES, *words.THING_ADJECTIVES]
    assert {verb.stem for verb in words.VERBS} | {stem for stem, _ in simple} == set(pasts)


@pytest.mark.parametrize(
    ("stem", "kind", "forms"),
    [
        (
            "춥",
            "adjective",
            "춥다 춥니? 추워 추워요 춥습니다 추웠다 추울것이다 추워서 추우면 추우니까 추운 춥지않다 춥지만",
        ),
        (
            "걷",
            "verb",
            "걷는다 걸어 걸어요 걷습니다 걸었어요 걸을거예요 걸어서 걸으면 걸으세요 안걷는다 못걷는다",
        ),
        ("모르", "verb", "모른다 모르니? 몰라 몰라요 모릅니다 몰랐다 모를것이다 몰라서 모르면 모르지않는다"),
        ("끄", "verb", "끈다 꺼 꺼요 껐다 끌것이다 꺼서 끄면 끄세요 끄지못한다"),
        ("낫", "verb", "낫는다 나아 나아요 나았다 나을것이다 나아서 나으면 나으세요 낫습니다"),
        ("살", "verb", "산다 사니? 살아 살아요 삽니다 살것이다 살면 사니까 사세요 사십니다"),
        ("공부하", "verb", "공부한다 공부해요 공부안해요 공부못해요 공부하세요 공부합니다 공부하려고"),
        (
            "학생",
            "copula",
            "학생이다 학생이야 학생이에요 학생입니다 학생이었다 학생일것이다 학생이라서 학생이아니다 학생이면",
        ),
        (
            "의사",
            "copula",
            "의사다 의사니? 의사야 의사예요 의사입니다 의사였다 의사일것이다 의사라서 의사가아니에요 의사지만",
        ),
        ("있", "adjective", "있다 있어요 있습니다 있었다 있을것이다 있어서 있으면 있지만 계세요 계십니다"),
    ],
)
def test_predicates_are_inflected(stem: str, kind: Kind, forms: str) -> None:
    core = Predicate(stem, kind)
    negations = [core.negate(), core.negate(short=True), *([core.negate(unable=True)] if kind == "verb" else [])]
    negations += [core.negate(short=True, unable=True)] if kind == "verb" else []
    inflected = {core.connect(ending) for ending in ("아서", "으면", "으니까", "지만", "고", "으려고")}
    inflected |= {core.connect("은"), core.connect("을")} if kind != "copula" else set()
    for predicate in [core, *negations, core.honor()]:
        for style in ("plain", "casual", "polite", "formal"):
            for tense in ("present", "past", "future"):
                inflected |= {predicate.finish(tense, style, is_question) for is_question in (False, True)}
    assert set(forms.split()) <= {form.replace("|", "").replace(" ", "") for form in inflected}


def test_particles_follow_the_final_consonant(pairs: dict[str, list[SentencePair]]) -> None:
    checked = 0
    for pair in pairs["train"]:
        for word in f"{pair.korean_pieces} {pair.variant_pieces}".split():
            *_, noun, particle = ["", *word.split("|")]
            if noun and particle in ("은", "는", "을", "를", "과", "와"):
                has_consonant = len(unicodedata.normalize("NFD", noun[-1])) == 3
                assert (particle in ("은", "을", "과")) == has_consonant, word
                checked += 1
    assert checked > 600


@pytest.mark.parametrize(
    ("text", "tense", "korean", "english"),
    [
        ("want, 먹, 라면", "present", "그는 라면을 먹고 싶어 한다", "He wants to eat ramen"),
        ("cannot, 가, @학교", "past", "그는 학교에 갈 수 없었다", "He couldn't go to school"),
        ("must, 쓰, 편지", "future", "그는 편지를 써야 할 것이다", "He will have to write a letter"),
        ("can, 하, 한국어", "future", "그는 한국어를 할 수 있을 것이다", "He will be able to speak Korean"),
        ("없, 돈", "present", "그는 돈이 없다", "He doesn't have money"),
        ("비|가 오", "present", "비가 온다", "It is raining"),
    ],
)
def test_clauses_are_written_in_both_languages(text: str, tense: Tense, korean: str, english: str) -> None:
    clause = parse_clause(text, words.PRONOUNS[3])
    assert clause.write_korean(tense, Manner(), "statement").replace("|", "") == korean
    assert clause.write_english(tense, Wording(), "statement") == english


def test_words_of_the_file_exist() -> None:
    data = everyday_words.LEXICON
    texts = [text for theme in data["themes"] for key in ("because", "then") for text in theme[key]]
    texts += [text for entry in data["sequences"] for text in entry["steps"]]
    texts += [text for pair in data["contrasts"][0]["pairs"] for text in pair]
    texts += [text for entry in data["errands"] for text in entry["do"]]
    for text in texts:
        assert parse_clause(text, words.PRONOUNS[0]).key, text
    for verb in everyday_words.VERBS:
        assert set(verb.objects) <= set(everyday_words.NOUNS) and set(verb.locations) <= set(everyday_words.PLACES), (
            verb
        )


def test_english_words_are_inflected(pairs: dict[str, list[SentencePair]]) -> None:
    used = {word.removesuffix("?") for pair in pairs["train"] for word in pair.english.split()}
    assert {"has", "wants", "taking", "went"} <= used
    assert not used & {"swiming", "takeing", "speaked", "cheapier", "gooder", "knifes", "haves", "gos", "wifes"}


def test_vocabulary_of_the_translator_contains_every_word(pairs: dict[str, list[SentencePair]]) -> None:
    tokenizer = jumok.load("translator").require_tokenizer()
    for pair in [*pairs["train"], *pairs["held-out"], *list_phrase_pairs()]:
        for sentence in (pair.korean, pair.variant, pair.english, pair.english_variant):
            assert tokenizer.list_unknown(sentence) == [], sentence
            assert tokenizer.decode(tokenizer.encode(sentence), special=False) == sentence
