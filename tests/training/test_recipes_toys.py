"""The recipes copy, reverse, sort, add and induction at the smallest size, and the model ``tiny`` in the package."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import jumok
from jumok.checkpoint import Loaded, resolve
from jumok.cli import cli
from jumok.data.datasets import toy_tasks
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, DataError, JumokError
from jumok.models.gpt import GPT
from jumok.models.numeric import Numeric, NumericConfig
from jumok.recipes import TrainingRequest, get_recipe, resume_run, start_run
from jumok.recipes.shared.seq2seq import generate_by_length
from jumok.recipes.shared.text_scores import compute_bleu, compute_exact_match
from jumok.recipes.toys import induction as inductions
from jumok.recipes.toys.induction import generate_piece, generate_rows
from jumok.recipes.toys.numbers import sample_sequences
from jumok.recipes.toys.sequences import create_word_tokenizer
from jumok.training import IGNORE_INDEX, TrainingTask
from toys import StopAt, assert_same_parameters, skip_plots

pytestmark = pytest.mark.xdist_group("recipes_toys")

SMALL: dict[str, dict[str, Any]] = {
    "copy": {"width": 16, "hidden": 16, "layers": 1, "heads": 2, "examples": 60, "held_out": 5},
    "reverse": {"model": "lstm", "width": 8, "encoder_width": 8, "embedding_width": 4, "examples": 60, "held_out": 5},
    "sort": {"width": 16, "hidden": 16, "layers": 1, "heads": 2, "kinds": 3, "digits": 4},
    "add": {"width": 16, "hidden": 16, "layers": 1, "heads": 2, "digits": 1},
    "induction": {"width": 16, "hidden": 8, "heads": 2, "length": 32},
}
SHORT = {"steps": 4, "batch": 4, "evaluate_every": 4, "save_every": 2, "log_every": 1, "warmup": 1}
PROMPTS = {"copy": "3 1 2", "reverse": "3 1 2", "sort": "0211=", "add": "7+8=", "induction": "abc abc"}


def create_request(
    name: str, folder: Path, data: Path | None = None, start: Path | None = None, **changes: Any
) -> TrainingRequest:
    """Request a small run; with ``start`` the model's sizes are those of the loaded model."""
    fields = {} if start is not None else dict(SMALL[name])
    if data is not None:
        fields.pop("examples", None)
    return TrainingRequest(
        name,
        folder,
        None if data is None else str(data),
        None if start is None else str(start),
        {**SHORT, **fields, **changes},
    )


def get_data_sizes(name: str) -> dict[str, int]:
    """Return the fields of a small run that change the data, not the model."""
    return {field: SMALL[name][field] for field in ("examples", "held_out", "kinds", "digits") if field in SMALL[name]}


def create_task(name: str, folder: Path, **changes: Any) -> TrainingTask:
    return get_recipe(name).build(create_request(name, folder, **changes))


