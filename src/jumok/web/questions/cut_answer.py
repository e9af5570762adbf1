"""Read a question again without some of its passages, and score the first answer without them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from jumok.data.tokenizers.passage_tokens import encode_passages
from jumok.errors import ArgumentError
from jumok.lens import KnockOut, Lens
from jumok.tasks.ask import FusionReader, PromptReader, Reader, Reading
from jumok.tasks.ask.reading import get_token_log_probabilities

Progress = Callable[[int, int], None]


def read_without(reader: Reader, reading: Reading, cut: Collection[int], limit: int) -> Reading:
    """Return the text that a reader writes without some passages.

    Raises:
        ArgumentError: If the model of the reader cannot write without them.
    """
    if isinstance(reader, PromptReader | FusionReader):
        return reader.read(reading.question, reading.passages, limit, cut)
    raise _explain_unknown(reader)


@torch.inference_mode()
def score_without(reader: Reader, reading: Reading, cut: Collection[int], progress: Progress | None = None) -> float:
    """Return the log-probability of a text without some passages, in nats.

    Args:
        progress: Called with the finished and all layers; an exception that it raises stops the model.

    Raises:
        ArgumentError: If the reader is of an unknown kind.
    """
    if not reading.token_ids:
        return 0.0
    if isinstance(reader, PromptReader):
        return _score_prompt(reader, reading, cut, progress)
    if isinstance(reader, FusionReader):
        return _score_fusion(reader, reading, cut)
    raise _explain_unknown(reader)


def _score_prompt(reader: PromptReader, reading: Reading, cut: Collection[int], progress: Progress | None) -> float:
    """Cut each passage by one edit of the lens in all layers, as the page does where it shows the attention."""
    answer = reading.token_ids
    prompt = reader.build_prompt(reading.question, reading.passages, len(answer))
    tokens = torch.tensor([[*prompt.token_ids, *answer[:-1]]], device=reader.model.device)
    edits = [KnockOut(key=prompt.passages[index]) for index in cut]
    with Lens(reader.loaded) as lens:
        last: dict[str, Any] = lens.facts.build_last_logits_arguments(len(answer))
        logits = lens.run(tokens, edits=edits, logits=True, progress=progress, **last).logits
    return sum(get_token_log_probabilities(logits[0, -len(answer) :], answer))


def _score_fusion(reader: FusionReader, reading: Reading, cut: Collection[int]) -> float:
    """Hide the passages from the cross-attention; the encoder reads each passage apart."""
    model, answer = reader.model, reading.token_ids
    token_lists = encode_passages(reader.tokenizer, model.config.separator, reading.question, reading.passages)
    source = torch.tensor([[token for token_ids in token_lists for token in token_ids]], device=model.device)
    is_kept = [index not in cut for index, token_ids in enumerate(token_lists) for _ in token_ids]
    target = torch.tensor([[model.config.start, *answer[:-1]]], device=model.device)
    token_mask = torch.tensor([is_kept], device=model.device)
    logits = model.decode(target, model.encode(source), source_token_mask=token_mask).logits
    assert logits is not None
    return sum(get_token_log_probabilities(logits[0], answer))


def _explain_unknown(reader: Reader) -> ArgumentError:
    return ArgumentError(f"a {type(reader).__name__} cannot leave passages out")
