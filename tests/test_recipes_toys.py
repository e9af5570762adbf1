"""copy, reverse, sort, add and induction at the smallest size: run folders that are complete, go on, and are used; and
the model that comes with the package."""

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
from jumok.checkpoint import resolve
from jumok.cli import cli
from jumok.data.datasets import toy_tasks
from jumok.errors import ArgumentError, DataError, JumokError
from jumok.models.gpt import GPT
from jumok.recipes import TrainingRequest, get_recipe, resume_run, start_run
from jumok.recipes.shared.batched_decoding import generate_by_length
from jumok.recipes.shared.text_scores import compute_bleu, compute_exact_match
from jumok.recipes.toys import induction as inductions
from jumok.recipes.toys import repeated_bytes, word_sequences
from jumok.training import IGNORE_INDEX, Task
from toys import StopAt, assert_equal, copy_parameters

SMALL: dict[str, dict[str, Any]] = {
    "copy": {"width": 16, "hidden": 16, "layers": 1, "heads": 2, "examples": 60, "held_out": 5},
    "reverse": {"model": "lstm", "width": 8, "encoder_width": 8, "embedding_width": 4, "examples": 60, "held_out": 5},
    "sort": {"width": 16, "hidden": 16, "layers": 1, "heads": 2, "kinds": 3, "digits": 4},
    "add": {"width": 16, "hidden": 16, "layers": 1, "heads": 2, "digits": 1},
    "induction": {"width": 16, "hidden": 8, "heads": 2, "length": 32},
}


def asked(name: str, folder: Path, data: Path | None = None, begun: Path | None = None, **more: Any) -> TrainingRequest:
    fields = (
        {} if begun is not None else {key: SMALL[name][key] for key in SMALL[name] if data is None or key != "examples"}
    )
    steps = {"steps": 4, "batch": 4, "evaluate_every": 4, "save_every": 2, "log_every": 1, "warmup": 1}
    changes = {**steps, **fields, **more}
    return TrainingRequest(
        name, folder, None if data is None else str(data), None if begun is None else str(begun), changes
    )


def made(name: str, folder: Path, **more: Any) -> Task:
    return get_recipe(name).build(asked(name, folder, **more))


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductions, "SEQUENCES_PER_KIND", 4)


# whole runs


PROMPTS = {"copy": "3 1 2", "reverse": "3 1 2", "sort": "0211=", "add": "7+8=", "induction": "abc abc"}


