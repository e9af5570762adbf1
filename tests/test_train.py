"""The loop: the same gradients however a batch is cut, the same run however often it stops."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import jumok
from jumok.checkpoint import run_folder
from jumok.errors import ArgumentError, TrainingError
from jumok.models import Model
from jumok.models.gpt import GPTConfig
from jumok.training import Batch, Outcome, Settings, compute_rate_factor, fit, precision, token_loss
from jumok.training.metrics_log import read_metrics
from jumok.training.muon import Muon, orthogonalize
from jumok.training.progress import LineDisplay, ProgressDisplay
from toys import CONFIG, StopAt, toy


def new_run(folder: Path) -> Path:
    (folder / run_folder.CHECKPOINTS_FOLDER).mkdir(parents=True)
    (folder / run_folder.RUN_FILE).write_text("{}")
    return folder


def parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in model.named_parameters()}


def assert_equal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert torch.equal(found[name], wanted[name]), name


VARIANTS = [
    {},
    {"optimizer": "muon"},
    {"average": 0.9},
    {"accumulate": 2, "beta1": 0.8},
    {"optimizer": "muon", "average": 0.5, "patience": 5},
    {"precision": "float16"},
]


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
@pytest.mark.parametrize("stops", [(1,), (4,), (5, 6, 11), (2, 8)], ids=str)
def test_a_run_that_stops_is_the_run_that_never_stopped(
    tmp_path: Path, fields: dict[str, object], stops: tuple[int, ...]
) -> None:
    whole, cut = new_run(tmp_path / "whole"), new_run(tmp_path / "cut")
    straight = toy(**fields)
    assert fit(straight, whole).progress.finished
    for step in stops:
        outcome = fit(toy(**fields), cut, show=StopAt(step))
        assert outcome.signal == signal.SIGTERM and outcome.progress.step == step
    ended = toy(**fields)
    assert fit(ended, cut).progress.finished
    assert_equal(parameters(ended.model), parameters(straight.model))
    assert (cut / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    for one in (whole, cut):
        assert run_folder.list_checkpoints(one)[0][0] == 12
        assert not [left for left in (one / run_folder.CHECKPOINTS_FOLDER).iterdir() if left.name.startswith(".")]
    assert_equal(parameters(jumok.load(cut).model), parameters(jumok.load(whole).model))


def test_an_evaluation_that_is_interrupted_is_made_up_for(tmp_path: Path) -> None:
    whole, cut = new_run(tmp_path / "whole"), new_run(tmp_path / "cut")
    fit(toy(), whole)

    task = toy()
    evaluate = task.evaluate

    def interrupted(model: Model) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGINT)
        return evaluate(model)  # not reached: the run ends at once

    outcome = fit(replace(task, evaluate=interrupted), cut)
    assert outcome.signal == signal.SIGINT and outcome.progress.step == 4 and outcome.progress.owed
    assert not any("evaluation_loss" in one for one in read_metrics(cut))
    # a signal that comes when the last step is done, before its evaluation
    assert fit(toy(), cut, show=StopAt(12)).progress.owed
    fit(toy(), cut)
    assert (cut / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()


def test_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    fit(toy(), run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    outcome = fit(toy(), run)
    assert outcome.progress.finished and outcome.progress.step == 12 and not outcome.metrics
    changed = [path.name for path, told in before.items() if path.stat().st_mtime_ns != told]
    assert set(changed) <= {"last.json", "metrics.jsonl", "speed.jsonl"}
    more = fit(toy(steps=15), run)  # somebody wants three steps more
    assert more.progress.step == 15


def test_accumulation_divides_by_the_whole_step(tmp_path: Path) -> None:
    """Parts with very unequal numbers of targets: one step in four parts is one step in one."""
    ended = []
    for accumulate in (1, 4):
        task = toy(CONFIG.replace(dropout=0.0), accumulate=accumulate, steps=3, batch=8, evaluate_every=3)

        def uneven(step: int, part: int, parts: int, whole=task.batches) -> Batch:
            batch = whole(step, part, parts)
            targets = batch.targets.clone()
            first = part * (8 // parts)
            for row in range(len(targets)):
                targets[row, : first + row] = -100  # the first example has 8 targets, the last one has 1
            return Batch(batch.inputs, targets, int((targets != -100).sum()))

        run = new_run(tmp_path / str(accumulate))
        fit(replace(task, batches=uneven), run)
        ended.append((parameters(task.model), [one["loss"] for one in read_metrics(run) if "loss" in one]))
    for name in ended[0][0]:
        torch.testing.assert_close(ended[0][0][name], ended[1][0][name], rtol=1e-4, atol=1e-6)
    assert ended[0][1] == pytest.approx(ended[1][1], rel=1e-5)


def test_the_loop_is_a_plain_loop_of_torch(tmp_path: Path) -> None:
    """The same task in fifteen lines of torch: same losses, same parameters."""
    fields = {"clip": 0.5, "decay": 0.1, "learning_rate": 3e-3, "steps": 6, "evaluate_every": 6}
    task, plain = toy(CONFIG.replace(dropout=0.0), **fields), toy(CONFIG.replace(dropout=0.0), **fields)
    run = new_run(tmp_path / "run")
    fit(task, run)
    groups = [
        {"params": [one for one in plain.model.parameters() if one.dim() >= 2], "weight_decay": 0.1},
        {"params": [one for one in plain.model.parameters() if one.dim() < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.99))
    losses = []
    for step in range(6):
        batch = plain.batches(step, 0, 1)
        logits = plain.model(**batch.inputs).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(plain.model.parameters(), 0.5)
        for group in adamw.param_groups:
            group["lr"] = 3e-3 * compute_rate_factor(plain.settings, step)
        adamw.step()
        adamw.zero_grad()
        losses.append(float(loss.detach()))
    assert [one["loss"] for one in read_metrics(run) if "loss" in one] == pytest.approx(losses, rel=1e-5)
    for (name, found), wanted in zip(parameters(task.model).items(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(found, wanted.detach(), rtol=1e-4, atol=1e-6, msg=name)


def test_recomputing_blocks_changes_nothing(tmp_path: Path) -> None:
    ended = []
    for checkpointing in (False, True):
        task = toy(checkpointing=checkpointing, steps=3, evaluate_every=3)
        fit(task, new_run(tmp_path / str(checkpointing)))
        ended.append(parameters(task.model))
    for name in ended[0]:
        torch.testing.assert_close(ended[0][name], ended[1][name], rtol=1e-5, atol=1e-7)


def test_a_run_goes_on_in_the_numbers_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fastest is measured; a machine that measures something else later must not change a run."""
    run = new_run(tmp_path / "run")
    monkeypatch.setattr(precision, "fastest", lambda device: "bfloat16")
    fit(toy(precision="auto"), run, show=StopAt(5))
    monkeypatch.setattr(precision, "fastest", lambda device: "float32")
    ended = toy(precision="auto")
    fit(ended, run)
    straight = toy(precision="bfloat16")
    fit(straight, new_run(tmp_path / "straight"))
    assert_equal(parameters(ended.model), parameters(straight.model))


