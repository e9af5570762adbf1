"""Check the generated Korean-English sentences: grammar, one translation each, and no overlap between the splits."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from dataclasses import replace

import pytest

import jumok
from jumok.data.datasets.korean import words
from jumok.data.datasets.korean.clauses import Clause, Manner
from jumok.data.datasets.korean.english_inflection import Wording
from jumok.data.datasets.korean.korean_inflection import choose_particle
from jumok.data.datasets.korean.sentences import SentencePair, make_sentence_pairs
from jumok.data.datasets.korean.simple_patterns import make_simple_action
from jumok.data.datasets.korean.words import Subject
from jumok.errors import ArgumentError


@pytest.fixture(scope="module")
def pairs() -> dict[str, list[SentencePair]]:
    return {
        "train": make_sentence_pairs(2_000, level="simple"),
        "held-out": make_sentence_pairs(300, "held-out", level="simple"),
    }


def test_no_combination_and_no_sentence_is_in_both_splits(pairs: dict[str, list[SentencePair]]) -> None:
    for name in ("combination", "korean", "variant", "english", "english_variant"):
        train, held_out = ({getattr(pair, name) for pair in pairs[split]} for split in ("train", "held-out"))
        assert train and held_out and not train & held_out, name


def test_combinations_depend_on_neither_time_nor_tense(pairs: dict[str, list[SentencePair]]) -> None:
    """Otherwise a combination of words would be in both splits, in different tenses."""
    for pair in pairs["train"]:
        assert not any(time.english in pair.combination for time in words.TIMES), pair
        assert not {"will", "did", "didn't", "won't", "was"} & set(pair.combination.split()), pair


def test_sentences_are_a_function_of_the_seed() -> None:
    assert make_sentence_pairs(50) == make_sentence_pairs(50)
    assert make_sentence_pairs(50) != make_sentence_pairs(50, seed=1)
    assert len({pair.korean for pair in make_sentence_pairs(200)}) == 200
    with pytest.raises(ArgumentError, match="at least 1, not 0"):
        make_sentence_pairs(0)


def test_each_sentence_has_one_translation(pairs: dict[str, list[SentencePair]]) -> None:
    to_english, to_korean = defaultdict(set), defaultdict(set)
    for pair in [*pairs["train"], *pairs["held-out"]]:
        to_english[pair.korean].add(pair.english)
        to_english[pair.variant].add(pair.english)
        to_korean[pair.english].add(pair.korean)
        to_korean[pair.english_variant].add(pair.korean)
    assert [sentence for sentence, answers in to_english.items() if len(answers) > 1] == []
    assert [sentence for sentence, answers in to_korean.items() if len(answers) > 1] == []


AFTER_CONSONANT, AFTER_VOWEL = {"은", "이", "을"}, {"는", "가", "를"}


def test_particles_follow_the_final_consonant(pairs: dict[str, list[SentencePair]]) -> None:
    checked = 0
    for pair in pairs["train"]:
        for word in f"{pair.korean_pieces} {pair.variant_pieces}".split():
            *_, noun, particle = ["", *word.split("|")]
            if not noun or particle not in AFTER_CONSONANT | AFTER_VOWEL:
                continue
            # the canonical decomposition of a syllable with a final consonant has three letters
            has_consonant = len(unicodedata.normalize("NFD", noun[-1])) == 3
            assert particle in (AFTER_CONSONANT if has_consonant else AFTER_VOWEL), word
            checked += 1
    assert checked > 3_000
    assert choose_particle("책", "을", "를") == "을" and choose_particle("커피", "을", "를") == "를"


def write_both(
    subject: str, stem: str, noun: str | None, location: str | None, time: str | None, *how: str
) -> tuple[str, str]:
    """Write a sentence from Korean words in both languages; how: tense, form and question word."""
    tense, form, question_word = (*how, "")[:3]
    subjects = [*words.PRONOUNS, *words.NAMES, *words.FAMILY, *words.PEOPLE]
    clause = make_simple_action(
        next(entry for entry in subjects if entry.korean == subject),
        next(entry for entry in words.VERBS if entry.stem == stem),
        next((entry for group in words.NOUNS.values() for entry in group if entry.korean == noun), None),
        next((entry for entry in words.PLACES["anywhere"] if entry.korean == location), None),
        question_word,
    )
    found_time = next((entry for entry in words.TIMES if entry.korean == time), None)
    clause = replace(clause, time=found_time, is_negative=form in words.NEGATIVE)
    return clause.write_korean(tense, Manner(), form).replace("|", ""), clause.write_english(tense, Wording(), form)


@pytest.mark.parametrize(
    ("parts", "korean", "english"),
    [
        (("나", "가", None, "학교", "매일", "present", "statement"),
         "나는 매일 학교에 간다", "I go to school every day"),
        (("그녀", "읽", "책", "도서관", "어제", "past", "statement"),
         "그녀는 어제 도서관에서 책을 읽었다", "She read a book at the library yesterday"),
        (("아버지", "마시", "커피", None, "아침|마다", "present", "statement"),
         "아버지는 아침마다 커피를 마신다", "My father drinks coffee every morning"),
        (("너", "보", "영화", None, None, "past", "question"), "너는 영화를 봤니?", "Did you watch a movie?"),
        (("아이|들", "놀", None, "공원", None, "present", "statement"),
         "아이들은 공원에서 논다", "The children play in the park"),
        (("민수", "일하", None, None, None, "present", "negation"), "민수는 일하지 않는다", "Minsu doesn't work"),
        (("의사", "돕", "친구", None, "내일", "future", "statement"),
         "의사는 내일 친구를 도울 것이다", "The doctor will help a friend tomorrow"),
        (("지은", "오", None, "집", None, "present", "question", "when"),
         "지은은 언제 집에 오니?", "When does Jieun come home?"),
        (("그", "사", "꽃", "시장", None, "past", "question", "where"),
         "그는 어디에서 꽃을 샀니?", "Where did he buy flowers?"),
    ],
)  # fmt: skip
def test_both_languages_are_written(parts: tuple[str, ...], korean: str, english: str) -> None:
    assert write_both(*parts) == (korean, english)


@pytest.mark.parametrize(
    ("stem", "forms"),
    [
        ("가", "간다 갔다 갈것이다 가니? 가지않는다 가요 갔어요 갑니다 갔습니까? 갈거예요"),
        ("먹", "먹는다 먹었다 먹을것이다 먹니? 먹지않았다 먹어요 먹었어요 먹습니다 먹습니까? 먹을것입니다"),
        ("놀", "논다 놀았다 놀것이다 노니? 놀지않을것이다 놀아요 놀았어요 놉니다 놀았습니다 놀거니?"),
        ("돕", "돕는다 도왔다 도울것이다 돕니? 도와요 도왔어요 돕습니다"),
        ("듣", "듣는다 들었다 들을것이다 듣니? 들어요 들었어요 듣습니다"),
        ("일하", "일한다 일했다 일할것이다 일하니? 일해요 일했어요 일합니다"),
        ("만들", "만든다 만들었다 만들것이다 만드니? 만들어요 만듭니다"),
    ],
)
def test_verbs_are_conjugated(stem: str, forms: str) -> None:
    verb = next(verb for verb in words.VERBS if verb.stem == stem)
    clause = Clause(Subject("", "", "singular"), verb.predicate, verb.english)
    conjugated = {
        replace(clause, is_negative=form in words.NEGATIVE).write_korean(tense, Manner(style), form)
        for style in ("plain", "polite", "formal")
        for tense in ("present", "past", "future")
        for form in ("statement", "negation", "question")
    }
    assert set(forms.split()) <= {text.replace("|", "").replace(" ", "") for text in conjugated}


def test_english_verbs_are_conjugated(pairs: dict[str, list[SentencePair]]) -> None:
    used = {word.removesuffix("?") for pair in pairs["train"] for word in pair.english.split()}
    assert {"goes", "watches", "teaches", "studies", "cries", "does", "plays", "buys", "reads"} <= used
    assert {"went", "taught", "bought", "wrote", "studied", "cried", "lived", "played", "met", "ate"} <= used
    assert not used & {"gos", "studys", "goed", "teached", "buyed", "readed", "childs", "plaies"}


def test_vocabulary_of_the_translator_contains_every_word(pairs: dict[str, list[SentencePair]]) -> None:
    tokenizer = jumok.load("translator").tokenizer
    for pair in [*pairs["train"], *pairs["held-out"]]:
        for sentence in (pair.korean, pair.variant, pair.english, pair.english_variant):
            tokens = tokenizer.encode(sentence)
            assert tokenizer.unknown not in tokens, sentence
            assert tokenizer.decode(tokens, special=False) == sentence
    assert tokenizer.list_unknown("나는 우주선을 탔디.") == ["우주선을", "탔디"]
