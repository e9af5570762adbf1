"""The number of CPU threads: a rule for training, a short measurement elsewhere; the caller's setting is restored.

PyTorch divides a product over all cores and waits for the slowest. Beside another busy process that wait can take
longer than the product, so that one thread is several times faster than two.
"""

from .cores import count_busy_cores, count_cores, read_load
from .measurement import count_rows, step_with_fastest_threads, use_fastest_threads
from .rule import choose_training_threads, limit_to_free_cores
from .setting import check_threads, use_threads
from .slowdown import SlowdownWatch

__all__ = [
    "SlowdownWatch",
    "check_threads",
    "choose_training_threads",
    "count_busy_cores",
    "count_cores",
    "count_rows",
    "limit_to_free_cores",
    "read_load",
    "step_with_fastest_threads",
    "use_fastest_threads",
    "use_threads",
]
