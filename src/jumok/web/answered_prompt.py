"""A prompt with its answer, as the input of a run: the page shows its attention like that of any text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from jumok.data.tokenizers.passage_tokens import encode_passages
from jumok.errors import ArgumentError
from jumok.tasks.ask import FusionReader, PromptReader, Reader, Reading
from jumok.tasks.labelled_input import LabelledInput, label_input
from jumok.tasks.model_inputs import ModelInput

from . import messages


@dataclass(frozen=True)
class AnsweredPrompt:
    """A prompt and the answer behind it.

    Args:
        labelled: The arguments of the model: the tokens of prompt and answer, with labels.
        start: The position of the answer's first token.
        passages: For each passage, the positions of its tokens.
        locations: For each passage, where it begins in its file.
    """

    number: int
    question: str
    labelled: LabelledInput
    start: int
    passages: tuple[range, ...]
    locations: tuple[str, ...]

    def describe(self) -> messages.Answered:
        """Return what the page needs besides the labels of the positions."""
        passages = [
            messages.PromptPassage(location, (positions.start, positions.stop))
            for location, positions in zip(self.locations, self.passages, strict=True)
        ]
        return messages.Answered(self.number, passages)


def locate_passages(reader: Reader, reading: Reading) -> tuple[range, ...] | None:
    """Return the positions of each passage in what the model reads; None if the reader is of an unknown kind."""
    if isinstance(reader, PromptReader):
        return reader.build_prompt(reading.question, reading.passages).passages
    if isinstance(reader, FusionReader):
        separator = reader.model.config.separator
        token_lists = encode_passages(reader.tokenizer, separator, reading.question, reading.passages)
        ends = [*itertools.accumulate(map(len, token_lists))]
        return tuple(itertools.starmap(range, itertools.pairwise([0, *ends])))
    return None


def build_answered_prompt(number: int, reader: Reader, reading: Reading, locations: Sequence[str]) -> AnsweredPrompt:
    """Return the prompt of a reading with its answer, and where each passage begins in its file."""
    if not isinstance(reader, PromptReader):
        raise ArgumentError("only the attention of a reader that reads the passages in one prompt can be shown")
    prompt = reader.build_prompt(reading.question, reading.passages, len(reading.token_ids))
    tokens = [*prompt.token_ids, *reading.token_ids]
    model_input = ModelInput(torch.tensor([tokens], device=reader.model.device), tokens)
    labelled = label_input(reader.loaded, model_input)
    return AnsweredPrompt(number, reading.question, labelled, len(prompt.token_ids), prompt.passages, tuple(locations))
