"""Check the model ``translator``, which comes with the package: its size, its translations and its held-out score."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import jumok
from jumok.checkpoint import Loaded
from jumok.checkpoint.resolve import resolve_model_path
from jumok.cli import cli
from jumok.data.datasets.korean_english_sentences import make_sentence_pairs
from jumok.errors import ArgumentError
from jumok.recipes.language.translate import _score_directions, translate_texts
from jumok.recipes.shared.text_scores import compute_exact_match
from recipe_runs import create_task


@pytest.fixture(scope="module")
def translator() -> Loaded:
    return jumok.load("translator")


def test_translator_is_small(translator: Loaded) -> None:
    assert translator.model.parameter_count <= 750_000
    assert (resolve_model_path("translator") / "model.safetensors").stat().st_size <= 3_000_000


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


def test_translator_reads_other_styles_and_full_stops(translator: Loaded) -> None:
    sentences = ["저는 매일 학교에 가요.", "내가 매일 학교에 간다", "저는 매일 학교에 갑니다."]
    assert set(jumok.run(translator, sentences)) == {"I go to school every day"}


def test_translator_is_exact_on_held_out_combinations(translator: Loaded) -> None:
    pairs = make_sentence_pairs(60, "held-out", seed=5)  # another seed than that of the training run
    english, korean = [pair.english for pair in pairs], [pair.korean for pair in pairs]
    to_english = translate_texts(translator.model, translator.tokenizer, [pair.variant for pair in pairs])
    to_korean = translate_texts(translator.model, translator.tokenizer, english)
    assert compute_exact_match(to_english, english) >= 0.97
    assert compute_exact_match(to_korean, korean) >= 0.97


def test_report_scores_each_direction() -> None:
    sources, references = ["나는 잔다", "I sleep", "너는 잔다"], ["I sleep", "나는 잔다", "You sleep"]
    rows = _score_directions("both", sources, ["I sleep", "나는 잔다", "We sleep"], references)["directions"]
    assert [(row["direction"], row["pairs"], row["exact_match"]) for row in rows] == [
        ("ko-en", 2, 0.5),
        ("en-ko", 1, 1.0),
    ]
    assert rows[0]["bleu"] < rows[1]["chrf"] == 100.0
    assert _score_directions("en-ko", sources, references, references) == {}


def test_unknown_words_are_named() -> None:
    finished = CliRunner().invoke(cli, ["run", "translator", "나는 우주선을 탔다"])
    assert finished.exit_code == 0
    assert "2 of 5 tokens are unknown to this model's tokenizer: 우주선을, 탔다" in finished.stderr


def test_generated_sentences_are_data_of_the_translate_recipe_only(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the text recipe cannot read sentences; only the translate recipe can"):
        create_task("text", tmp_path / "a", "sentences", {})
    with pytest.raises(ArgumentError, match="vocabulary does not apply to sentences"):
        create_task("translate", tmp_path / "b", "sentences", {"vocabulary": 300})