def test_gradients_that_overflow_in_float16_are_not_applied(tmp_path: Path) -> None:
    task = toy(precision="float16", steps=12, evaluate_every=12)
    before, run = parameters(task.model), new_run(tmp_path / "run")

    def huge(model: nn.Module, batch: Batch) -> torch.Tensor:
        return task.loss(model, batch) * 2000

    outcome = fit(replace(task, loss=huge), run, show=StopAt(1))
    assert outcome.progress.step == 1
    assert_equal(parameters(task.model), before)
    told = json.loads((run_folder.list_checkpoints(run)[0][1] / "training.json").read_text())
    assert told["scaler"]["scale"] == 2**15, "half of what it was"
    again = toy(precision="float16", steps=12, evaluate_every=12)
    fit(replace(again, loss=huge), run)
    assert any(not torch.equal(one, before[name]) for name, one in parameters(again.model).items())
    assert all(bool(one.isfinite().all()) for one in parameters(again.model).values())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_before_the_update(tmp_path: Path, value: float) -> None:
    run = new_run(tmp_path / "run")
    task = toy()
    before: list[dict[str, torch.Tensor]] = []

    def broken(model: nn.Module, batch: Batch) -> torch.Tensor:
        before.append(parameters(model))
        loss = token_loss(model, batch)
        return loss * value if len(before) == 6 else loss

    with pytest.raises(TrainingError, match=r"the loss is (nan|inf) at step 6 \(batch 5, 8 examples"):
        fit(replace(task, loss=broken), run)
    assert_equal(parameters(task.model), before[-1])
    assert [step for step, _ in run_folder.list_checkpoints(run)] == [4]
    fit(toy(), run)  # and it goes on from there


