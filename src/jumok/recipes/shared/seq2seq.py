"""Batches for models with a decoder, and the answers that a model generates for many inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from jumok.data.batches.batch_order import pad_sequences
from jumok.generate import beam_search, generate, greedy
from jumok.generate.decoding import CrossAttentionDecoder
from jumok.generate.loop import decode_steps
from jumok.models import EncoderDecoder, Model
from jumok.training import IGNORE_INDEX, Batch

TokenLists = Sequence[list[int]]


def pad_sources(sources: TokenLists, pad: int) -> dict[str, Tensor]:
    """Return the encoder's inputs: the padded sources, and their token mask if there is padding."""
    source, token_mask = pad_sequences(sources, pad)
    if bool(token_mask.all()):  # attention without a mask is faster
        return {"source": source}
    return {"source": source, "source_token_mask": token_mask}


def create_seq2seq_batch(
    encoder_inputs: Mapping[str, Tensor], targets: TokenLists, start: int, pad: int, answers: TokenLists | None = None
) -> Batch:
    """Return a batch in which the decoder reads the targets shifted by one position, behind the start token.

    Args:
        targets: The tokens of each example, with the end token.
        answers: What is to be predicted, with IGNORE_INDEX where nothing is; None = the targets.
    """
    decoder_inputs, _ = pad_sequences([[start, *target[:-1]] for target in targets], pad)
    predicted, _ = pad_sequences(targets if answers is None else answers, IGNORE_INDEX)
    inputs = {**encoder_inputs, "target": decoder_inputs}
    return Batch(inputs, predicted, int((predicted != IGNORE_INDEX).sum()))


def batch_by_length(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield batches of indices, shortest sequences first: sequences of similar length need little padding.

    >>> list(batch_by_length([5, 1, 3], 2))
    [[1, 2], [0]]
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    for first in range(0, len(order), size):
        yield order[first : first + size]


def generate_by_length(
    model: Model,
    prompts: TokenLists,
    *,
    limit: int | Callable[[int], int],
    ends: Collection[int] = (),
    beams: int = 1,
    size: int = 256,
) -> list[list[int]]:
    """Return the model's answer to each prompt, in the order of the prompts and without end tokens.

    Args:
        limit: The largest number of new tokens, or a function of the longest prompt in a batch that returns it.
    """
    answers: list[list[int]] = [[] for _ in prompts]
    for indices in batch_by_length([len(prompt) for prompt in prompts], size):
        batch = [prompts[index] for index in indices]
        new_tokens = limit if isinstance(limit, int) else limit(len(batch[-1]))
        if beams == 1:
            outputs = generate(model, batch, limit=new_tokens, ends=ends)
        else:
            outputs = beam_search(model, batch, beams=beams, limit=new_tokens, ends=ends)
        for index, output in zip(indices, outputs, strict=True):
            answers[index] = [token for token in output if token not in ends]
    return answers


@torch.inference_mode()
def generate_from_tensors(
    model: EncoderDecoder, inputs: Tensor, limit: int, end: int, prompt: list[int] | None = None
) -> list[list[int]]:
    """Return the greedy answer to each image or clip, without the end token; the decoder reads ``prompt`` first."""
    decoder = CrossAttentionDecoder(model, inputs.to(model.device), limit, prompt=prompt)
    answers: list[list[int]] = [[] for _ in inputs]
    for step in decode_steps(decoder, [[] for _ in inputs], limit, greedy, frozenset({end})):
        for answer, token in zip(answers, step, strict=True):
            answer += [] if token in (None, end) else [token]
    return answers
