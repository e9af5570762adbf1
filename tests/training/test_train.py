"""The training loop: the same gradients for any division of a batch, and a resumed run equals an uninterrupted one."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import jumok
from jumok.checkpoint import run_folder
from jumok.errors import TrainingError
from jumok.models import Model
from jumok.models.gpt import GPTConfig
from jumok.training import Batch, Outcome, World, compute_rate_factor, compute_token_loss, fit
from jumok.training.displays import ProgressDisplay
from jumok.training.metrics_log import read_metrics
from toys import CONFIG, StopAt, assert_equal, copy_parameters, new_run, toy

pytestmark = pytest.mark.xdist_group("train")  # the tests share trained runs

Parameters = dict[str, torch.Tensor]


def read_losses(run: Path) -> list[float]:
    return [row["loss"] for row in read_metrics(run) if "loss" in row]


@pytest.fixture(scope="module")
def train_straight(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Parameters]]:
    """A function that trains the toy task without interruption, once for each set of settings."""
    trained: dict[str, tuple[Path, Parameters]] = {}

    def train(**fields: Any) -> tuple[Path, Parameters]:
        key = json.dumps(fields)
        if key not in trained:
            run, task = new_run(tmp_path_factory.mktemp("straight") / "run"), toy(**fields)
            assert fit(task, run).progress.finished
            trained[key] = run, copy_parameters(task.model)
        return trained[key]

    return train


TrainStraight = Callable[..., tuple[Path, Parameters]]

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
def test_resumed_run_equals_uninterrupted_run(
    tmp_path: Path, train_straight: TrainStraight, fields: dict[str, object], stops: tuple[int, ...]
) -> None:
    straight, parameters = train_straight(**fields)
    interrupted = new_run(tmp_path / "interrupted")
    for step in stops:
        outcome = fit(toy(**fields), interrupted, display=StopAt(step))
        assert outcome.signal == signal.SIGTERM and outcome.progress.step == step
    resumed = toy(**fields)
    assert fit(resumed, interrupted).progress.finished
    assert_equal(copy_parameters(resumed.model), parameters)
    assert (interrupted / "metrics.jsonl").read_text() == (straight / "metrics.jsonl").read_text()
    for run in (straight, interrupted):
        assert run_folder.list_checkpoints(run)[0][0] == 12
        names = [path.name for path in (run / run_folder.CHECKPOINTS_FOLDER).iterdir()]
        assert not [name for name in names if name.startswith(".")]
    assert_equal(copy_parameters(jumok.load(interrupted).model), copy_parameters(jumok.load(straight).model))


def test_interrupted_evaluation_is_repeated(tmp_path: Path, train_straight: TrainStraight) -> None:
    straight, _ = train_straight()
    run, task = new_run(tmp_path / "run"), toy()
    evaluate = task.evaluate

    def interrupt(model: Model) -> dict[str, float]:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except Exception:  # an evaluation that catches every error must not swallow the signal
            return {"loss": 0.0}
        return evaluate(model)  # not reached: the run ends at once

    outcome = fit(replace(task, evaluate=interrupt), run)
    assert outcome.signal == signal.SIGINT and outcome.progress.step == 4 and outcome.progress.owed
    assert not any("evaluation_loss" in row for row in read_metrics(run))
    # a signal after the last step and before its evaluation
    assert fit(toy(), run, display=StopAt(12)).progress.owed
    fit(toy(), run)
    assert (run / "metrics.jsonl").read_text() == (straight / "metrics.jsonl").read_text()


def test_finished_run_is_not_trained_again(tmp_path: Path, train_straight: TrainStraight) -> None:
    run = tmp_path / "run"
    shutil.copytree(train_straight()[0], run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    outcome = fit(toy(), run)
    assert outcome.progress.finished and outcome.progress.step == 12 and not outcome.trained
    changed = [path.name for path, time in before.items() if path.stat().st_mtime_ns != time]
    assert set(changed) <= {"last.json", "metrics.jsonl", "speed.jsonl"}
    assert fit(toy(steps=15), run).progress.step == 15, "more steps continue it"


def test_accumulated_loss_is_divided_by_all_targets(tmp_path: Path) -> None:
    """Parts with very different numbers of targets: a step in four parts equals a step in one."""
    outcomes = []
    for accumulate in (1, 4):
        task = toy(CONFIG.replace(dropout=0.0), accumulate=accumulate, steps=3, batch=8, evaluate_every=3)

        def uneven_batches(step: int, part: int, parts: int, batches=task.batches) -> Batch:
            batch = batches(step, part, parts)
            targets = batch.targets.clone()
            first = part * (8 // parts)
            for row in range(len(targets)):
                targets[row, : first + row] = -100  # the first example has 8 targets, the last one has 1
            return Batch(batch.inputs, targets, int((targets != -100).sum()))

        run = new_run(tmp_path / str(accumulate))
        fit(replace(task, batches=uneven_batches), run)
        outcomes.append((copy_parameters(task.model), read_losses(run)))
    (parameters, losses), (accumulated_parameters, accumulated_losses) = outcomes
    for name in parameters:
        torch.testing.assert_close(parameters[name], accumulated_parameters[name], rtol=1e-4, atol=1e-6)
    assert losses == pytest.approx(accumulated_losses, rel=1e-5)


def test_fit_equals_a_plain_torch_loop(tmp_path: Path) -> None:
    """The same task in fifteen lines of torch: same losses, same parameters."""
    fields = {"clip": 0.5, "decay": 0.1, "learning_rate": 3e-3, "steps": 6, "evaluate_every": 6}
    task, plain = toy(CONFIG.replace(dropout=0.0), **fields), toy(CONFIG.replace(dropout=0.0), **fields)
    run = new_run(tmp_path / "run")
    fit(task, run)
    groups = [
        {"params": [parameter for parameter in plain.model.parameters() if parameter.dim() >= 2], "weight_decay": 0.1},
        {"params": [parameter for parameter in plain.model.parameters() if parameter.dim() < 2], "weight_decay": 0.0},
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
    assert read_losses(run) == pytest.approx(losses, rel=1e-5)
    for (name, actual), expected in zip(copy_parameters(task.model).items(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(actual, expected.detach(), rtol=1e-4, atol=1e-6, msg=name)


def test_recomputing_blocks_keeps_the_gradients(tmp_path: Path) -> None:
    trained = []
    for checkpointing in (False, True):
        task = toy(checkpointing=checkpointing, steps=3, evaluate_every=3)
        fit(task, new_run(tmp_path / str(checkpointing)))
        trained.append(copy_parameters(task.model))
    for name in trained[0]:
        torch.testing.assert_close(trained[0][name], trained[1][name], rtol=1e-5, atol=1e-7)


def test_resumed_run_keeps_its_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that started on a GPU in bfloat16 continues in bfloat16 on a CPU, where the rule would choose float32."""
    run = new_run(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("jumok.training.loop.choose_precision", lambda device: "bfloat16")
        fit(toy(precision="auto"), run, display=StopAt(5))
    resumed = toy(precision="auto")
    fit(resumed, run)
    straight = toy(precision="bfloat16")
    fit(straight, new_run(tmp_path / "straight"))
    assert_equal(copy_parameters(resumed.model), copy_parameters(straight.model))


def test_processes_agree_on_the_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPUs of the processes may differ; the main process decides."""
    monkeypatch.setattr("jumok.training.loop.choose_precision", lambda device: "bfloat16")
    monkeypatch.setattr(World, "broadcast", lambda self, content: "float32" if content == "bfloat16" else content)
    run = new_run(tmp_path / "run")
    fit(toy(precision="auto", steps=1), run)
    metadata = json.loads((run_folder.get_checkpoint_folder(run, 1) / "training.json").read_text())
    assert metadata["precision"] == "float32"


def test_overflowing_float16_gradients_are_not_applied(tmp_path: Path) -> None:
    task = toy(precision="float16", steps=12, evaluate_every=12)
    before, run = copy_parameters(task.model), new_run(tmp_path / "run")

    def huge_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        return task.loss(model, batch) * 2000

    outcome = fit(replace(task, loss=huge_loss), run, display=StopAt(1))
    assert outcome.progress.step == 1
    assert_equal(copy_parameters(task.model), before)
    metadata = json.loads((run_folder.list_checkpoints(run)[0][1] / "training.json").read_text())
    assert metadata["scaler"]["scale"] == 2**15, "half of the first scale"
    resumed = toy(precision="float16", steps=12, evaluate_every=12)
    fit(replace(resumed, loss=huge_loss), run)
    trained = copy_parameters(resumed.model)
    assert any(not torch.equal(parameter, before[name]) for name, parameter in trained.items())
    assert all(bool(parameter.isfinite().all()) for parameter in trained.values())


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_nonfinite_loss_stops_before_the_update(tmp_path: Path, factor: float) -> None:
    run = new_run(tmp_path / "run")
    task = toy()
    before: list[Parameters] = []

    def broken_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        before.append(copy_parameters(model))
        loss = compute_token_loss(model, batch)
        return loss * factor if len(before) == 6 else loss

    class EndDisplay(ProgressDisplay):
        ended = False

        def end(self) -> None:
            self.ended = True

    display = EndDisplay()
    with pytest.raises(TrainingError, match=r"the loss is (nan|inf) at step 6 \(batch 5, 8 examples"):
        fit(replace(task, loss=broken_loss), run, display=display)
    assert display.ended, "no progress bar stays behind an error"
    assert_equal(copy_parameters(task.model), before[-1])
    assert [step for step, _ in run_folder.list_checkpoints(run)] == [4]
    fit(toy(), run)  # the run can continue from its checkpoint


def test_best_and_last_are_pointers_and_old_checkpoints_are_removed(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    task = toy(steps=20, evaluate_every=2, save_every=2, keep=2)
    losses = iter([5.0, 4.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0])
    fit(replace(task, evaluate=lambda model: {"loss": next(losses)}), run)
    assert run_folder.read_pointer(run, "best") == run_folder.get_checkpoint_folder(run, 6)
    assert run_folder.read_pointer(run, "last") == run_folder.get_checkpoint_folder(run, 20)
    assert [step for step, _ in run_folder.list_checkpoints(run)] == [20, 18, 6]
    metadata = json.loads((run_folder.get_checkpoint_folder(run, 20) / "training.json").read_text())
    assert metadata["progress"]["best"] == 1.0


def test_patience_ends_a_run_without_improvement(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    task = toy(steps=40, evaluate_every=2, patience=3)
    losses = iter([5.0, 4.0, 6.0, 6.0, 6.0, 1.0])
    outcome = fit(replace(task, evaluate=lambda model: {"loss": next(losses)}), run)
    assert outcome.progress.step == 10 and outcome.progress.finished and outcome.progress.best_step == 4
    assert not fit(toy(steps=40, evaluate_every=2, patience=3), run).trained


def test_outcome_loads_the_best_model(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    outcome = fit(toy(), run)
    assert outcome.folder == run and outcome.metrics.keys() == {"loss"} and outcome.report == {}
    best = jumok.load(run)
    assert_equal(copy_parameters(outcome.model), copy_parameters(best.model))
    assert outcome.model is outcome.model and outcome.load().config == best.config


def test_checkpoint_of_another_model_is_refused(tmp_path: Path, stopped_run: Path) -> None:
    other = GPTConfig.from_json({**CONFIG.to_json(), "width": 24, "hidden": 48})
    message = r"different model: hidden was 32 and is now 48, width was 16 and is now 24"
    with pytest.raises(TrainingError, match=message):
        fit(toy(other), stopped_run)


@pytest.fixture(scope="module")
def stopped_at_nine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = new_run(tmp_path_factory.mktemp("stopped") / "run")
    fit(toy(), run, display=StopAt(9))
    assert [step for step, _ in run_folder.list_checkpoints(run)][:2] == [9, 8]
    return run


@pytest.fixture
def stopped_run(tmp_path: Path, stopped_at_nine: Path) -> Path:
    """A copy of a run that was stopped after step 9; its checkpoints are those of steps 9 and 8."""
    run = tmp_path / "stopped"
    shutil.copytree(stopped_at_nine, run)
    return run


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "manifest"])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.safetensors", "training.json"])
def test_damaged_checkpoint_is_skipped(
    stopped_run: Path, train_straight: TrainStraight, damage: str, name: str
) -> None:
    straight, _ = train_straight()
    path = run_folder.get_checkpoint_folder(stopped_run, 9) / ("manifest.json" if damage == "manifest" else name)
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.write_bytes(content[: len(content) // 2])
    messages: list[str] = []

    class MessageDisplay(ProgressDisplay):
        def show_message(self, line: str, transient: bool = False) -> None:
            messages.append(line)

    outcome = fit(toy(), stopped_run, display=MessageDisplay())
    assert outcome.progress.finished
    assert any("step 9 cannot be used" in line for line in messages) and "going back to step 8" in messages
    assert (stopped_run / "metrics.jsonl").read_text() == (straight / "metrics.jsonl").read_text()
    assert_equal(copy_parameters(jumok.load(stopped_run).model), copy_parameters(jumok.load(straight).model))


def test_run_with_only_damaged_checkpoints_is_refused(stopped_run: Path) -> None:
    for _, checkpoint in run_folder.list_checkpoints(stopped_run):
        (checkpoint / "model.safetensors").unlink()
    with pytest.raises(TrainingError, match=r"none of the \d checkpoints"):
        fit(toy(), stopped_run)


def test_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tmp_path / "run")
    fit(toy(), run, display=StopAt(4))
    checkpoint = run_folder.list_checkpoints(run)[0][1]
    before = {path: path.read_bytes() for path in checkpoint.iterdir()}

    def raise_disk_full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jumok.training.resume.write_tensors", raise_disk_full)
    with pytest.raises(TrainingError, match=r"step 4 could not be saved .*No space left on device"):
        fit(toy(), run)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in checkpoint.iterdir()} == before
    names = [path.name for path in (run / run_folder.CHECKPOINTS_FOLDER).iterdir()]
    assert not [name for name in names if name.startswith(".")]
    outcome: Outcome = fit(toy(), run)
    assert outcome.progress.finished


def test_step_is_saved_before_its_evaluation(tmp_path: Path) -> None:
    """A process that ends in an evaluation loses no steps, and the run continues with the evaluation."""
    straight, failed = new_run(tmp_path / "straight"), new_run(tmp_path / "failed")
    fit(toy(), straight)
    task = toy()

    def fail(model: Model) -> dict[str, float]:
        raise MemoryError

    with pytest.raises(MemoryError):
        fit(replace(task, evaluate=fail), failed)
    assert [(step, folder.name) for step, folder in run_folder.list_checkpoints(failed)] == [(4, "step-00000004-0")]
    trained_steps: list[int] = []
    batches = task.batches

    def record_step(step: int, part: int, parts: int) -> Batch:
        trained_steps.append(step)
        return batches(step, part, parts)

    fit(replace(toy(), batches=record_step), failed)
    assert min(trained_steps) == 4  # the step after the checkpoint
    assert (failed / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
    names = [sorted(path.name for path in (run / "checkpoints").iterdir()) for run in (failed, straight)]
    assert names[0] == names[1] == ["step-00000008", "step-00000012"]


@pytest.mark.parametrize("is_moved", [True, False])
def test_moved_folder_is_named_and_not_created_again(tmp_path: Path, is_moved: bool) -> None:
    run = new_run(tmp_path / "run")
    task = toy()

    def evaluate(model: Model) -> dict[str, float]:
        run.rename(tmp_path / "moved") if is_moved else shutil.rmtree(run)
        return task.evaluate(model)

    with pytest.raises(TrainingError, match=r"run was moved or removed while the run trained in it"):
        fit(replace(task, evaluate=evaluate), run)
    assert not run.exists()
    assert (tmp_path / "moved").exists() == is_moved
