"""Several processes on one machine: torchrun, started as it should be."""

from __future__ import annotations

import os
import subprocess
import sys


def launch_processes(processes: int, arguments: list[str], restarts: int = 0) -> int:
    """``jumok`` with these arguments in so many processes; the exit code of the run."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"),
        *(f"--max-restarts={restarts}", "-m", "jumok", *arguments),
    ]
    environment = {
        **os.environ,
        # restarted processes must not look for each other at the addresses of those that died
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        # each process its share of the cores
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes))),
    }
    return subprocess.run(command, env=environment, check=False).returncode