@pytest.fixture(scope="module", autouse=True)
def _few_test_sequences() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inductions, "SEQUENCES_PER_KIND", 4)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One finished run of each recipe, with its plots, and one of ``copy`` by a GPT."""
    runs = {name: tmp_path_factory.mktemp("runs") / name for name in (*SMALL, "copy-gpt")}
    for name, folder in runs.items():
        changes = {"model": "gpt"} if name == "copy-gpt" else {}
        assert start_run(create_request(name.removesuffix("-gpt"), folder, **changes)).progress.finished
    return runs


# complete runs


@pytest.mark.parametrize("name", [*SMALL, "copy-gpt"])
def test_resumed_run_equals_uninterrupted_run(runs: dict[str, Path], tmp_path: Path, name: str) -> None:
    finished, interrupted = runs[name], tmp_path / "interrupted"
    changes = {"model": "gpt"} if name == "copy-gpt" else {}
    with skip_plots():
        request = create_request(name.removesuffix("-gpt"), interrupted, **changes)
        assert start_run(request, display=StopAt(3)).progress.step == 3
        assert resume_run(interrupted).progress.finished
    assert (interrupted / "metrics.jsonl").read_text() == (finished / "metrics.jsonl").read_text()
    assert_same_parameters(jumok.load(interrupted).model, jumok.load(finished).model)


@pytest.mark.parametrize("name", [*SMALL, "copy-gpt"])
def test_finished_run_is_complete_and_usable(runs: dict[str, Path], tmp_path: Path, name: str) -> None:
    run, recipe = runs[name], name.removesuffix("-gpt")
    files = {path.name for path in run.iterdir()}
    assert {"run.json", "report.json", "report.md", "loss.png", "best.json", "last.json", "metrics.jsonl"} <= files
    plots = {"copy": "attention.png", "reverse": "attention.png", "induction": "heads.png"}
    assert plots.get(recipe, "loss.png") in files
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert report["recipe"] == recipe and report["what"] and 0 <= report.get("right", 0) <= 1
    assert isinstance(jumok.run(str(run), PROMPTS[recipe], limit=8), str)
    if recipe != "reverse":  # Hugging Face has no LSTMs
        jumok.save(jumok.load(run), tmp_path / "huggingface", format="huggingface")
        assert_same_parameters(jumok.load(tmp_path / "huggingface").model, jumok.load(run).model)


@pytest.mark.parametrize("name", SMALL)
def test_recipe_continues_its_own_model(runs: dict[str, Path], tmp_path: Path, name: str) -> None:
    start = tmp_path / "start"
    jumok.save(jumok.load(runs[name]), start)
    with skip_plots():
        request = create_request(name, tmp_path / "run", start=start, **get_data_sizes(name))
        assert start_run(request, display=StopAt(3)).progress.step == 3
        shutil.rmtree(start)
        assert resume_run(tmp_path / "run").progress.finished


@pytest.mark.parametrize("name", SMALL)
def test_recipe_refuses_model_of_another_family(tmp_path: Path, name: str) -> None:
    jumok.save(Numeric(NumericConfig(width=16, hidden=16)), tmp_path / "numeric")
    with pytest.raises(ArgumentError, match="can start only from a"):
        start_run(create_request(name, tmp_path / "run", start=tmp_path / "numeric", **get_data_sizes(name)))
    assert not (tmp_path / "run").exists()


def test_recipe_refuses_model_with_another_vocabulary(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("a b c\n" * 3 + "b c d\nd e a\nf a b\nc c d\n")
    with pytest.raises(ArgumentError, match="has no token for the word 'a' and 5 more"):
        start_run(create_request("copy", tmp_path / "run", tmp_path / "own.txt", runs["copy"]))
    sizes = get_data_sizes("copy")
    with pytest.raises(ArgumentError, match="is a transformer, not a gpt"):
        start_run(create_request("copy", tmp_path / "run", start=runs["copy"], model="gpt", **sizes))
    with pytest.raises(ArgumentError, match="must encode each digit as one token"):
        start_run(create_request("add", tmp_path / "run", start=runs["sort"], digits=1))


def test_numbers_are_drawn_from_whole_range() -> None:
    sequences = sample_sequences(10_000, torch.Generator().manual_seed(0))
    assert sequences.shape == (10_000, 5) and sequences.min() == 0 and sequences.max() == 100
    for number in (0, 50, 100):  # five equal numbers, or nearly
        assert ((sequences - number).abs().amax(1) < 2).any(), number
    assert (sequences.amax(1) - sequences.amin(1) > 90).float().mean() > 0.1


def test_lstm_trains_in_bfloat16(tmp_path: Path) -> None:
    """Under autocast the two LSTMs may return different dtypes."""
    with skip_plots():
        outcome = start_run(create_request("reverse", tmp_path / "run", steps=1, precision="bfloat16"))
    assert outcome.progress.finished


# the user's own data


def test_reverse_reads_sequences_from_text_file(tmp_path: Path) -> None:
    rng = random.Random(0)
    lines = ["가 " * rng.randint(1, 4) + " ".join(rng.choices("나다라마", k=3)) for _ in range(60)]
    (tmp_path / "own.txt").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    task = create_task("reverse", tmp_path / "run", data=tmp_path / "own.txt")
    batch = task.batches(0, 0, 1)
    for source, target in zip(batch.inputs["source"], batch.targets, strict=True):
        words = [token for token in source.tolist() if token][:-1]  # without padding and the end token
        assert [token for token in target.tolist() if token != IGNORE_INDEX] == [
            *words[::-1],
            task.loaded.tokenizer.end,
        ]

    with skip_plots():
        start_run(create_request("reverse", tmp_path / "run", tmp_path / "own.txt"))
        assert resume_run(tmp_path / "run").progress.finished
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["data_facts"]
    assert facts["test"] <= 5 and facts["train"] > 30

    (tmp_path / "own.txt").write_text("\n".join(lines[1:]), encoding="utf-8")
    with pytest.raises(JumokError, match=r"own\.txt has changed .* since the run in"):
        resume_run(tmp_path / "run", 6)


def test_copy_reads_sequences_from_table(tmp_path: Path) -> None:
    rows = [json.dumps({"text": " ".join("abcdefgh"[number % 5 : number % 5 + 3])}) for number in range(20)]
    (tmp_path / "own.jsonl").write_text("\n".join(rows))
    task = create_task("copy", tmp_path / "run", data=tmp_path / "own.jsonl")
    assert task.loaded.tokenizer.encode("c d", special=False)


def test_induction_reads_text(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("주목은 attention입니다. 그리고 다시.\n" * 100, encoding="utf-8")
    with skip_plots():
        assert start_run(create_request("induction", tmp_path / "run", tmp_path / "own.txt")).progress.finished
    assert "right_text" in json.loads((tmp_path / "run" / "report.json").read_text())
    (tmp_path / "short.txt").write_text("too short\n")
    with pytest.raises(ArgumentError, match=r"the text has 10 bytes; give at least 2,560"):
        create_task("induction", tmp_path / "run2", data=tmp_path / "short.txt")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("reverse", b"1 2 3\n4 \xff 5\n", r"own\.txt:2: character 3 is byte FF"),
        ("copy", b"1 2 3\n4 5\n<s> 5\n", r"own\.txt:3: the word <s> is a special token of this recipe"),
        ("copy", b"1 2 3\n" + b"7 " * 101 + b"\n", r"own\.txt:2: the line has 101 words, more than 100"),
        ("copy", b"\n\n", "has no sequences"),
        ("copy", b"1 2\n", "the data has 1 different examples"),
        ("induction", b"good\nbad \xff\n", r"own\.txt:2: character 5 is byte FF"),
    ],
)
def test_error_names_the_bad_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / "own.txt").write_bytes(content)
    with pytest.raises((DataError, ArgumentError), match=message):
        start_run(create_request(name, tmp_path / "run", tmp_path / "own.txt"))
    assert not (tmp_path / "run").exists()


def test_skip_bad_skips_and_reports_bad_lines(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_bytes(b"1 2 \xff\n" + b"".join(b"%d 2 3\n" % number for number in range(30)))
    messages: list[str] = []
    request = create_request("copy", tmp_path / "run", tmp_path / "own.txt")
    request.skip_bad, request.show_message = True, messages.append
    get_recipe("copy").build(request)
    sentence = f"1 skipped; first: {tmp_path / 'own.txt'}:1: character 5 is byte FF, not UTF-8 text"
    assert len(messages) == 1 and messages[0].startswith(sentence)


@pytest.mark.parametrize("name", ["sort", "add"])
def test_generated_tasks_refuse_data(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match="generates its own data"):
        create_task(name, tmp_path / "run", data=tmp_path)


def test_too_few_questions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="only 2 different questions"):
        create_task("sort", tmp_path / "run", digits=1, kinds=2)


def test_too_short_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the model reads at most 20 tokens, but these sequences need 3"):
        create_task("copy", tmp_path / "run", length=20)


# batches


def list_targets(rows: torch.Tensor) -> list[list[int]]:
    """Return the targets of each row, without those that are ignored."""
    return [[token for token in row if token != IGNORE_INDEX] for row in rows.tolist()]


@pytest.mark.parametrize("name", SMALL)
def test_parts_of_a_batch_join_to_the_batch(tmp_path: Path, name: str) -> None:
    task = create_task(name, tmp_path / "run")
    for step in (0, 5):
        batch, parts = task.batches(step, 0, 1), [task.batches(step, part, 4) for part in range(4)]
        assert batch.count == sum(part.count for part in parts) == int((batch.targets != IGNORE_INDEX).sum())
        assert [row for part in parts for row in list_targets(part.targets)] == list_targets(batch.targets)
    first, second = task.batches(0, 0, 1).targets.tolist(), task.batches(1, 0, 1).targets.tolist()
    assert first != second


def test_add_has_targets_only_in_the_answer(tmp_path: Path) -> None:
    task = create_task("add", tmp_path / "run")
    batch = task.batches(0, 0, 1)
    for tokens, targets in zip(batch.inputs["tokens"].tolist(), batch.targets.tolist(), strict=True):
        assert targets[:3] == [IGNORE_INDEX] * 3 and IGNORE_INDEX not in targets[3:]
        question, answer = task.loaded.tokenizer.decode(tokens[:4]), task.loaded.tokenizer.decode(targets[3:])
        first, second = question.removesuffix("=").split("+")
        assert int(answer[::-1]) == int(first) + int(second)
        assert tokens[4:] == targets[3:-1]

    forwards = create_task("add", tmp_path / "run", answer="forwards")
    batch = forwards.batches(0, 0, 1)
    question = forwards.loaded.tokenizer.decode(batch.inputs["tokens"][0, :4].tolist())
    answer = forwards.loaded.tokenizer.decode(batch.targets[0, 3:].tolist())
    assert int(answer) == int(question[0]) + int(question[2])


def test_gpt_reads_the_answer_after_the_separator(tmp_path: Path) -> None:
    changes = {**SMALL["copy"], "model": "gpt", "batch": 4, "steps": 2}
    task = get_recipe("reverse").build(TrainingRequest("reverse", tmp_path / "run", changes=changes))
    batch = task.batches(0, 0, 1)
    for tokens, targets in zip(batch.inputs["tokens"].tolist(), batch.targets.tolist(), strict=True):
        separator = tokens.index(task.loaded.tokenizer.separator)
        answer = [token for token in targets if token != IGNORE_INDEX]
        assert targets[:separator] == [IGNORE_INDEX] * separator
        assert answer == [*tokens[:separator][::-1], task.loaded.tokenizer.end]
        assert tokens[separator + 1 : separator + len(answer)] == answer[:-1]


def test_sort_never_trains_on_held_out_questions(tmp_path: Path) -> None:
    task = create_task("sort", tmp_path / "run")
    held_out = {"".join(map(str, row)) for row, _ in toy_tasks.make_sort_examples("held-out", length=4, kinds=3)}
    trained = {
        task.loaded.tokenizer.decode(row[:4].tolist())
        for step in range(40)
        for row in task.batches(step, 0, 1).inputs["tokens"]
    }
    assert len(held_out) == 20 and len(trained) > 50 and not held_out & trained


# tokens, scores and decoding


def test_word_tokenizer_survives_saving(tmp_path: Path) -> None:
    tokenizer = create_word_tokenizer(["10", "9", "가"], "separator")
    assert [tokenizer.id_to_token(token) for token in range(tokenizer.vocabulary)][5:] == ["9", "가", "10"]
    tokenizer.save(tmp_path)
    reloaded = Tokenizer.load(tmp_path)
    assert reloaded.encode("가 10 x") == [6, 7, reloaded.unknown, reloaded.separator]
    assert reloaded.decode([6, 7]) == "가 10" and (reloaded.pad, reloaded.begin, reloaded.end) == (0, 1, 2)


def test_bleu_matches_a_computation_by_hand() -> None:
    assert compute_bleu(["1 2 3 4 5", "7"], ["1 2 3 4 5", "7"]) == 100.0
    # precisions 5/6, 3/5, 2/4, 1/3, no brevity penalty
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert compute_bleu(["1 2 3 4 0 6"], ["1 2 3 4 5 6"]) == pytest.approx(expected)
    assert compute_exact_match(["a", "b", "c"], ["a", "x", "c"]) == pytest.approx(2 / 3)


def test_missing_sacrebleu_is_reported_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ArgumentError, match=r'pip install "jumok\[train\]"'):
        create_task("copy", tmp_path / "run")


def test_batched_answers_equal_single_answers(tmp_path: Path) -> None:
    """An answer depends neither on the other prompts in its batch nor on their order."""
    task = create_task("reverse", tmp_path / "run")
    prompts = [task.loaded.tokenizer.encode(text) for text in ("1 2 3 4 5 6 7", "8", "9 10 11", "12 13")]
    ends = (task.loaded.tokenizer.end,)
    task.model.eval()
    with torch.inference_mode():
        batched = generate_by_length(task.model, prompts, limit=9, ends=ends)
        single = [generate_by_length(task.model, [prompt], limit=9, ends=ends)[0] for prompt in prompts]
    assert batched == single and len({tuple(answer) for answer in single}) > 1


# repeated bytes


def test_periodic_rows_repeat() -> None:
    for row, first_target in generate_rows("a name", 20, 65, periodic=True):
        assert len(row) == 65 and 8 <= first_target <= 32
        assert row[first_target:] == row[:-first_target] and len(set(row[:first_target])) > first_target // 2
    assert list(generate_rows("a name", 20, 65, periodic=True)) == list(generate_rows("a name", 20, 65, periodic=True))


def test_mixed_rows_contain_repeated_pieces() -> None:
    mixed = [row for row, first_target in generate_rows("a name", 20, 65, periodic=False) if first_target == 0]
    assert len(mixed) == 20 and len({tuple(row) for row in mixed}) == 20
    # three bytes that occurred together before can be predicted; in random bytes they are rare
    trigrams = [list(zip(row, row[1:], row[2:], strict=False)) for row in mixed]
    repeated = sum(trigram in row[:index] for row in trigrams for index, trigram in enumerate(row))
    assert repeated / sum(map(len, trigrams)) > 0.3


def test_pieces_are_of_their_kind() -> None:
    words = bytes(generate_piece("x", "words", 200)).decode().lower()
    assert set(words) <= set("abcdefghijklmnopqrstuvwxyz ,.\n")
    hangul = bytes(generate_piece("x", "hangul", 200)).decode(errors="ignore")
    assert sum("가" <= letter <= "힣" for letter in hangul) > 30
    assert bytes(generate_piece("x", "text", 4, b"abcdef")) in b"abcdef"


def test_induction_trains_in_three_lessons(tmp_path: Path) -> None:
    """Windows grow, and in the first lesson only the repetitions are targets."""
    task = create_task("induction", tmp_path / "run", length=256, steps=12, batch=2)
    shapes = {step: tuple(task.batches(step, 0, 1).targets.shape) for step in (0, 1, 2, 3, 4, 11)}
    assert shapes == {0: (16, 32), 1: (16, 32), 2: (4, 128), 3: (4, 128), 4: (2, 256), 11: (2, 256)}
    first = task.batches(0, 0, 1)
    assert all(IGNORE_INDEX in row for row in first.targets.tolist()) and first.count < first.targets.numel()
    assert task.batches(2, 0, 1).count == 4 * 128


# the model in the package


@pytest.fixture(scope="module")
def tiny() -> Loaded:
    return jumok.load("tiny")


def test_tiny_is_small(tiny: Loaded) -> None:
    folder = resolve.resolve_model_path("tiny")
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 1_000_000
    assert isinstance(tiny.model, GPT) and tiny.model.config.layers == 2 and tiny.model.config.vocabulary == 256
    assert tiny.model.config.length >= 256


@torch.inference_mode()
def test_tiny_predicts_repetitions(tiny: Loaded) -> None:
    generator = torch.Generator().manual_seed(20_000)
    for half in (24, 64, 200):
        pieces = torch.randint(256, (40, half), generator=generator)
        rows = torch.cat([pieces, pieces], 1)
        # the first byte of the second half cannot be predicted; in a short piece it is a large share
        lowest = 0.95 if half >= 64 else 0.95 * (half - 1) / half
        assert inductions.compute_repeat_accuracy(tiny.model, rows) >= lowest
        assert inductions.compute_repeat_accuracy(tiny.model, torch.cat([pieces, pieces.flip(0)], 1)) < 0.1
    first_loss, second_loss = inductions.compute_half_losses(tiny.model, rows)
    assert first_loss > 4 and second_loss < 0.5


@torch.inference_mode()
def test_tiny_has_an_induction_head(tiny: Loaded) -> None:
    pieces = torch.randint(256, (20, 50), generator=torch.Generator().manual_seed(3))
    rows = torch.cat([pieces, pieces], 1)
    heads = inductions.score_heads(tiny.model, rows)
    best = max(heads, key=lambda head: head["induction"])
    assert best["block"] == 1 and best["induction"] > 0.6
    assert max(head["previous_token"] for head in heads if head["block"] == 0) > 0.6
    # the same score by plain loops
    weights = tiny.model(rows, weights=True).weights[1][:, best["head"]]
    targets = [float(weights[row, query, query - 49]) for row in range(20) for query in range(50, 100)]
    assert best["induction"] == pytest.approx(sum(targets) / len(targets), abs=1e-5)


@torch.inference_mode()
def test_only_the_first_head_of_tiny_copies(tiny: Loaded) -> None:
    pieces = torch.randint(256, (20, 64), generator=torch.Generator().manual_seed(4))
    rows = torch.cat([pieces, pieces], 1)
    assert isinstance(tiny.model, GPT)
    output = dict(tiny.model.named_parameters())["blocks.1.attention.output.weight"]
    clean, original, half = inductions.compute_repeat_accuracy(tiny.model, rows), output.clone(), output.shape[1] // 2
    for head, expected in ((0, 0.02), (1, clean)):
        output[:, head * half : (head + 1) * half] = 0
        assert inductions.compute_repeat_accuracy(tiny.model, rows) == pytest.approx(expected, abs=0.02)
        output.copy_(original)


def test_tiny_continues_a_text() -> None:
    prompt = "The quick brown fox jumps over a lazy dog. The quick brown"
    command = CliRunner().invoke(cli, ["run", "tiny", prompt, "--limit", "26"])
    assert command.exit_code == 0 and command.output == " fox jumps over a lazy dog\n"
    assert jumok.run("tiny", "나는 사과를 먹고 너는 배를 먹고 나는 사과를", limit=8).startswith(" 먹고")


def test_folder_named_tiny_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert resolve.resolve_model_path("tiny") == Path("tiny")
    with pytest.raises(JumokError, match="tiny, translator, korean come with the package"):
        jumok.load("huge")
