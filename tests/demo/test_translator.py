"""Check the model ``translator``, which comes with the package: its size, its translations and its held-out score."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import jumok
from jumok.checkpoint import Loaded
from jumok.checkpoint.resolve import resolve_model_path
from jumok.cli import cli
from jumok.data.datasets.korean.sentences import Level, make_sentence_pairs
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, ContextWarning
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.recipes.language.translate import _score_directions, translate_texts
from jumok.recipes.shared.text_scores import compute_exact_match
from recipe_runs import create_task


@pytest.fixture(scope="module")
def translator() -> Loaded:
    return jumok.load("translator")


def test_translator_is_small(translator: Loaded) -> None:
    assert translator.model.parameter_count <= 2_500_000
    assert (resolve_model_path("translator") / "model.safetensors").stat().st_size <= 5_000_000


TRANSLATIONS = [
    ("나는 매일 학교에 간다", "I go to school every day"),
    ("고양이는 어제 부엌에서 잤다", "The cat slept in the kitchen yesterday"),
    ("어머니는 아침마다 집에서 커피를 마신다", "My mother drinks coffee at home every morning"),
    ("너는 어디에서 꽃을 샀니?", "Where did you buy flowers?"),
    ("학생들은 지난주에 신문을 읽지 않았다", "The students didn't read the newspaper last week"),
    ("그녀는 내일 서울에 올 것이다", "She will come to Seoul tomorrow"),
    ("그는 의사가 아니다", "He isn't a doctor"),
    ("방에 우산이 있니?", "Is there an umbrella in the room?"),
]


def test_translator_translates_in_both_directions(translator: Loaded) -> None:
    korean, english = map(list, zip(*TRANSLATIONS, strict=True))
    assert jumok.run(translator, korean) == english
    assert jumok.run(translator, english) == korean


EVERYDAY = [
    ("안녕하세요", "Hello"),
    ("정말 감사합니다!", "Thank you very much"),
    ("오늘 날씨가 어때요?", "How is the weather today?"),
    ("밖에 비가 와요", "It is raining outside"),
    ("커피 두 잔 주세요", "Please give me two cups of coffee"),
    ("저는 회의가 있어서 못 가요", "I can't go because I have a meeting"),
    ("기차표를 예약하고 싶어요", "I want to book a train ticket"),
    ("이 가방은 저 가방보다 가벼워요", "This bag is lighter than that bag"),
    ("할머니께서는 시골에 사세요", "My grandmother lives in the countryside"),
    ("같이 영화를 볼까요?", "Shall we watch a movie together?"),
]


def test_translator_translates_everyday_sentences(translator: Loaded) -> None:
    assert jumok.run(translator, [korean for korean, _ in EVERYDAY]) == [english for _, english in EVERYDAY]
    assert jumok.run(translator, ["We have to study", "He can't swim"]) == [
        "우리는 공부해야 한다",
        "그는 수영할 수 없다",
    ]


def test_translator_reads_other_styles_and_full_stops(translator: Loaded) -> None:
    sentences = ["저는 매일 학교에 가요.", "내가 매일 학교에 간다", "저는 매일 학교에 갑니다."]
    assert set(jumok.run(translator, sentences)) == {"I go to school every day"}


@pytest.mark.parametrize(
    ("english", "korean"),
    [
        ("He did not read the newspaper today", "그는 오늘 신문을 읽지 않았다"),
        ("She will not come to Seoul tomorrow", "그녀는 내일 서울에 오지 않을 것이다"),
        ("Did you not buy flowers?", "너는 꽃을 사지 않았니?"),
        ("Didn't the students often read the newspaper?", "학생들은 자주 신문을 읽지 않았니?"),
        ("Who doesn't drink coffee?", "누가 커피를 마시지 않니?"),
        ("There is not an umbrella in the room", "방에 우산이 없다"),
        ("Yesterday the cat didn't sleep in the kitchen", "고양이는 어제 부엌에서 자지 않았다"),
    ],
)
def test_translator_keeps_not_in_every_wording(translator: Loaded, english: str, korean: str) -> None:
    assert jumok.run(translator, english) == korean


def test_translator_keeps_not_in_every_form(translator: Loaded) -> None:
    sentences = ["어제 그는 신문을 읽지 않았다", "그가 어제 신문을 읽지 않았어요", "누가 방에서 자지 않았니?"]
    expected = ["He didn't read the newspaper yesterday"] * 2 + ["Who didn't sleep in the room?"]
    assert jumok.run(translator, sentences) == expected


@pytest.mark.parametrize(("level", "share"), [("simple", 0.97), ("everyday", 0.85)])
def test_translator_is_exact_on_held_out_combinations(translator: Loaded, level: Level, share: float) -> None:
    pairs = make_sentence_pairs(60, "held-out", seed=5, level=level)  # another seed than that of the training run
    english, korean = [pair.english for pair in pairs], [pair.korean for pair in pairs]
    to_english = translate_texts(translator.model, translator.tokenizer, [pair.variant for pair in pairs])
    to_korean = translate_texts(translator.model, translator.tokenizer, [pair.english_variant for pair in pairs])
    assert compute_exact_match(to_english, english) >= share
    assert compute_exact_match(to_korean, korean) >= share


def test_report_scores_each_direction() -> None:
    sources, references = ["나는 잔다", "I sleep", "너는 잔다"], ["I sleep", "나는 잔다", "You sleep"]
    rows = _score_directions("both", sources, ["I sleep", "나는 잔다", "We sleep"], references)["directions"]
    assert [(row["direction"], row["pairs"], row["exact_match"]) for row in rows] == [
        ("ko-en", 2, 0.5),
        ("en-ko", 1, 1.0),
    ]
    assert rows[0]["bleu"] < rows[1]["chrf"] == 100.0
    assert _score_directions("en-ko", sources, references, references) == {}


UNKNOWN = r"does not contain 우주선을 \(nearest known words: .+\); 탔디 \(nearest known words: .+\); write the text"


def test_a_text_with_unknown_words_is_refused(translator: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = CliRunner().invoke(cli, ["run", "translator", "나는 우주선을 탔디", "--json"], env={"LC_ALL": "C"})
    assert finished.exit_code != 0 and re.search(UNKNOWN, str(finished.exception))
    monkeypatch.setenv("LC_ALL", "C")
    with pytest.raises(ArgumentError, match=UNKNOWN):
        jumok.run(translator, ["나는 잔다", "나는 우주선을 탔디"])
    with pytest.raises(ArgumentError, match=r"umbrela \(nearest known words: umbrella"):
        jumok.run(translator, "I bought an umbrela")
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    with pytest.raises(ArgumentError, match=r"없는 단어가 있습니다: 우주선을 \(비슷한 단어: .*\); 탔디 \(비슷한"):
        jumok.run(translator, "나는 우주선을 탔디")
    finished = CliRunner().invoke(cli, ["look", "translator", "Zebra xylophones!"], env={"LC_ALL": "ko_KR.UTF-8"})
    assert finished.exit_code != 0 and "어휘에 없는 단어가 있습니다: Zebra" in str(finished.exception)


def test_models_of_characters_warn_of_unknown_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = RNNSeq2Seq(RNNSeq2SeqConfig(vocabulary=9, embedding_width=8, width=8, start=0, end=8)).eval()
    loaded = Loaded(model, Tokenizer.for_characters("abcdefgh"))
    monkeypatch.setenv("LC_ALL", "C")
    with pytest.warns(ContextWarning, match="2 of 5 tokens are unknown to this model's tokenizer: !, 가"):
        jumok.run(loaded, ["ab!가c", "ab"], limit=2)
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    with pytest.warns(ContextWarning, match=r"2개는 이 모델의 토크나이저가 모르는 것입니다: !, 가\."):
        jumok.run(loaded, "ab!가c", limit=2)
    with pytest.raises(ArgumentError, match="이 글의 단어가 하나도 없습니다: 가, 나"):
        jumok.run(loaded, "가나", limit=2)


def test_generated_sentences_are_data_of_the_translate_recipe_only(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the text recipe cannot read sentences; give stories or shakespeare"):
        create_task("text", tmp_path / "a", "sentences", {})
    with pytest.raises(ArgumentError, match="vocabulary does not apply to sentences"):
        create_task("translate", tmp_path / "b", "sentences", {"vocabulary": 300})