@pytest.mark.parametrize(
    ("name", "more"),
    [*((name, {}) for name in SMALL), ("copy", {"model": "gpt"})],
    ids=[*SMALL, "copy-gpt"],
)
def test_a_run_stops_and_goes_on_and_is_used(tmp_path: Path, name: str, more: dict[str, Any]) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert start_run(asked(name, whole, **more)).progress.finished
    assert start_run(asked(name, cut, **more), display=StopAt(3)).progress.step == 3
    assert resume_run(cut).progress.finished
    assert (cut / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    assert_equal(copy_parameters(jumok.load(cut).model), copy_parameters(jumok.load(whole).model))
    there = {path.name for path in whole.iterdir()}
    assert {"run.json", "report.json", "report.md", "loss.png", "best.json", "last.json", "metrics.jsonl"} <= there
    pictures = {"copy": "attention.png", "reverse": "attention.png", "induction": "heads.png"}
    assert pictures.get(name, "loss.png") in there
    told = json.loads((whole / "report.json").read_text(encoding="utf-8"))
    assert told["recipe"] == name and told["what"] and 0 <= told.get("right", 0) <= 1
    assert isinstance(jumok.run(str(whole), PROMPTS[name], limit=8), str)
    if name != "reverse":  # Hugging Face has no LSTMs
        jumok.save(jumok.load(whole), tmp_path / "theirs", format="huggingface")
        assert_equal(copy_parameters(jumok.load(tmp_path / "theirs").model), copy_parameters(jumok.load(whole).model))


@pytest.mark.parametrize("name", SMALL)
def test_it_starts_from_a_run_of_its_own(tmp_path: Path, name: str) -> None:
    start_run(asked(name, tmp_path / "first"))
    sizes = {one: SMALL[name][one] for one in ("examples", "held_out", "kinds", "digits") if one in SMALL[name]}
    begun = asked(name, tmp_path / "more", begun=tmp_path / "first", **sizes)
    assert start_run(begun, display=StopAt(3)).progress.step == 3
    shutil.rmtree(tmp_path / "first")
    assert resume_run(tmp_path / "more").progress.finished


@pytest.mark.parametrize("name", SMALL)
def test_it_starts_from_nothing_else(tmp_path: Path, name: str) -> None:
    start_run(TrainingRequest("numbers", tmp_path / "first", changes={"steps": 1, "batch": 2}))
    with pytest.raises(ArgumentError, match="continues a"):
        start_run(asked(name, tmp_path / "more", begun=tmp_path / "first"))
    assert not (tmp_path / "more").exists()


def test_a_start_must_know_the_words(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("a b c\n" * 3 + "b c d\nd e a\nf a b\nc c d\n")
    start_run(asked("copy", tmp_path / "first"))
    with pytest.raises(ArgumentError, match="does not know the word 'a', and 5 more"):
        start_run(asked("copy", tmp_path / "more", tmp_path / "own.txt", tmp_path / "first"))
    with pytest.raises(ArgumentError, match="is a transformer, not a gpt"):
        start_run(asked("copy", tmp_path / "more", begun=tmp_path / "first", model="gpt"))
    start_run(asked("sort", tmp_path / "rows"))
    with pytest.raises(ArgumentError, match="must encode each digit as one token"):
        start_run(asked("add", tmp_path / "more", begun=tmp_path / "rows", digits=1))


# a person's own data


def test_sequences_of_ones_own(tmp_path: Path) -> None:
    chance = random.Random(0)
    lines = ["가 " * chance.randint(1, 4) + " ".join(chance.choices("나다라마", k=3)) for _ in range(60)]
    (tmp_path / "own.txt").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    task = made("reverse", tmp_path / "run", data=tmp_path / "own.txt")
    batch = task.batches(0, 0, 1)
    for source, target in zip(batch.inputs["source"], batch.targets, strict=True):
        given = [one for one in source.tolist() if one][:-1]  # without padding, and the end
        assert [one for one in target.tolist() if one != IGNORE_INDEX] == [*given[::-1], task.tokenizer.end]
    start_run(asked("reverse", tmp_path / "run", tmp_path / "own.txt"))
    assert resume_run(tmp_path / "run").progress.finished
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["data_facts"]["test"] <= 5 and told["data_facts"]["train"] > 30
    (tmp_path / "own.txt").write_text("\n".join(lines[1:]), encoding="utf-8")
    with pytest.raises(JumokError, match="the data is not what this run began with"):
        resume_run(tmp_path / "run", 6)


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    rows = "\n".join(json.dumps({"text": " ".join("abcdefgh"[one % 5 : one % 5 + 3])}) for one in range(20))
    (tmp_path / "own.jsonl").write_text(rows)
    assert made("copy", tmp_path / "run", data=tmp_path / "own.jsonl").tokenizer.encode("c d", special=False)


def test_own_text_for_induction(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("주목은 attention입니다. 그리고 다시.\n" * 100, encoding="utf-8")
    assert start_run(asked("induction", tmp_path / "run", tmp_path / "own.txt")).progress.finished
    assert "right_text" in json.loads((tmp_path / "run" / "report.json").read_text())
    (tmp_path / "short.txt").write_text("too short\n")
    with pytest.raises(ArgumentError, match=r"the text has 10 bytes; give at least 2,560"):
        made("induction", tmp_path / "run2", data=tmp_path / "short.txt")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("reverse", b"1 2 3\n4 \xff 5\n", r"own\.txt:2: character 3 is byte FF"),
        ("copy", b"1 2 3\n4 5\n<s> 5\n", r"own\.txt:3: the word <s> is a special token of this recipe"),
        ("copy", b"1 2 3\n" + b"7 " * 101 + b"\n", r"own\.txt:2: the line has 101 words, more than 100"),
        ("copy", b"\n\n", "has no sequences"),
        ("copy", b"1 2\n", "the data has 1 different examples"),
        ("induction", b"good\nbad \xff\n", r"own\.txt:2: character 5 is byte FF"),
    ],
)
def test_bad_data_is_named_by_line(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / "own.txt").write_bytes(content)
    with pytest.raises((DataError, ArgumentError), match=sentence):
        start_run(asked(name, tmp_path / "run", tmp_path / "own.txt"))
    assert not (tmp_path / "run").exists()


def test_bad_lines_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_bytes(b"1 2 \xff\n" + b"".join(b"%d 2 3\n" % one for one in range(30)))
    said: list[str] = []
    wanted = asked("copy", tmp_path / "run", tmp_path / "own.txt")
    wanted.skip_bad, wanted.report = True, said.append
    get_recipe("copy").build(wanted)
    assert said == [f"1 skipped; first: {tmp_path / 'own.txt'}:1: character 5 is byte FF, not UTF-8 text"]


@pytest.mark.parametrize("name", ["sort", "add"])
def test_sums_and_rows_are_made_and_not_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match="makes its own data"):
        made(name, tmp_path / "run", data=tmp_path)


