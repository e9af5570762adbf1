"""The residual streams in a saved file: the answers to the ask ``layers``, for every token."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import messages
from .answers.layer_stream import describe_layers
from .inspection import Inspection
from .messages import encode_json
from .opened_model import Pass
from .saved_format import Piece
from .saved_maps import Blob

MAX_VECTORS = 1000  # positions x blocks: about 6 seconds for SmolLM2, whose vocabulary is large


def store_layers(
    inspection: Inspection, passes: Mapping[messages.Pass, Pass | None], blob: Blob, report: Callable[[], None]
) -> dict[messages.Pass, dict[messages.Sequence, Piece] | None]:
    """Store the answers of short inputs; a sequence that is too long, or has no residual stream, is left out."""
    return {
        name: None if shown is None else _store_pass(inspection, shown, blob, report) for name, shown in passes.items()
    }


def _store_pass(
    inspection: Inspection, shown: Pass, blob: Blob, report: Callable[[], None]
) -> dict[messages.Sequence, Piece]:
    lengths: dict[messages.Sequence, int] = {
        "source": len(inspection.labelled.source),
        "target": len(inspection.labelled.target),
    }
    pieces = {}
    for sequence, length in lengths.items():
        if not 0 < length <= MAX_VECTORS:
            continue
        blocks = len(describe_layers(inspection, shown, sequence, length - 1).layers)
        if not 0 < length * blocks <= MAX_VECTORS:
            continue
        answers = []
        for position in range(length):
            report()
            answers.append(describe_layers(inspection, shown, sequence, position))
        pieces[sequence] = blob.add(encode_json(answers))
    return pieces
