"""Prepare the input of a lens: the model's arguments, with a label for each position.

A model that answers (translation, caption, transcript, numbers) answers first, and its decoder then reads this answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from jumok import defaults
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.token_labels import group_words, label_tokens
from jumok.errors import ArgumentError
from jumok.models import Model

from .generate_text import GenerationSettings, stream_answer_tokens
from .model_inputs import ModelInput, RawInput, read_input
from .speech.audio_window import AudioWindow
from .speech.window_decoding import transcribe_window

START = "<start>"
Words = list[tuple[str, range]]


@dataclass(frozen=True)
class LabelledInput:
    """The arguments of a model, with a label for each position.

    Args:
        inputs: The model's arguments: the source, and for an encoder-decoder the target.
        source: Labels of the positions that the (only) stack or the encoder reads.
        target: Labels of the positions that the decoder reads; [] without a decoder.
        source_words: Words of the source and their positions, without special tokens; None if it has none.
        target_words: Words of the target and their positions, without special tokens except the start token, whose row
            is that of the first word; None if it is not a text.
        answer: The model's answer to the source; None without a decoder.
        tokens: Token ids of the source; [] if it is not a text.
        unknown: The number of source tokens that the tokenizer does not know.
        unknown_words: The words or characters that these tokens stand for.
        warning: One sentence if the model was not trained on such an input; otherwise "".
        unfinished: True if the token limit cut the answer.
        names: The names of the arguments in ``inputs``; () if they are positional.
        prompt: How many positions of the target come before the answer: the start token, or several special tokens.
        audio: The window of a recording that the model reads; None for other inputs.
        language: The code of the language of a transcript; None if the model has only one.
    """

    inputs: tuple[Tensor, ...]
    source: list[str]
    target: list[str] = field(default_factory=list)
    source_words: Words | None = None
    target_words: Words | None = None
    answer: str | None = None
    tokens: list[int] = field(default_factory=list)
    unknown: int = 0
    unknown_words: tuple[str, ...] = ()
    warning: str = ""
    unfinished: bool = False
    names: tuple[str, ...] = ()
    prompt: int = 1
    audio: AudioWindow | None = None
    language: str | None = None

    @property
    def answer_length(self) -> int:
        """The number of positions of the answer that the decoder reads."""
        return max(0, len(self.target) - self.prompt)

    @property
    def positional(self) -> tuple[Tensor, ...]:
        """The arguments that are passed by position."""
        return () if self.names else self.inputs

    @property
    def named(self) -> dict[str, Any]:
        """The arguments that are passed by name, as models of transformers take them."""
        return dict(zip(self.names, self.inputs, strict=True)) if self.names else {}

    def get_labels(self, side: str) -> list[str]:
        """Return the label of each position of a side.

        Args:
            side: "source" or "target".
        """
        return self.target if side == "target" else self.source

    def get_words(self, side: str) -> Words | None:
        """Return the words of a side; None if it is not text.

        Args:
            side: "source" or "target".
        """
        return self.target_words if side == "target" else self.source_words

    def list_hidden(self, side: str) -> dict[int, str]:
        """Return the positions of a side that belong to no word, with their labels: special tokens.

        Args:
            side: "source" or "target".
        """
        words = self.get_words(side)
        if words is None:
            return {}
        covered = {position for _, positions in words for position in positions}
        return {index: label for index, label in enumerate(self.get_labels(side)) if index not in covered}


def prepare_input(loaded: Loaded, raw: RawInput, limit: int | None = None, *, begin: float = 0.0) -> LabelledInput:
    """Convert user input into model arguments with labels; a model that answers generates its answer first.

    Args:
        raw: One input, as for ``jumok.run``.
        limit: The largest number of tokens of an answer; None for 32, or for the whole transcript of audio.
        begin: Of audio, the second at which the window that is read begins.

    Raises:
        ArgumentError: If the input does not fit the model, or a text exceeds its context length.
    """
    return label_input(loaded, read_input(loaded, raw, begin=begin), limit)


def label_input(loaded: Loaded, model_input: ModelInput, limit: int | None = None) -> LabelledInput:
    """Label the positions of a model input; a model that answers generates its answer first.

    Args:
        model_input: The input, as ``read_input`` or ``encode_text`` returns it.
        limit: The largest number of tokens of an answer; None for 32, or for the whole transcript of audio.

    Raises:
        ArgumentError: If a text exceeds the model's context length.
    """
    if loaded.model.task == "predict":
        return _predict_numbers(loaded.model, model_input.source)
    if model_input.audio is not None:
        return _transcribe(loaded, model_input.source, model_input.audio, limit)

    labels = _label_source(loaded, model_input)
    words = None
    if model_input.token_ids:
        words = group_words(loaded.require_tokenizer(), model_input.token_ids, special=False) or None
    if loaded.model.is_encoder_decoder:
        return _generate_answer(loaded, model_input, labels, words, limit or defaults.ANSWER_TOKENS)

    count, longest = len(model_input.token_ids), loaded.model.context_length
    if longest is not None and count > longest:
        raise ArgumentError(f"the text has {count:,} tokens, but this {loaded.family} model reads at most {longest:,}")
    return LabelledInput(
        (model_input.source,),
        labels,
        source_words=words,
        tokens=model_input.token_ids,
        unknown=model_input.unknown_count,
        unknown_words=model_input.unknown_words,
    )


def _generate_answer(
    loaded: Loaded, model_input: ModelInput, labels: list[str], words: Words | None, limit: int
) -> LabelledInput:
    """Generate the answer greedily and make it the decoder's input, behind the start token."""
    model, tokenizer = loaded.model, loaded.require_tokenizer()
    if model.start_token is None:
        raise ArgumentError(f"this {loaded.family} model declares no start token, so its decoder cannot start")

    messages: list[str] = []  # the model's own limit, like the caller's, makes the answer unfinished
    answer = list(stream_answer_tokens(loaded, model_input, GenerationSettings(limit=limit), messages.append))
    is_unfinished = len(answer) == limit or bool(messages)
    if model.context_length is not None:
        answer = answer[: model.context_length - 1]  # the start token needs a position too

    words_in_answer = group_words(tokenizer, answer, special=False)
    answer_words = [(word, range(span.start + 1, span.stop + 1)) for word, span in words_in_answer]
    return LabelledInput(
        (model_input.source, torch.tensor([[model.start_token, *answer]], device=model.device)),
        labels,
        [START, *label_tokens(tokenizer, answer)],
        source_words=words,
        target_words=[(START, range(1)), *answer_words],
        # The limit may cut a character in two.
        answer=tokenizer.decode(answer).replace("\N{REPLACEMENT CHARACTER}", ""),
        tokens=model_input.token_ids,
        unknown=model_input.unknown_count,
        unknown_words=model_input.unknown_words,
        unfinished=is_unfinished,
    )


