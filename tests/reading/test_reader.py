"""The recipe reader: the user's files, training, resuming, tested citations, and the input of ``jumok run``."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import jumok
from jumok.cli import cli
from jumok.data.datasets.invented_facts import PassageQuestion, make_question
from jumok.data.readers.lines import ProblemLog
from jumok.data.tokenizers.passage_tokens import split_question
from jumok.errors import ArgumentError, DataError
from jumok.lens import KnockOut, Lens
from jumok.models import Fusion, FusionConfig, Transformer
from jumok.models.fusion import find_passages
from jumok.recipes import resume_run
from jumok.recipes.language.passage_questions import ReadingTexts, read_questions
from jumok.recipes.language.reader import PASSAGE_COUNTS, measure_passages, write_example
from jumok.tasks import read_input
from parity import perturb_parameters
from recipe_runs import SHORT, SMALL, assert_same_run, load_report, train
from toys import StopAt, skip_plots

READER: dict[str, Any] = {**SHORT, **SMALL, "decoder_layers": 1, "held_out": 3, "passages": 3, "dropout": 0.1}

pytestmark = pytest.mark.xdist_group("reader")  # one training run serves several tests


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "reader"
    assert train("reader", folder, None, **READER).progress.finished
    return folder


def write_questions(path: Path, rows: list[Any]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def list_own_rows(count: int = 60) -> list[dict[str, Any]]:
    names = ("서울", "부산", "Ulm")
    return [
        {
            "question": f"Where is {number}?",
            "passages": [f"{number} is in {names[number % 3]}.", f"{number + 1} is in Rome."],
            "answer": names[number % 3],
        }
        for number in range(count)
    ]


# the user's files


def test_questions_are_read_from_jsonl(tmp_path: Path) -> None:
    rows = [*list_own_rows(2), {"question": "q", "passages": ["a  b", "b"], "answer": " b "}]
    questions = read_questions(str(write_questions(tmp_path / "q.jsonl", ["", *rows])), ProblemLog())
    assert questions[0] == PassageQuestion("Where is 0?", ("0 is in 서울.", "1 is in Rome."), "서울", 0)
    assert questions[2] == PassageQuestion("q", ("a b", "b"), "b", None)  # the answer is in both


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "the line is not JSON; write"),
        ("[1]", 'must be an object with "question", "passages" and "answer"'),
        ('{"passages": ["a"], "answer": "a"}', '"question" must be a text that is not empty'),
        ('{"question": "q", "passages": ["a"], "answer": " "}', '"answer" must be a text that is not empty'),
        ('{"question": "q", "passages": "a", "answer": "a"}', '"passages" must be a list of 1 to 1,000 texts'),
        ('{"question": "q", "passages": [], "answer": "a"}', '"passages" must be a list of 1 to 1,000 texts'),
        ('{"question": "q", "passages": ["a", 3], "answer": "a"}', '"passages" must be texts that are not empty'),
        ("[" * 100_000, "the line is not JSON"),
    ],
)
def test_bad_lines_are_named(line: str, message: str, tmp_path: Path) -> None:
    path = write_questions(tmp_path / "q.jsonl", [*list_own_rows(1), line])
    with pytest.raises(DataError) as caught:
        read_questions(str(path), ProblemLog())
    assert str(caught.value).startswith(f"{path}:2: ") and message in str(caught.value)
    problems = ProblemLog(skip=True)
    assert len(read_questions(str(path), problems)) == 1 and problems.count == 1


def test_other_files_and_too_few_questions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("q\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"questions are read from \.jsonl files"):
        read_questions(str(tmp_path / "q.txt"), ProblemLog())
    few = write_questions(tmp_path / "few.jsonl", list_own_rows(2))
    with pytest.raises(ArgumentError, match="for training"):
        train("reader", tmp_path / "run", few, **SHORT, **SMALL)


# training


def test_resumed_run_equals_uninterrupted_run(run: Path, tmp_path: Path) -> None:
    interrupted = tmp_path / "interrupted"
    assert train("reader", interrupted, None, StopAt(3), **READER).signal == signal.SIGTERM
    with skip_plots():
        assert resume_run(interrupted).progress.finished
    assert_same_run(interrupted, run)


def test_report_has_the_share_of_exact_answers_by_passages(run: Path) -> None:
    report = load_report(run)
    columns = ["questions", *(f"{count} passages" for count in PASSAGE_COUNTS)]
    assert len(report["by_passages"]) == 5 and all(list(row) == columns for row in report["by_passages"])
    assert report["citations"][0]["questions"] == "all answers" and report["citations"][0]["count"] == 3
    question, passages = split_question(report["try"])
    assert question.endswith("?") and len(passages) == 5


def test_own_questions_are_trained_on(tmp_path: Path) -> None:
    path = write_questions(tmp_path / "q.jsonl", list_own_rows())
    fields = {name: READER[name] for name in READER if name not in ("held_out", "passages")}
    train("reader", tmp_path / "run", path, **fields, vocabulary=300)
    report = load_report(tmp_path / "run")
    assert 0 <= report["exact_match"] <= 1 and report["citations"][0]["count"] >= 1
    # the run goes on from its own model, and only from a reader
    train("reader", tmp_path / "next", path, start=tmp_path / "run", **SHORT)
    with pytest.raises(ArgumentError, match="only from a fusion model with a tokenizer; the family of tiny is gpt"):
        train("reader", tmp_path / "other", path, start=Path("tiny"), **SHORT)


def test_together_is_a_transformer_of_the_same_size(run: Path, tmp_path: Path) -> None:
    train("reader", tmp_path / "together", None, **READER, reading="together")
    apart, together = jumok.load(run).model, jumok.load(tmp_path / "together").model
    assert type(apart) is Fusion and type(together) is Transformer
    assert apart.parameter_count == together.parameter_count
    assert "citations" not in load_report(tmp_path / "together")


def test_long_passages_and_answers_are_cut(run: Path) -> None:
    loaded = jumok.load(run)
    example = make_question("long", 2)
    long_example = PassageQuestion(example.question, ("a " * 500, *example.passages), "b " * 500)
    for is_apart, length in ((True, None), (False, 20)):
        texts = ReadingTexts(loaded.require_tokenizer(), loaded.config.separator, 20, is_apart)
        source = torch.tensor([texts.encode_source(long_example)])
        sizes = find_passages(source, loaded.config.separator)[0].bincount()
        assert sizes.max() <= 20 and (length is None or source.shape[1] == length)
        assert len(texts.encode_answer(long_example.answer)) == 20


# citations


def test_cutting_a_passage_is_removing_it() -> None:
    torch.manual_seed(5)
    model = Fusion(FusionConfig(vocabulary=37, width=12, layers=2, heads=3, hidden=17, length=32)).eval()
    perturb_parameters(model)
    passages, answer = [[3, 8, 9], [3, 8, 10, 11, 12], [3, 13]], [7, 20, 2]
    source = [token for passage in passages for token in passage]
    with torch.no_grad():
        effects = measure_passages(model, source, answer)

    def compute_log_probability(tokens: list[int], edits: list[KnockOut]) -> float:
        with Lens(model) as lens:
            logits = lens.run(
                torch.tensor([tokens]), torch.tensor([[1, 7, 20]]), edits=edits, logits=True
            ).output.logits
        return float(logits[0].log_softmax(-1)[range(3), answer].sum())

    clean = compute_log_probability(source, [])
    starts = [0, 3, 8, 10]
    for index in range(3):
        remaining = [token for other, passage in enumerate(passages) if other != index for token in passage]
        assert effects.drops[index] == pytest.approx(clean - compute_log_probability(remaining, []), abs=1e-4)
        keys = list(range(starts[index], starts[index + 1]))
        edits = [KnockOut(layer=f"decoder.{layer}.cross", key=keys) for layer in range(2)]
        assert effects.drops[index] == pytest.approx(clean - compute_log_probability(source, edits), abs=1e-4)
    assert max(map(abs, effects.drops)) > 1e-2
    with torch.no_grad():
        cross = model(torch.tensor([source]), torch.tensor([[1, 7, 20]]), weights=True).weights["cross"]
    shares = [torch.stack(cross)[..., starts[i] : starts[i + 1]].sum(-1).mean() for i in range(3)]
    assert effects.weights == pytest.approx([float(share) for share in shares], abs=1e-5)
    assert sum(effects.weights) == pytest.approx(1, abs=1e-5)


def test_a_single_passage_can_be_cut() -> None:
    model = Fusion(FusionConfig(vocabulary=37, width=12, layers=1, heads=3, hidden=17, length=32)).eval()
    with torch.no_grad():
        effects = measure_passages(model, [3, 8, 9], [7, 2])
    assert effects.weights == pytest.approx([1.0]) and len(effects.drops) == 1


# the input of jumok run and jumok look


def test_input_has_the_tokens_of_training(run: Path) -> None:
    loaded = jumok.load(run)
    example = make_question("an example", 4)
    texts = ReadingTexts(loaded.require_tokenizer(), loaded.config.separator, loaded.config.length)
    model_input = read_input(loaded, write_example(example))
    assert model_input.token_ids == texts.encode_source(example)
    assert model_input.source.tolist() == [model_input.token_ids] and not model_input.unknown_count


def test_answers_begin_without_a_space(run: Path) -> None:
    tokenizer = jumok.load(run).require_tokenizer()
    tokens = tokenizer.encode(" Dovoville", special=False)
    assert tokenizer.id_to_token(tokens[0]).startswith("Ġ") and tokenizer.decode(tokens) == "Dovoville"


@pytest.mark.parametrize("text", ["Where does Ada live?", "| a passage", "Where? | | "])
def test_a_question_without_passages_is_refused(text: str, run: Path) -> None:
    with pytest.raises(ArgumentError, match=r"reads a question and its passages, separated by \|, such as 'Where does"):
        jumok.run(run, text)


def test_look_labels_the_tokens_of_all_passages(run: Path) -> None:
    outcome = CliRunner().invoke(cli, ["look", str(run), "Where does Ada live? | Ada lives in Rome. | Bo.", "--json"])
    assert outcome.exit_code == 0, outcome.output
    source = json.loads(outcome.stdout)["source"]
    assert [index for index, label in enumerate(source) if label == "<passage>"] == [0, 16]
    assert source[1:7] == source[17:23] and source[11] == "␣lives"