def test_too_few_questions(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="only 2 questions of that kind"):
        made("sort", tmp_path / "run", digits=1, kinds=2)


def test_a_model_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the model reads at most 20 tokens, and these sequences need 3"):
        made("copy", tmp_path / "run", length=20)


# batches


@pytest.mark.parametrize("name", SMALL)
def test_parts_of_a_batch_are_the_batch(tmp_path: Path, name: str) -> None:
    task = made(name, tmp_path / "run")
    for step in (0, 5):
        whole, parts = task.batches(step, 0, 1), [task.batches(step, part, 4) for part in range(4)]
        assert whole.count == sum(part.count for part in parts) == int((whole.targets != IGNORE_INDEX).sum())
        rows = [[one for one in row.tolist() if one != IGNORE_INDEX] for part in parts for row in part.targets]
        assert rows == [[one for one in row.tolist() if one != IGNORE_INDEX] for row in whole.targets]
    first, second = task.batches(0, 0, 1).targets.tolist(), task.batches(1, 0, 1).targets.tolist()
    assert first != second


def test_only_the_answer_is_learned(tmp_path: Path) -> None:
    task = made("add", tmp_path / "run")
    batch = task.batches(0, 0, 1)
    for tokens, targets in zip(batch.inputs["tokens"].tolist(), batch.targets.tolist(), strict=True):
        assert targets[:3] == [IGNORE_INDEX] * 3 and IGNORE_INDEX not in targets[3:]
        question, answer = task.tokenizer.decode(tokens[:4]), task.tokenizer.decode(targets[3:])
        left, right = question.removesuffix("=").split("+")
        assert int(answer[::-1]) == int(left) + int(right)
        assert tokens[4:] == targets[3:-1]
    forwards = made("add", tmp_path / "run", answer="forwards")
    row = forwards.batches(0, 0, 1)
    question = forwards.tokenizer.decode(row.inputs["tokens"][0, :4].tolist())
    assert int(forwards.tokenizer.decode(row.targets[0, 3:].tolist())) == int(question[0]) + int(question[2])


def test_a_gpt_learns_the_answer_behind_the_sequence(tmp_path: Path) -> None:
    changes = {**SMALL["copy"], "model": "gpt", "batch": 4, "steps": 2}
    task = get_recipe("reverse").build(TrainingRequest("reverse", tmp_path / "run", changes=changes))
    batch = task.batches(0, 0, 1)
    separator = task.tokenizer.separator
    for tokens, targets in zip(batch.inputs["tokens"].tolist(), batch.targets.tolist(), strict=True):
        place = tokens.index(separator)
        answer = [one for one in targets if one != IGNORE_INDEX]
        assert targets[:place] == [IGNORE_INDEX] * place
        assert answer == [*tokens[:place][::-1], task.tokenizer.end]
        assert tokens[place + 1 : place + len(answer)] == answer[:-1]


