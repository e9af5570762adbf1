"""Prepare the input of a lens for a model of transformers: a text or an image, with a label for each position."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from jumok import defaults
from jumok.checkpoint.transformers_folder import LoadedTransformers, quiet_transformers
from jumok.data.images.image_files import is_image_path
from jumok.data.tokenizers.token_labels import (
    count_unknown,
    group_words,
    label_tokens,
    list_unknown_words,
    require_known_words,
)
from jumok.errors import ArgumentError, describe_type

from .labelled_input import START, LabelledInput, Words
from .model_inputs import RawInput
from .transformers_image import label_patches, read_pixels

DECODER_INPUT = "decoder_input_ids"


def prepare_transformers_input(
    loaded: LoadedTransformers, raw: RawInput, limit: int = defaults.ANSWER_TOKENS
) -> LabelledInput:
    """Convert a text or an image into model arguments with labels; an encoder-decoder generates its answer first.

    Args:
        raw: A text, or the path of an image.

    Raises:
        ArgumentError: If the input does not fit the model, or the model reads neither texts nor images.
    """
    name = str(loaded.model.main_input_name)
    if loaded.reads == "text":
        return prepare_transformers_text(loaded, _check_text(loaded, raw), limit)
    if loaded.reads == "image":
        pixels = read_pixels(loaded, raw).to(loaded.model.device)
        source = LabelledInput((pixels,), label_patches(loaded.model, pixels), names=(name,))
    else:
        raise ArgumentError(
            f"{loaded.family} reads {name}; the command line takes texts and images, and jumok.Lens(model)"
            ".run(**inputs) takes any tensors"
        )
    return _answer_if_needed(loaded, source, limit)


def prepare_transformers_text(
    loaded: LoadedTransformers, text: str, limit: int = defaults.ANSWER_TOKENS
) -> LabelledInput:
    """Convert a text into model arguments with labels. It is always read as text, even if a file has this name.

    Args:
        limit: The largest number of tokens of an answer.

    Raises:
        ArgumentError: If the text is empty or too long, or there is no tokenizer.
    """
    return _answer_if_needed(loaded, _encode_text(loaded, text), limit)


def _answer_if_needed(loaded: LoadedTransformers, source: LabelledInput, limit: int) -> LabelledInput:
    """Return the input; of an encoder-decoder with its answer."""
    arguments = inspect.signature(loaded.model.forward).parameters
    if DECODER_INPUT not in arguments or not loaded.model.config.is_encoder_decoder or not loaded.model.can_generate():
        return source
    return _generate_answer(loaded, source, limit)


def _check_text(loaded: LoadedTransformers, raw: RawInput) -> str:
    if not isinstance(raw, str):
        raise ArgumentError(f"{loaded.family} reads text, not {describe_type(raw)}")
    if is_image_path(raw):
        raise ArgumentError(f"{raw} is an image, but {loaded.family} reads text")
    return raw


def _encode_text(loaded: LoadedTransformers, text: str) -> LabelledInput:
    tokenizer = loaded.require_tokenizer()
    token_ids = tokenizer.encode(text)
    if not token_ids:
        raise ArgumentError("the text is empty; give the model an input")
    _check_tokens(loaded, token_ids)
    unknown_count = count_unknown(tokenizer, text, token_ids)
    require_known_words(tokenizer, text, unknown_count)
    return LabelledInput(
        (torch.tensor([token_ids], device=loaded.model.device),),
        label_tokens(tokenizer, token_ids),
        source_words=group_words(tokenizer, token_ids, special=False) or None,
        tokens=token_ids,
        unknown=unknown_count,
        unknown_words=list_unknown_words(tokenizer, text),
        names=(str(loaded.model.main_input_name),),
    )


def _check_tokens(loaded: LoadedTransformers, token_ids: list[int]) -> None:
    """Raise an ArgumentError for a text that is too long, or tokens that the model has no embedding for."""
    longest = getattr(loaded.model.config, "max_position_embeddings", None)
    if isinstance(longest, int) and 0 < longest < len(token_ids):
        raise ArgumentError(
            f"the text has {len(token_ids):,} tokens, but this {loaded.family} reads at most {longest:,}"
        )
    try:
        embedding = loaded.model.get_input_embeddings()
    except NotImplementedError:  # a model with several parts, such as CLIP
        return
    count = getattr(embedding, "num_embeddings", None)
    if isinstance(count, int) and max(token_ids) >= count:
        raise ArgumentError(
            f"the tokenizer gives token {max(token_ids):,}, but {loaded.family} has {count:,} tokens; it belongs to "
            "another model"
        )


def _generate_answer(loaded: LoadedTransformers, source: LabelledInput, limit: int) -> LabelledInput:
    """Generate the answer greedily, and make it the decoder's input behind the start token."""
    model, tokenizer = loaded.model, loaded.require_tokenizer()
    settings: dict[str, Any] = {"max_new_tokens": limit, "do_sample": False, "num_beams": 1}
    longest = getattr(model.config, "max_position_embeddings", None)
    if isinstance(longest, int) and longest > 1:
        settings["max_new_tokens"] = min(limit, longest - 1)  # the start token needs a position too
    if source.tokens:
        settings["attention_mask"] = torch.ones_like(source.inputs[0])
    try:
        with quiet_transformers(), torch.no_grad():
            generated: Tensor = model.generate(**{source.names[0]: source.inputs[0]}, **settings)
    except Exception as error:  # generation depends on settings of an untrusted folder
        raise ArgumentError(f"{loaded.family} cannot generate an answer: {str(error)[:300]}") from None

    start, *answer = generated[0].tolist()
    ends = _find_end_tokens(model, tokenizer.end)
    is_unfinished = not answer or answer[-1] not in ends
    while answer and answer[-1] in ends:
        answer.pop()
    words_in_answer = group_words(tokenizer, answer, special=False)
    words: Words = [(word, range(span.start + 1, span.stop + 1)) for word, span in words_in_answer]
    return LabelledInput(
        (*source.inputs, torch.tensor([[start, *answer]], device=model.device)),
        source.source,
        [START, *label_tokens(tokenizer, answer)],
        source_words=source.source_words,
        target_words=[(START, range(1)), *words],
        # The limit may cut a character in two.
        answer=tokenizer.decode(answer, special=False).replace("\N{REPLACEMENT CHARACTER}", ""),
        tokens=source.tokens,
        unknown=source.unknown,
        unknown_words=source.unknown_words,
        unfinished=is_unfinished,
        names=(*source.names, DECODER_INPUT),
    )


def _find_end_tokens(model: Any, end: int | None) -> set[int]:
    """Return the tokens that end an answer: those of the model's generation settings, and the tokenizer's."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    ends = ends if isinstance(ends, list) else [ends]
    return {token for token in (*ends, end) if isinstance(token, int)}
