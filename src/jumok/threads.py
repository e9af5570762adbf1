"""The number of CPU threads: the rule by which training chooses it, its limits, and a context that sets it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from jumok.errors import ArgumentError

# Floating-point operations of a forward and backward pass. With less, threads wait for each other longer than they
# compute; two threads begin to pay at twice this number.
WORK_PER_THREAD = 1e9

CGROUP_ROOT = Path("/sys/fs/cgroup")


def choose_training_threads(work: float, limit: int) -> int:
    """Return the number of threads for training steps of a given size.

    The number can change the last bits of a sum, and training enlarges such differences. So it is chosen once, before
    the first step, and stored with the run; the load of the machine is not part of the rule.

    Args:
        work: The floating-point operations of one forward and backward pass.

    >>> choose_training_threads(work=1e8, limit=8), choose_training_threads(work=4e9, limit=8)
    (1, 4)
    """
    return max(1, min(limit, int(work // WORK_PER_THREAD)))


def check_threads(threads: int) -> None:
    """Refuse a number of threads above the machine's number of cores; PyTorch would crash with a very large number."""
    cores = os.cpu_count() or 1
    if not 0 <= threads <= cores:
        choices = "0 (automatic) or 1" if cores == 1 else f"0 (automatic) or 1 to {cores}"
        raise ArgumentError(
            f"threads cannot be {threads:,}: this machine has {cores} core{'s' * (cores > 1)}; choose {choices}"
        )


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with this number of threads while the context is open, then restore the number before.

    PyTorch stores the number per thread of Python, so that two threads do not change each other's. Do not keep the
    context open across a ``yield``: the caller of an unfinished generator would compute with this number.
    """
    previous = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def count_cores() -> int:
    """Return the number of cores that this process may use: its CPU affinity, limited by its container's quota."""
    # os.sched_getaffinity exists on Linux only
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read_quota()
    return cores if quota is None else max(1, min(cores, round(quota)))


def _read_quota() -> float | None:
    """Return the CPU quota of this process's control group in cores; None = unlimited."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        folder = CGROUP_ROOT
        if controllers:  # version 1: one hierarchy per set of controllers
            if "cpu" not in controllers.split(","):
                continue
            folder = CGROUP_ROOT / "cpu"
        # a quota of a parent limits its children too; inside a container only the root may be visible
        path = folder / group.lstrip("/")
        for candidate in (path, *path.parents):
            quota = _read_group_quota(candidate)
            if quota is not None:
                quotas.append(quota)
            if candidate == folder:
                break
    return min(quotas, default=None)


def _read_group_quota(group: Path) -> float | None:
    """Return the quota of one control group in cores; None = unlimited."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):  # versions 2 and 1
        try:
            words = [word for name in names for word in (group / name).read_text().split()]
            quota, period = float(words[0]), float(words[1])
        except (OSError, ValueError, IndexError):  # no such file, or "max"
            continue
        if quota > 0 and period > 0:
            return quota / period
    return None


def read_load() -> float | None:
    """Return the mean number of threads that ran or waited for a core in the last minute; None if unavailable."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has no load average
        return None