def test_nothing_held_out_is_learned_from(tmp_path: Path) -> None:
    task = made("sort", tmp_path / "run")
    held = {"".join(map(str, row)) for row, _ in toy_tasks.make_sort_examples("held-out", length=4, kinds=3)}
    seen = {
        task.tokenizer.decode(row[:4].tolist())
        for step in range(40)
        for row in task.batches(step, 0, 1).inputs["tokens"]
    }
    assert len(held) == 20 and len(seen) > 50 and not held & seen


# what is told of the answers


def test_words_as_tokens(tmp_path: Path) -> None:
    made_of = word_sequences.create_word_tokenizer(["10", "9", "가"], "separator")
    assert [made_of.id_to_token(number) for number in range(made_of.vocabulary)][5:] == ["9", "가", "10"]
    made_of.save(tmp_path)
    again = jumok.data.tokenizers.tokenizer.Tokenizer.load(tmp_path)
    assert again.encode("가 10 x") == [6, 7, again.unknown, again.separator]
    assert again.decode([6, 7]) == "가 10" and (again.pad, again.begin, again.end) == (0, 1, 2)


def test_bleu_is_sacrebleus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert compute_bleu(["1 2 3 4 5", "7"], ["1 2 3 4 5", "7"]) == 100.0
    # by hand: precisions 5/6, 3/5, 2/4, 1/3, no brevity penalty
    wanted = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert compute_bleu(["1 2 3 4 0 6"], ["1 2 3 4 5 6"]) == pytest.approx(wanted)
    assert compute_exact_match(["a", "b", "c"], ["a", "x", "c"]) == pytest.approx(2 / 3)

    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    from jumok.recipes.toys import sequences

    with pytest.raises(ArgumentError, match=r"pip install 'jumok\[train\]'"):  # before anything is trained
        sequences.copy.build(asked("copy", tmp_path / "run"))


def test_answers_come_back_in_order(tmp_path: Path) -> None:
    """Decoded in other company and in another order, each is what it is alone."""
    task = made("reverse", tmp_path / "run")
    sources = [task.tokenizer.encode(text) for text in ("1 2 3 4 5 6 7", "8", "9 10 11", "12 13")]
    task.model.eval()
    with torch.inference_mode():
        together = generate_by_length(task.model, sources, limit=9, ends=[task.tokenizer.end])
        alone = [generate_by_length(task.model, [one], limit=9, ends=[task.tokenizer.end])[0] for one in sources]
    assert together == alone and len({tuple(one) for one in alone}) > 1


# repeats


def test_rows_repeat() -> None:
    for row, first in repeated_bytes.generate_rows("a name", 20, 65, periodic=True):
        assert len(row) == 65 and 8 <= first <= 32
        assert row[first:] == row[:-first] and len(set(row[:first])) > first // 2
    mixed = [row for row, first in repeated_bytes.generate_rows("a name", 20, 65, periodic=False) if first == 0]
    assert len(mixed) == 20 and len({tuple(row) for row in mixed}) == 20
    # three neighbours that came before are what somebody could know: rare in random bytes
    threes = [list(zip(row, row[1:], row[2:], strict=False)) for row in mixed]
    known = sum(three in row[:place] for row in threes for place, three in enumerate(row))
    assert known / sum(map(len, threes)) > 0.3
    assert list(repeated_bytes.generate_rows("a name", 20, 65, periodic=True)) == list(
        repeated_bytes.generate_rows("a name", 20, 65, periodic=True)
    )


def test_pieces_are_of_their_kind() -> None:
    assert set(bytes(repeated_bytes.generate_piece("x", "words", 200)).decode().lower()) <= set(
        "abcdefghijklmnopqrstuvwxyz ,.\n"
    )
    hangul = bytes(repeated_bytes.generate_piece("x", "hangul", 200)).decode(errors="ignore")
    assert sum("가" <= letter <= "힣" for letter in hangul) > 30
    assert bytes(repeated_bytes.generate_piece("x", "text", 4, b"abcdef")) in b"abcdef"


