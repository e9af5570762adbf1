"""Several processes: the gradients of one, one format on disk, and nothing lost when one of them dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from jumok.checkpoint import run_folder

pytestmark = pytest.mark.xdist_group("parallel")

CHILD = Path(__file__).parent / "parallel_child.py"
PLAIN = {"config": {"dropout": 0.0}, "fields": {"steps": 6, "evaluate_every": 3, "save_every": 2}}


def new_run(folder: Path) -> Path:
    (folder / run_folder.CHECKPOINTS_FOLDER).mkdir(parents=True)
    (folder / run_folder.RUN_FILE).write_text("{}")
    return folder


def together(kind: str, processes: int, run: Path, told: dict[str, Any]) -> None:
    """The toy task in so many processes, as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(processes):
        many = {} if processes == 1 else {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": os.pathsep.join([str(CHILD.parent), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, str(CHILD), kind, str(run), json.dumps(told)]
        started.append(
            subprocess.Popen(command, env={**os.environ, **many, **where}, stderr=subprocess.PIPE, text=True)
        )
    for one in started:
        _, error = one.communicate(timeout=120)
        assert one.returncode == 0, error[-2000:]


def tensors(run: Path, step: int, name: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(run_folder.get_checkpoint_folder(run, step) / name)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], Path]:
    """The run of one process, made once for all that are compared with it."""
    made: dict[str, Path] = {}

    def run_of(told: dict[str, Any]) -> Path:
        name = json.dumps(told)
        if name not in made:
            made[name] = new_run(tmp_path_factory.mktemp("alone") / "run")
            together("none", 1, made[name], told)
        return made[name]

    return run_of


Alone = Callable[[dict[str, Any]], Path]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize(
    "told",
    [
        PLAIN,
        {**PLAIN, "config": {"dropout": 0.0, "tied": False}, "fields": {**PLAIN["fields"], "accumulate": 2}},
        {**PLAIN, "fields": {**PLAIN["fields"], "optimizer": "muon", "average": 0.5}},
    ],
    ids=["tied", "untied, in two parts", "muon, average"],
)
def test_two_processes_have_the_gradients_of_one(tmp_path: Path, alone: Alone, kind: str, told: dict[str, Any]) -> None:
    one_process, two = alone(told), new_run(tmp_path / "two")
    together(kind, 2, two, told)
    wanted, found = load_file(one_process / "gradients.safetensors"), load_file(two / "gradients.safetensors")
    assert found.keys() == wanted.keys() and len(wanted) > 12
    for name, one in wanted.items():
        torch.testing.assert_close(found[name], one, rtol=1e-3, atol=2e-6, msg=f"{name} differs")
    for name, one in tensors(one_process, 6).items():
        torch.testing.assert_close(tensors(two, 6)[name], one, rtol=1e-2, atol=1e-3, msg=name)
    remembered = tensors(one_process, 6, "optimizer.safetensors")
    assert tensors(two, 6, "optimizer.safetensors").keys() == remembered.keys()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_that_stop_go_on_bit_for_bit(tmp_path: Path, kind: str) -> None:
    whole, cut = new_run(tmp_path / "whole"), new_run(tmp_path / "cut")
    told = {"fields": PLAIN["fields"]}  # with dropout: each process has its own random numbers
    together(kind, 2, whole, told)
    together(kind, 2, cut, {**told, "stop": 3})
    assert run_folder.list_checkpoints(cut)[0][0] == 3
    together(kind, 2, cut, told)
    assert (cut / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    for name in ("model.safetensors", "optimizer.safetensors", "state.safetensors"):
        left, right = tensors(cut, 6, name), tensors(whole, 6, name)
        assert all(torch.equal(left[key], right[key]) for key in right), name


@pytest.mark.parametrize(
    ("first", "then"), [(("fsdp", 2), ("none", 1)), (("none", 1), ("fsdp", 2)), (("ddp", 2), ("fsdp", 2))]
)
def test_one_format_for_any_number_of_processes(
    tmp_path: Path, alone: Alone, first: tuple[str, int], then: tuple[str, int]
) -> None:
    whole, mixed = alone(PLAIN), new_run(tmp_path / "mixed")
    together(*first, mixed, {**PLAIN, "stop": 3})
    together(*then, mixed, PLAIN)
    for name, one in tensors(whole, 6).items():
        torch.testing.assert_close(tensors(mixed, 6)[name], one, rtol=1e-2, atol=1e-3, msg=name)


def jumok(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "jumok", *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def workers(run: Path, count: int) -> list[int]:
    """The process ids of the ranks, once the run has saved something."""
    until = time.monotonic() + 120
    while not run_folder.list_checkpoints(run):
        assert time.monotonic() < until, "no checkpoint after two minutes"
        time.sleep(0.05)
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            variables = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(run).encode() in words and any(one.startswith(b"LOCAL_RANK=") for one in variables):
            found.append(int(place.name))
    assert len(found) == count, found
    return sorted(found)


NUMBERS = ["--set", "save_every=20", "--set", "evaluate_every=1000", "--set", "threads=1", "--processes", "2"]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
def test_a_killed_process_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    run = tmp_path / "run"
    started = jumok("train", "numbers", "--steps", "100000", "--out", str(run), *NUMBERS)
    os.kill(workers(run, 2)[1], signal.SIGKILL)
    begun = time.monotonic()
    _, error = started.communicate(timeout=60)
    assert time.monotonic() - begun < 10
    assert started.returncode != 0
    assert "a process of 2 ended with an error; what was saved is whole" in error
    assert run_folder.list_checkpoints(run)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
def test_processes_that_are_started_again_go_on_bit_for_bit(tmp_path: Path) -> None:
    whole, hurt = tmp_path / "whole", tmp_path / "hurt"
    steps = ["--steps", "400"]
    straight = jumok("train", "numbers", *steps, "--out", str(whole), *NUMBERS)
    _, error = straight.communicate(timeout=240)
    assert straight.returncode == 0, error[-2000:]
    started = jumok("train", "numbers", *steps, "--out", str(hurt), *NUMBERS, "--restarts", "3")
    os.kill(workers(hurt, 2)[0], signal.SIGKILL)
    _, error = started.communicate(timeout=240)
    assert started.returncode == 0, error[-2000:]
    assert (hurt / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    left, right = tensors(hurt, 400), tensors(whole, 400)
    assert all(torch.equal(left[key], right[key]) for key in right)