def test_best_and_last_are_pointers_and_old_ones_go(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    task = toy(steps=20, evaluate_every=2, save_every=2, keep=2)
    values = iter([5.0, 4.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0])
    fit(replace(task, evaluate=lambda model: {"loss": next(values)}), run)
    assert run_folder.read_pointer(run, "best") == run_folder.get_checkpoint_folder(run, 6)
    assert run_folder.read_pointer(run, "last") == run_folder.get_checkpoint_folder(run, 20)
    assert [step for step, _ in run_folder.list_checkpoints(run)] == [20, 18, 6]
    assert (
        json.loads((run_folder.get_checkpoint_folder(run, 20) / "training.json").read_text())["progress"]["best"] == 1.0
    )


def test_patience_ends_a_run_that_learns_nothing_more(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    task = toy(steps=40, evaluate_every=2, patience=3)
    values = iter([5.0, 4.0, 6.0, 6.0, 6.0, 1.0])
    outcome = fit(replace(task, evaluate=lambda model: {"loss": next(values)}), run)
    assert outcome.progress.step == 10 and outcome.progress.finished and outcome.progress.best_step == 4
    assert not fit(toy(steps=40, evaluate_every=2, patience=3), run).metrics


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    fit(toy(), run, show=StopAt(4))
    other = GPTConfig.from_json({**CONFIG.to_json(), "width": 24, "hidden": 48})
    with pytest.raises(TrainingError, match=r"another model: hidden is 32 there and 48 here, width is 16 there and 24"):
        fit(toy(other), run)


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "manifest"])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.safetensors", "training.json"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: str, name: str) -> None:
    whole, run = new_run(tmp_path / "whole"), new_run(tmp_path / "run")
    fit(toy(), whole)
    fit(toy(), run, show=StopAt(9))
    assert [step for step, _ in run_folder.list_checkpoints(run)][:2] == [9, 8]
    path = run_folder.get_checkpoint_folder(run, 9) / ("manifest.json" if damage == "manifest" else name)
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    else:
        path.write_bytes(data[: len(data) // 2])
    said: list[str] = []

    class Heard(ProgressDisplay):
        def show_message(self, line: str, transient: bool = False) -> None:
            said.append(line)

    outcome = fit(toy(), run, show=Heard())
    assert outcome.progress.finished
    assert any("step 9 cannot be used" in line for line in said) and "going back to step 8" in said
    assert (run / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    assert_equal(parameters(jumok.load(run).model), parameters(jumok.load(whole).model))


def test_when_every_checkpoint_is_damaged_it_says_so(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    fit(toy(), run, show=StopAt(9))
    for _, place in run_folder.list_checkpoints(run):
        (place / "model.safetensors").unlink()
    with pytest.raises(TrainingError, match=r"none of the \d checkpoints"):
        fit(toy(), run)


def test_muon_makes_matrices_orthogonal() -> None:
    torch.manual_seed(0)
    made = orthogonalize(torch.randn(3, 16, 40), 5)
    values = torch.linalg.svdvals(made)
    assert values.min() > 0.6 and values.max() < 1.3
    # the directions are those of the exact answer, U V^T
    given = torch.randn(1, 12, 12)
    left, _, right = torch.linalg.svd(given[0])
    cosine = nn.functional.cosine_similarity(orthogonalize(given, 5).flatten(), (left @ right).flatten(), dim=0)
    assert cosine > 0.97


def test_muon_cuts_joined_maps() -> None:
    """A matrix of three joined maps moves as three matrices do."""
    torch.manual_seed(1)
    joined = nn.Parameter(torch.randn(24, 8))
    parts = [nn.Parameter(one.clone()) for one in joined.detach().split(8)]
    joined.grad = torch.randn(24, 8)
    for one, grad in zip(parts, joined.grad.split(8), strict=True):
        one.grad = grad.clone()
    Muon({joined: (8, 8, 8)}).step()
    Muon(dict.fromkeys(parts, (8,))).step()
    torch.testing.assert_close(joined, torch.cat(parts))


def test_the_rate_rises_and_falls() -> None:
    settings = Settings(steps=100, warmup=10, final_rate=0.1)
    rates = [compute_rate_factor(settings, step) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 11) and rates[10] == 1.0 and rates[99] == pytest.approx(0.1, abs=1e-3)
    assert rates[:11] == sorted(rates[:11]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[55] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * 0.5)))


def test_settings_refuse_what_cannot_be() -> None:
    with pytest.raises(ArgumentError, match="does not divide into 3 parts"):
        Settings(batch=8, accumulate=3)
    with pytest.raises(ArgumentError, match="learning_rate of the training config"):
        Settings(learning_rate=-1.0)
    with pytest.raises(ArgumentError, match="did you mean 'learning_rate'"):
        Settings.from_json({"learningrate": 1.0})


def test_lines_are_plain_and_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(toy(), new_run(tmp_path / "run"), show=LineDisplay(every=1e9))
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("step 1 of 12  loss ") and told[-1].startswith("evaluation at step 12: loss ")
    assert len([line for line in told if line.startswith("step ")]) == 2


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tmp_path / "run")
    fit(toy(), run, show=StopAt(4))
    kept = {path: path.read_bytes() for path in run_folder.get_checkpoint_folder(run, 4).iterdir()}

    def full(*given: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jumok.training.resume.save_file", full)
    with pytest.raises(TrainingError, match=r"step 4 could not be saved .*No space left on device"):
        fit(toy(), run)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in run_folder.get_checkpoint_folder(run, 4).iterdir()} == kept
    assert not [one for one in (run / run_folder.CHECKPOINTS_FOLDER).iterdir() if one.name.startswith(".")]
    outcome: Outcome = fit(toy(), run)
    assert outcome.progress.finished
    shutil.rmtree(run)