def test_lessons(tmp_path: Path) -> None:
    """The small windows come first, and in them only what can be known is asked for."""
    task = made("induction", tmp_path / "run", length=256, steps=12, batch=2)
    shapes = {step: tuple(task.batches(step, 0, 1).targets.shape) for step in (0, 1, 2, 3, 4, 11)}
    assert shapes == {0: (16, 32), 1: (16, 32), 2: (4, 128), 3: (4, 128), 4: (2, 256), 11: (2, 256)}
    plain = task.batches(0, 0, 1)
    assert all(IGNORE_INDEX in row for row in plain.targets.tolist()) and plain.count < plain.targets.numel()
    assert task.batches(2, 0, 1).count == 4 * 128


# the model that comes with the package


@pytest.fixture(scope="module")
def tiny() -> Any:
    return jumok.load("tiny")


def test_tiny_is_small_and_whole(tiny: Any) -> None:
    folder = resolve.resolve_model_path("tiny")
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 1_000_000
    assert isinstance(tiny.model, GPT) and tiny.config.layers == 2 and tiny.config.vocabulary == 256
    assert tiny.config.length >= 256


@torch.inference_mode()
def test_tiny_says_again_what_came_before(tiny: Any) -> None:
    draw = torch.Generator().manual_seed(20_000)
    for half in (24, 64, 200):
        once = torch.randint(256, (40, half), generator=draw)
        rows = torch.cat([once, once], 1)
        # the first byte of the second half cannot be known: it counts, but in a short piece it is many of them
        assert inductions.compute_repeat_accuracy(tiny.model, rows) >= (
            0.95 if half >= 64 else 0.95 * (half - 1) / half
        )
        assert inductions.compute_repeat_accuracy(tiny.model, torch.cat([once, once.flip(0)], 1)) < 0.1
    first, second = inductions.compute_half_losses(tiny.model, rows)
    assert first > 4 and second < 0.5


@torch.inference_mode()
def test_tiny_has_an_induction_head(tiny: Any) -> None:
    once = torch.randint(256, (20, 50), generator=torch.Generator().manual_seed(3))
    rows = torch.cat([once, once], 1)
    heads = inductions.score_heads(tiny.model, rows)
    best = max(heads, key=lambda one: one["induction"])
    assert best["block"] == 1 and best["induction"] > 0.6
    assert max(one["previous_token"] for one in heads if one["block"] == 0) > 0.6
    # the same by plain loops
    weights = tiny.model(rows, weights=True).weights[1][:, best["head"]]
    found = [float(weights[row, place, place - 49]) for row in range(20) for place in range(50, 100)]
    assert best["induction"] == pytest.approx(sum(found) / len(found), abs=1e-5)


@torch.inference_mode()
def test_tiny_copies_by_one_head_and_its_neighbour_does_nothing(tiny: Any) -> None:
    once = torch.randint(256, (20, 64), generator=torch.Generator().manual_seed(4))
    rows, output = torch.cat([once, once], 1), tiny.model.blocks[1].attention.output.weight
    clean, kept, half = inductions.compute_repeat_accuracy(tiny.model, rows), output.clone(), output.shape[1] // 2
    for head, left in ((0, 0.02), (1, clean)):
        output[:, head * half : (head + 1) * half] = 0
        assert inductions.compute_repeat_accuracy(tiny.model, rows) == pytest.approx(left, abs=0.02)
        output.copy_(kept)


def test_tiny_goes_on_with_a_text() -> None:
    given = "The quick brown fox jumps over a lazy dog. The quick brown"
    done = CliRunner().invoke(cli, ["run", "tiny", given, "--limit", "26"])
    assert done.exit_code == 0 and done.output == " fox jumps over a lazy dog\n"
    assert jumok.run("tiny", "나는 사과를 먹고 너는 배를 먹고 나는 사과를", limit=8).startswith(" 먹고")


def test_tiny_is_what_a_name_means_only_where_no_folder_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    assert resolve.resolve_model_path("tiny") == Path("tiny")
    with pytest.raises(JumokError, match="tiny comes with the package"):
        jumok.load("huge")
