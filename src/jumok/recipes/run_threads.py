"""The number of threads of a resumed run: the stored one, so that it continues bit for bit, or another on request."""

from __future__ import annotations

import os
from collections.abc import Callable


def choose_resumed_threads(stored: int | None, requested: int | None, report: Callable[[str], None]) -> dict[str, int]:
    """Return the field ``threads`` of a resumed run; empty if there is neither a stored nor a requested number.

    Args:
        requested: The user's number, 0 = by the rule for new runs; None = the stored number.
    """
    if stored is None:
        return {} if requested is None else {"threads": requested}

    threads = min(stored, os.cpu_count() or 1) if requested is None else requested
    if threads not in (0, stored):
        reason = "" if requested is not None else ", as this machine has no more cores"
        report(
            f"continuing with {threads} thread{'s' * (threads > 1)} instead of {stored}{reason}; "
            "the results will no longer be equal bit for bit"
        )
    return {"threads": threads}
