"""Several processes: the gradients of one process, one checkpoint format, and no loss when a process dies."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from jumok.checkpoint import manifest, run_folder
from jumok.checkpoint.run_folder import lock_run
from jumok.training import World
from parallel_child import train_job
from toys import new_run

pytestmark = pytest.mark.xdist_group("parallel")

CHILD = Path(__file__).parents[1] / "parallel_child.py"
FIELDS = {"steps": 6, "evaluate_every": 3, "save_every": 2}
PLAIN = {"config": {"dropout": 0.0}, "fields": FIELDS}
DROPOUT = {"fields": FIELDS}  # each process draws its own random numbers
VARIANTS = {
    "tied": PLAIN,
    "untied, in two parts": {"config": {"dropout": 0.0, "tied": False}, "fields": {**FIELDS, "accumulate": 2}},
    "muon, average": {**PLAIN, "fields": {**FIELDS, "optimizer": "muon", "average": 0.5}},
}
STOP = 3
#: (kind and number of processes until step 3, and after it)
CHANGES = [(("fsdp", 2), ("none", 1)), (("none", 1), ("fsdp", 2)), (("ddp", 2), ("fsdp", 2))]


def train_in_processes(jobs: list[dict[str, Any]], processes: int) -> None:
    """Train jobs one after another: in this process, or in several, as torchrun starts them."""
    if processes == 1:
        for job in jobs:
            train_job(job, World())
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(CHILD.parent), os.environ.get("PYTHONPATH", "")])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes), "PYTHONPATH": path}
    children = []
    for rank in range(processes):
        environment = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        command = [sys.executable, str(CHILD), json.dumps(jobs)]
        children.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    for child in children:
        _, error = child.communicate(timeout=240)
        assert child.returncode == 0, error[-2000:]


def read_tensors(run: Path, step: int, name: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(run_folder.get_checkpoint_folder(run, step) / name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All runs of this module by name. Processes start slowly, so one start trains many runs; stopped runs resume in
    new processes."""
    folder = tmp_path_factory.mktemp("runs")
    runs: dict[str, Path] = {}

    def job(name: str, kind: str, settings: dict[str, Any], stop: int | None = None) -> dict[str, Any]:
        if name not in runs:
            runs[name] = new_run(folder / str(len(runs)))
        return {"run": str(runs[name]), "kind": kind, "stop": stop, **settings}

    straight = [job(f"{variant}, none", "none", settings) for variant, settings in VARIANTS.items()]
    parallel, resumed = [], []
    for kind in ("ddp", "fsdp"):
        parallel += [job(f"{variant}, {kind}", kind, settings) for variant, settings in VARIANTS.items()]
        parallel += [job(f"straight, {kind}", kind, DROPOUT), job(f"stopped, {kind}", kind, DROPOUT, STOP)]
        resumed.append(job(f"stopped, {kind}", kind, DROPOUT))
    slow = {"timeout": 4, "fields": {"steps": 2, "evaluate_every": 2, "save_every": 2}}
    resumed.append(job("slow", "ddp", slow))
    first_half, second_half = [], []
    for before, after in CHANGES:
        first_half.append((before[1], job(f"{before} to {after}", before[0], PLAIN, STOP)))
        second_half.append((after[1], job(f"{before} to {after}", after[0], PLAIN)))

    train_in_processes([*straight, *(job for count, job in first_half if count == 1)], 1)
    train_in_processes([*parallel, *(job for count, job in first_half if count == 2)], 2)
    assert run_folder.list_checkpoints(runs["stopped, ddp"])[0][0] == STOP
    assert run_folder.list_checkpoints(runs["stopped, fsdp"])[0][0] == STOP
    train_in_processes([*(job for count, job in second_half if count == 2), *resumed], 2)
    train_in_processes([job for count, job in second_half if count == 1], 1)
    return runs


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_two_processes_have_the_gradients_of_one(runs: dict[str, Path], kind: str, variant: str) -> None:
    single, two = runs[f"{variant}, none"], runs[f"{variant}, {kind}"]
    expected, actual = load_file(single / "gradients.safetensors"), load_file(two / "gradients.safetensors")
    assert actual.keys() == expected.keys() and len(expected) > 12
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, rtol=1e-3, atol=2e-6, msg=f"{name} differs")
    for name, parameter in read_tensors(single, 6).items():
        torch.testing.assert_close(read_tensors(two, 6)[name], parameter, rtol=1e-2, atol=1e-3, msg=name)
    names = read_tensors(single, 6, "optimizer.safetensors").keys()
    assert read_tensors(two, 6, "optimizer.safetensors").keys() == names


