"""Count the CPU cores that this process may use, and those that other processes use now."""

from __future__ import annotations

import os
import time
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
LOAD_FILE = Path("/proc/loadavg")
SAMPLES = 50  # of the number of running threads
SAMPLE_SECONDS = 0.005  # between two samples


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


def count_busy_cores() -> float:
    """Return how many cores the other threads of this machine use now; 0 if the system does not say.

    Linux counts the running threads: the mean of a quarter of a second. Elsewhere the load of the last minute is
    returned, which includes this process.
    """
    counts = []
    for _ in range(SAMPLES):
        try:
            counts.append(int(LOAD_FILE.read_text().split()[3].partition("/")[0]))
        except (OSError, ValueError, IndexError):
            return read_load() or 0.0
        time.sleep(SAMPLE_SECONDS)
    return sum(counts) / len(counts) - 1  # this thread runs while it reads the file
