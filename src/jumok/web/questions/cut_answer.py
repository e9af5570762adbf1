"""Read a question again without some of its passages, and score the first answer without them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from jumok.lens import KnockOut, Lens
from jumok.tasks.ask import PromptReader, Reader, Reading
from jumok.tasks.ask.reading import get_token_log_probabilities

Progress = Callable[[int, int], None]


def read_without(reader: Reader, reading: Reading, cut: Collection[int], limit: int) -> Reading:
    """Return the text that a reader writes without some passages.

    Args:
        reader: The reader.
        reading: The text that it wrote with all passages.
        cut: The indices of the passages that are cut.
        limit: The largest number of tokens.

    Raises:
        ArgumentError: If the model of the reader cannot write without them.
    """
    if isinstance(reader, PromptReader):
        return reader.read(reading.question, reading.passages, limit, cut)
    return reader.read(reading.question, _list_others(reading, cut), limit)


@torch.inference_mode()
def score_without(reader: Reader, reading: Reading, cut: Collection[int], progress: Progress | None = None) -> float:
    """Return the log-probability of a text without some passages, in nats.

    In a prompt, each passage is cut by one edit of the lens, ``KnockOut(key=its positions)`` in all layers. A reader
    that encodes passages apart reads the other passages only, which is the same.

    Args:
        reader: The reader.
        reading: The text, with its question and passages.
        cut: The indices of the passages that are cut.
        progress: Called with the finished and all layers; an exception that it raises stops the model.
    """
    if not reading.token_ids:
        return 0.0
    if not isinstance(reader, PromptReader):
        scored = reader.score(reading.question, _list_others(reading, cut), reading.token_ids)
        return sum(scored.log_probabilities)
    answer = reading.token_ids
    prompt = reader.build_prompt(reading.question, reading.passages, len(answer))
    tokens = torch.tensor([[*prompt.token_ids, *answer[:-1]]], device=reader.model.device)
    edits = [KnockOut(key=prompt.passages[index]) for index in cut]
    with Lens(reader.loaded) as lens:
        last: dict[str, Any] = lens.facts.build_last_logits_arguments(len(answer))
        logits = lens.run(tokens, edits=edits, logits=True, progress=progress, **last).logits
    return sum(get_token_log_probabilities(logits[0, -len(answer) :], answer))


def _list_others(reading: Reading, cut: Collection[int]) -> list[str]:
    return [passage for index, passage in enumerate(reading.passages) if index not in cut]