def _transcribe(loaded: Loaded, features: Tensor, audio: AudioWindow, limit: int | None) -> LabelledInput:
    """Transcribe a window of audio, and make the transcript the decoder's input, behind its prompt."""
    tokenizer = loaded.require_tokenizer()
    transcript = transcribe_window(loaded, features)
    prompt = len(transcript.prompt)
    # the decoder's row of the last token predicts the end; a text of the model's full length has no row left for it
    answer = list(transcript.token_ids[:limit])
    token_ids = [*transcript.prompt, *answer]
    words = [(word, range(span.start + prompt, span.stop + prompt)) for word, span in group_words(tokenizer, answer)]
    return LabelledInput(
        (features, torch.tensor([token_ids], device=features.device)),
        audio.label_positions(),
        label_tokens(tokenizer, token_ids),
        # the row of the last prompt token writes the first word
        target_words=[(START, range(prompt - 1, prompt)), *words],
        answer=tokenizer.decode(answer, special=False).strip().replace("\N{REPLACEMENT CHARACTER}", ""),
        warning=audio.note,
        unfinished=len(answer) < len(transcript.token_ids),
        prompt=prompt,
        audio=audio,
        language=transcript.language,
    )


def _predict_numbers(model: Model, source: Tensor) -> LabelledInput:
    with torch.inference_mode():
        predicted = model.predict(source, source.shape[1])
    source_labels = [f"{number:g}" for number in source[0].tolist()]
    answer_labels = [f"{number:g}" for number in predicted[0].tolist()]
    # The decoder reads its own earlier numbers, so it never reads the last one.
    return LabelledInput(
        (source, predicted[:, :-1].clone()),
        source_labels,
        [START, *answer_labels[:-1]],
        answer=" ".join(answer_labels),
        warning=model.describe_unlearned(source),
    )


def _label_source(loaded: Loaded, model_input: ModelInput) -> list[str]:
    """Return a label for each source position: tokens, region numbers, or rows and columns of patches (from 1)."""
    model = loaded.model
    if model_input.token_ids:
        return label_tokens(loaded.require_tokenizer(), model_input.token_ids)
    if model.patch_grid is None:
        return [f"region {index}" for index in range(model_input.source.shape[1])]
    rows, columns = model.patch_grid
    patches = [f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns)]
    return [*model.prefix_tokens, *patches]
