"""Sentences that are quoted as answers, in English and Korean, and what of a model's answer they support."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from jumok.cli import cli
from jumok.retrieval import open_index
from jumok.retrieval.files.read_passages import read_passages
from jumok.tasks.ask import ask
from jumok.tasks.ask.quotation import find_quotation, find_unsupported_words

NOTES = {
    "rent.md": "# The flat\n\nThe rent is 840 euros\na month. It is due on the third.\n\n- Ines owes Jonas 45 euros.\n",
    "cat.md": "# The cat\n\nThe cat is called Pepper. She is nine years old.\n\nMrs. Oh feeds her at 7:30.\n",
    "배.md": "# 섬으로 가는 배\n\n배의 이름은 은하호이다. 섬까지는 50분이 걸린다.\n선장은 오태식 씨이다.\n",
}


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, text in NOTES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("question", "text", "location", "verdict"),
    [
        ("How much is the rent?", "The rent is 840 euros a month.", "rent.md:3", "supported"),
        ("When is the rent due?", "It is due on the third.", "rent.md:4", "supported"),
        ("How much does Ines owe Jonas?", "- Ines owes Jonas 45 euros.", "rent.md:6", "supported"),
        ("How much does Jonas owe Ines?", "- Ines owes Jonas 45 euros.", "rent.md:6", "partly supported"),
        ("How old is Pepper?", "She is nine years old.", "cat.md:3", "partly supported"),
        ("Who feeds the cat?", "Mrs. Oh feeds her at 7:30.", "cat.md:5", "supported"),
        ("Which breed is the cat?", "The cat is called Pepper.", "cat.md:3", "partly supported"),
        ("배의 이름은 무엇인가?", "배의 이름은 은하호이다.", "배.md:3", "supported"),
        ("선장은 누구인가요?", "선장은 오태식 씨이다.", "배.md:4", "supported"),
        ("섬까지 얼마나 걸리나요?", "섬까지는 50분이 걸린다.", "배.md:3", "supported"),
        ("선장의 전화번호는 무엇인가?", "선장은 오태식 씨이다.", "배.md:4", "partly supported"),
    ],
)
def test_the_sentence_that_answers_is_quoted_with_its_line(
    notes: Path, question: str, text: str, location: str, verdict: str
) -> None:
    with open_index(notes, embedder=None) as index:
        quotation = ask(index, question, None).quotation
    assert quotation is not None
    assert (quotation.text, quotation.location, quotation.verdict) == (text, location, verdict)


@pytest.mark.parametrize("question", ["Who painted the Mona Lisa?", "훈민정음을 만든 임금은 누구인가?"])
def test_nothing_is_quoted_for_another_subject(notes: Path, question: str) -> None:
    with open_index(notes, embedder=None) as index:
        assert ask(index, question, None).quotation is None


def test_a_quotation_names_what_it_says_nothing_about(notes: Path) -> None:
    (passage,) = read_passages(notes / "cat.md", "cat.md")
    quotation = find_quotation("Which breed is the cat?", [passage])
    assert quotation is not None and quotation.missing == ("breed",)
    assert find_quotation("Who?", []) is None


@pytest.mark.parametrize(
    ("text", "unsupported"),
    [
        ("The rent is 840 euros a month.", ()),
        ("The answer is 840.", ()),
        ("100 euros", ("100",)),
        ("45 euros", ("45",)),  # in the passage, but not in the sentence about the rent
        ("Marta pays 840 euros.", ("Marta", "pays")),
    ],
)
def test_words_of_an_answer_that_the_quoted_sentence_does_not_support(
    notes: Path, text: str, unsupported: tuple[str, ...]
) -> None:
    (passage,) = read_passages(notes / "rent.md", "rent.md")
    assert find_unsupported_words(text, passage, "How much is the rent?") == unsupported


def test_without_a_sentence_that_answers_the_question_is_unsupported(notes: Path) -> None:
    (passage,) = read_passages(notes / "cat.md", "cat.md")
    assert find_unsupported_words("The cat is a breed.", passage, "Which breed is the cat?") == ("breed",)


def test_the_command_quotes_without_any_model(notes: Path) -> None:
    english = CliRunner().invoke(cli, ["ask", str(notes), "How much is the rent?", "--method", "bm25"])
    assert '"The rent is 840 euros a month."' in english.output, english.output
    assert f"  supported: quoted from {notes}/rent.md:3" in english.output
    korean = CliRunner().invoke(
        cli, ["ask", str(notes), "선장의 전화번호는 무엇인가?", "--method", "bm25", "--language", "ko"]
    )
    assert '"선장은 오태식 씨이다."' in korean.output
    assert '"전화번호는"에 대한 말은 없습니다' in korean.output
