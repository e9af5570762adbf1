"""Start several training processes on one machine with torchrun."""

from __future__ import annotations

import os
import subprocess
import sys


def launch_processes(processes: int, arguments: list[str], restarts: int = 0) -> int:
    """Run ``jumok`` in several processes, and return the exit code.

    Args:
        processes: The number of processes.
        arguments: The command line of each process, after ``jumok``.
        restarts: How often all processes are started again when one dies.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    options = [f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    threads = max(1, (os.cpu_count() or 1) // processes)
    environment = {
        **os.environ,
        # restarted processes must not connect to the addresses of those that died
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        # the processes share the cores
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
    }
    command = [*torchrun, *options, "-m", "jumok", *arguments]
    return subprocess.run(command, env=environment, check=False).returncode
