"""Prepare the input of a lens: the model's arguments, with a label for each position.

A model that answers (translation, caption, transcript, numbers) answers first, and its decoder then reads this answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from jumok import defaults
from jumok.checkpoint import Loaded
from jumok.checkpoint.transformers_folder import LoadedTransformers
from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.token_labels import REPLACEMENT, group_words, label_tokens
from jumok.errors import ArgumentError
from jumok.lens.model_facts import DECODER_INPUT
from jumok.models import Model

from .model_inputs import ModelInput, RawInput, encode_text, read_input
from .run import GenerationSettings, stream_answer_tokens
from .speech.audio_window import AudioWindow
from .speech.window_decoding import transcribe_window
from .transformers_input import generate_answer, generates_answer, label_grid, locate_patches, read_transformers_input

START = "<start>"
Words = list[tuple[str, range]]


@dataclass(frozen=True)
class LabelledInput:
    """The arguments of a model, with a label for each position."""

    inputs: tuple[Tensor, ...]  # the source, and for an encoder-decoder the target
    source: list[str]  # labels of the positions that the (only) stack or the encoder reads
    target: list[str] = field(default_factory=list)  # labels of the positions that the decoder reads
    source_words: Words | None = None  # with their positions, without special tokens; None if it is not a text
    target_words: Words | None = None  # likewise, but with the start token, whose row is that of the first word
    answer: str | None = None  # the model's answer to the source; None without a decoder
    tokens: list[int] = field(default_factory=list)  # of the source; [] if it is not a text
    unknown: int = 0  # the number of source tokens that the tokenizer does not know
    unknown_words: tuple[str, ...] = ()  # the words or characters that these tokens stand for
    warning: str = ""  # one sentence if the model was not trained on such an input
    unfinished: bool = False  # the token limit cut the answer
    names: tuple[str, ...] = ()  # of the arguments in inputs; () if they are positional
    prompt: int = 1  # positions of the target before the answer: the start token, or several special tokens
    audio: AudioWindow | None = None  # the window of a recording that the model reads
    language: str | None = None  # the code of the language of a transcript; None if the model has only one

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
        """Return the label of each position of a side, "source" or "target"."""
        return self.target if side == "target" else self.source

    def get_words(self, side: str) -> Words | None:
        """Return the words of a side, "source" or "target"; None if it is not text."""
        return self.target_words if side == "target" else self.source_words

    def list_hidden(self, side: str) -> dict[int, str]:
        """Return the positions of a side that belong to no word, with their labels: special tokens."""
        words = self.get_words(side)
        if words is None:
            return {}
        covered = {position for _, positions in words for position in positions}
        return {index: label for index, label in enumerate(self.get_labels(side)) if index not in covered}


def prepare_input(
    loaded: Loaded | LoadedTransformers,
    raw: RawInput,
    limit: int | None = None,
    *,
    begin: float = 0.0,
    literal: bool = False,
) -> LabelledInput:
    """Convert user input into model arguments with labels; a model that answers generates its answer first.

    Args:
        raw: One input, as for ``jumok.run``; a model of transformers reads a text or the path of an image.
        limit: The largest number of tokens of an answer; None for 32, or for the whole transcript of audio.
        begin: Of audio, the second at which the window that is read begins.
        literal: Read a text as text, even if a file has this name.
    """
    if isinstance(loaded, LoadedTransformers):
        return _prepare_for_transformers(loaded, raw, limit or defaults.ANSWER_TOKENS, literal)
    if literal and loaded.model.reads == "text":
        return label_input(loaded, encode_text(loaded, raw), limit)
    return label_input(loaded, read_input(loaded, raw, begin=begin), limit)


def label_input(loaded: Loaded, model_input: ModelInput, limit: int | None = None) -> LabelledInput:
    """Label the positions of a model input; a model that answers generates its answer first."""
    model = loaded.model
    if model.task == "predict":
        return _predict_numbers(model, model_input.source)
    if model_input.audio is not None:
        return _transcribe(loaded, model_input.source, model_input.audio, limit)

    if model.patch_grid is None:
        parts = [f"region {index}" for index in range(model_input.source.shape[1])]
    else:
        parts = label_grid(model.prefix_tokens, model.patch_grid)
    source = _label_source(loaded, model_input, parts)
    if model.is_encoder_decoder:
        return _generate_answer(loaded, model_input, source, limit or defaults.ANSWER_TOKENS)
    count, longest = len(model_input.token_ids), model.context_length
    if longest is not None and count > longest:
        raise ArgumentError(f"the text has {count:,} tokens, but this {loaded.family} model reads at most {longest:,}")
    return source


def _label_source(
    loaded: Loaded | LoadedTransformers, model_input: ModelInput, labels: list[str], names: tuple[str, ...] = ()
) -> LabelledInput:
    """Return an input without an answer; ``labels`` are those of an input that is not a text."""
    words = None
    token_ids = model_input.token_ids
    if token_ids:
        tokenizer = loaded.require_tokenizer()
        labels = label_tokens(tokenizer, token_ids)
        words = group_words(tokenizer, token_ids, special=False) or None
    return LabelledInput(
        (model_input.source,),
        labels,
        source_words=words,
        tokens=token_ids,
        unknown=model_input.unknown_count,
        unknown_words=model_input.unknown_words,
        names=names,
    )


def _add_answer(
    source: LabelledInput, tokenizer: TextTokenizer, prompt: list[str], target: list[int], *, special: bool = True
) -> LabelledInput:
    """Make an answer the decoder's input, behind its prompt, which has these labels.

    ``special`` says whether special tokens are part of the answer's text.
    """
    answer = target[len(prompt) :]
    words = [
        (word, range(span.start + len(prompt), span.stop + len(prompt)))
        for word, span in group_words(tokenizer, answer, special=False)
    ]
    return replace(
        source,
        inputs=(*source.inputs, torch.tensor([target], device=source.inputs[0].device)),
        target=[*prompt, *label_tokens(tokenizer, answer)],
        # the row of the last prompt token writes the first word
        target_words=[(START, range(len(prompt) - 1, len(prompt))), *words],
        # a limit may cut a character in two
        answer=tokenizer.decode(answer, special=special).replace(REPLACEMENT, ""),
        prompt=len(prompt),
    )


def _generate_answer(loaded: Loaded, model_input: ModelInput, source: LabelledInput, limit: int) -> LabelledInput:
    model = loaded.model
    if model.start_token is None:
        raise ArgumentError(f"this {loaded.family} model declares no start token, so its decoder cannot start")
    messages: list[str] = []  # the model's own limit, like the caller's, makes the answer unfinished
    answer = list(stream_answer_tokens(loaded, model_input, GenerationSettings(limit=limit), messages.append))
    is_unfinished = len(answer) == limit or bool(messages)
    if model.context_length is not None:
        answer = answer[: model.context_length - 1]  # the start token needs a position too
    labelled = _add_answer(source, loaded.require_tokenizer(), [START], [model.start_token, *answer])
    return replace(labelled, unfinished=is_unfinished)


def _prepare_for_transformers(loaded: LoadedTransformers, raw: RawInput, limit: int, literal: bool) -> LabelledInput:
    model_input = read_transformers_input(loaded, raw, literal)
    # models that merge patches have fewer positions than labels; their positions are then shown as numbers
    layout = None if model_input.token_ids else locate_patches(loaded.model, model_input.source)
    labels = [] if layout is None else label_grid(layout.prefix, layout.grid)
    source = _label_source(loaded, model_input, labels, (str(loaded.model.main_input_name),))
    if not generates_answer(loaded):
        return source
    target, is_unfinished = generate_answer(loaded, model_input, limit)
    labelled = _add_answer(source, loaded.require_tokenizer(), [START], target, special=False)
    return replace(labelled, unfinished=is_unfinished, names=(*source.names, DECODER_INPUT))


def _transcribe(loaded: Loaded, features: Tensor, audio: AudioWindow, limit: int | None) -> LabelledInput:
    tokenizer = loaded.require_tokenizer()
    transcript = transcribe_window(loaded, features)
    prompt = list(transcript.prompt)
    # the decoder's row of the last token predicts the end; a text of the model's full length has no row left for it
    target = [*prompt, *transcript.token_ids[:limit]]
    source = LabelledInput((features,), audio.label_positions(), warning=audio.note, audio=audio)
    labelled = _add_answer(source, tokenizer, label_tokens(tokenizer, prompt), target, special=False)
    return replace(
        labelled,
        answer=(labelled.answer or "").strip(),
        unfinished=len(target) - len(prompt) < len(transcript.token_ids),
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