def test_processes_wait_for_an_evaluation_longer_than_their_timeout(runs: dict[str, Path]) -> None:
    assert [folder.name for _, folder in run_folder.list_checkpoints(runs["slow"])] == ["step-00000002"]
    assert (runs["slow"] / "best.json").is_file()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_resumed_processes_equal_uninterrupted_ones(runs: dict[str, Path], kind: str) -> None:
    straight, resumed = runs[f"straight, {kind}"], runs[f"stopped, {kind}"]
    assert (resumed / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
    for name in ("model.safetensors", "optimizer.safetensors", "state.safetensors"):
        actual, expected = read_tensors(resumed, 6, name), read_tensors(straight, 6, name)
        assert all(torch.equal(actual[key], expected[key]) for key in expected), name


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_checkpoints_do_not_depend_on_the_processes(
    runs: dict[str, Path], before: tuple[str, int], after: tuple[str, int]
) -> None:
    straight, changed = runs["tied, none"], runs[f"{before} to {after}"]
    assert run_folder.list_checkpoints(changed)[0][0] == 6
    for name, parameter in read_tensors(straight, 6).items():
        torch.testing.assert_close(read_tensors(changed, 6)[name], parameter, rtol=1e-2, atol=1e-3, msg=name)


def start_jumok(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "jumok", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def list_processes() -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """Yield the id, the command line and the environment of every process."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        yield int(folder.name), words, variables


def has_rank(variables: Iterable[bytes]) -> bool:
    return any(variable.startswith(b"LOCAL_RANK=") for variable in variables)


def list_ranks(run: Path) -> list[int]:
    """Return the process ids of the ranks that train in a folder."""
    name = str(run).encode()
    return sorted(number for number, words, variables in list_processes() if name in words and has_rank(variables))


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def find_workers(run: Path, count: int) -> list[int]:
    """Return the process ids of the ranks, after the run has saved a checkpoint."""
    wait_for(lambda: run_folder.list_checkpoints(run))
    workers = list_ranks(run)
    assert len(workers) == count, workers
    return workers


def is_progress(line: str) -> bool:
    return line.startswith(("step ", "evaluation at ", "training into "))


FIELDS_SET = ("save_every=20", "evaluate_every=1000", "threads=1", "precision=float32")
OPTIONS = [*(word for field in FIELDS_SET for word in ("--set", field)), "--processes", "2"]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
def test_killed_process_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    run = tmp_path / "my run"
    process = start_jumok("train", "numbers", "--steps", "100000", "--out", str(run), *OPTIONS)
    os.kill(find_workers(run, 2)[1], signal.SIGKILL)
    killed_at = time.monotonic()
    _, error = process.communicate(timeout=60)
    assert time.monotonic() - killed_at < 10
    assert process.returncode == 128 + signal.SIGKILL
    lines = [line for line in error.splitlines() if not is_progress(line)]
    sentence, _, command = lines[0].partition(" Continue with: ")
    assert sentence == "jumok: process 2 of 2 was killed by SIGKILL; the saved checkpoints are complete."
    assert lines[1:] == [] and run_folder.list_checkpoints(run)

    assert shlex.split(command) == ["jumok", "train", "--resume", str(run), "--processes", "2"]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
def test_signal_for_the_launcher_saves_and_stops(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start_jumok("train", "numbers", "--steps", "100000", "--out", str(run), *OPTIONS)
    find_workers(run, 2)
    os.kill(process.pid, signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    lines = [line for line in error.splitlines() if not is_progress(line)]
    step, checkpoint = run_folder.list_checkpoints(run)[0]
    assert lines == [f"stopped at step {step:,}; continue with: jumok train --resume {run} --processes 2"]
    manifest.verify_manifest(checkpoint)
    assert json.loads((checkpoint / "training.json").read_text())["progress"]["step"] == step
    assert not list_ranks(run)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
def test_processes_end_with_their_launcher(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start_jumok("train", "numbers", "--steps", "100000", "--out", str(run), *OPTIONS)
    find_workers(run, 2)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    wait_for(lambda: not list_ranks(run), 5)
    with lock_run(run):
        manifest.verify_manifest(run_folder.list_checkpoints(run)[0][1])


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
def test_restarted_processes_equal_uninterrupted_ones(tmp_path: Path) -> None:
    straight, restarted = tmp_path / "straight", tmp_path / "restarted"
    steps = ["--steps", "200"]
    process = start_jumok("train", "numbers", *steps, "--out", str(straight), *OPTIONS)
    _, error = process.communicate(timeout=240)
    assert process.returncode == 0, error[-2000:]
    process = start_jumok("train", "numbers", *steps, "--out", str(restarted), *OPTIONS, "--restarts", "3")
    os.kill(find_workers(restarted, 2)[0], signal.SIGKILL)
    _, error = process.communicate(timeout=240)
    assert process.returncode == 0, error[-2000:]
    assert (restarted / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
    actual, expected = read_tensors(restarted, 200), read_tensors(straight, 200)
    assert all(torch.equal(actual[key], expected[key]) for key in expected)
