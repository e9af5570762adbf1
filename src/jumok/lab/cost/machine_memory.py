"""Find out how much memory a program can still use on this machine."""

from __future__ import annotations

import os
from pathlib import Path

LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # containers, Linux


def read_available_memory() -> int | None:
    """Return the bytes of memory that are available, or None if the system does not say.

    On Linux the memory that programs can get without swapping, and at most the limit of a container; elsewhere the
    size of the memory.
    """
    sizes = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        for name in LIMIT_FILES:
            limit = Path(name)
            if limit.is_file() and (text := limit.read_text().strip()).isdigit():
                sizes.append(int(text))
    except (OSError, ValueError, IndexError):
        pass
    if not sizes and hasattr(os, "sysconf") and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= os.sysconf_names.keys():
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(sizes, default=None)
