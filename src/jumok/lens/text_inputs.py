"""Texts as inputs of a lens: the target of an encoder-decoder, the arguments of transformers, and labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.token_labels import label_tokens
from jumok.errors import ArgumentError
from jumok.models import Model

from .capture.axis_labels import Labels, check_labels_are_unambiguous, split_labels
from .capture.captured_attention import CapturedAttention
from .sites import Sites

DECODER_INPUT = "decoder_input_ids"
TARGET_ARGUMENTS = {DECODER_INPUT, "decoder_inputs_embeds", "labels"}  # a model needs one of them


class ModelArguments(NamedTuple):
    """The arguments of a model's ``forward``."""

    inputs: tuple[Any, ...]
    settings: dict[str, Any]


def name_text_pair(
    model: nn.Module,
    tokenizer: TextTokenizer | None,
    raw: tuple[Any, ...],
    prepared: tuple[Any, ...],
    settings: dict[str, Any],
) -> ModelArguments:
    """Put the text of a target behind the decoder's start token.

    For models of transformers, source and target are passed by name, as their second argument is a mask.

    Args:
        tokenizer: The tokenizer of the texts, or None.
        prepared: The same inputs as token ids and tensors.
    """
    if isinstance(model, Model):
        if len(raw) == 2 and isinstance(raw[1], str) and model.is_encoder_decoder:
            assert tokenizer is not None  # the text has been encoded
            target = _put_behind_start(model, tokenizer, raw[1]).to(prepared[1].device)
            return ModelArguments((prepared[0], target), settings)
        return ModelArguments(prepared, settings)
    if not any(isinstance(part, str) for part in raw):
        return ModelArguments(prepared, settings)
    name = type(model).__name__
    if len(raw) == 1:
        if _needs_target(model) and not settings.keys() & TARGET_ARGUMENTS:
            raise ArgumentError(f"{name} reads a source and a target; give both texts: lens.run(source, target)")
        return ModelArguments(prepared, settings)
    if len(raw) > 2 or not is_encoder_decoder(model):
        reads = "a source and a target" if is_encoder_decoder(model) else "one text"
        raise ArgumentError(
            f"{name} reads {reads}, not {len(raw)} inputs; pass other arguments by name, such as "
            'lens.run(**tokenizer(first, second, return_tensors="pt"))'
        )
    target = prepared[1]
    if isinstance(raw[1], str):
        assert tokenizer is not None  # the text has been encoded
        target = shift_target(model, tokenizer, raw[1]).to(target.device)
    source_name = str(getattr(model, "main_input_name", "input_ids"))
    return ModelArguments((), {source_name: prepared[0], DECODER_INPUT: target, **settings})


def _put_behind_start(model: Model, tokenizer: TextTokenizer, text: str) -> Tensor:
    """Return the token ids that a decoder of Jumok reads to predict a text: the start token, then the text."""
    if model.start_token is None:
        raise ArgumentError(f"this {model.family} model declares no start token, so its decoder cannot start")
    return torch.tensor([[model.start_token, *tokenizer.encode(text, special=False)]])


def is_encoder_decoder(model: nn.Module) -> bool:
    """Return whether a model reads a source and a target.

    Args:
        model: A model of Jumok or of transformers.
    """
    owner = model if isinstance(model, Model) else model.config
    return bool(getattr(owner, "is_encoder_decoder", False))


def _needs_target(model: nn.Module) -> bool:
    """Return whether a model of transformers generates an answer to a source, so that its decoder needs an input."""
    can_generate = getattr(model, "can_generate", None)
    return is_encoder_decoder(model) and callable(can_generate) and bool(can_generate())


def shift_target(model: nn.Module, tokenizer: TextTokenizer, text: str) -> Tensor:
    """Return the token ids that a decoder of transformers reads to predict a text: the start token, then the text.

    Returns:
        The token ids ``[1, length]``.
    """
    model_name = type(model).__name__
    ids, plain = tokenizer.encode(text), tokenizer.encode(text, special=False)
    if ids[-len(plain) :] == plain:
        ids = [*ids, 0 if tokenizer.end is None else tokenizer.end]  # shifting drops the last token, the end
    shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if callable(shift):
        try:
            return shift(labels=torch.tensor([ids]))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{model_name} cannot start its decoder: {str(error)[:200]}") from None
    start = find_start_token(model)
    if start is None:
        raise ArgumentError(f"{model_name} declares no start token, so its decoder cannot start; pass token ids")
    return torch.tensor([[start, *ids[:-1]]])


def find_start_token(model: nn.Module) -> int | None:
    """Return the token that the decoder of a model of transformers starts with, or None."""
    for name in ("decoder_start_token_id", "bos_token_id"):
        for settings in (getattr(model, "generation_config", None), model.config):
            token = getattr(settings, name, None)
            if isinstance(token, int):
                return token
    return None


def label_arguments(
    model: nn.Module,
    tokenizer: TextTokenizer | None,
    arguments: ModelArguments,
    attentions: Mapping[str, CapturedAttention],
) -> Labels:
    """Return the tokens of a single text as labels, or those of a source and its target; None without a tokenizer.

    Args:
        tokenizer: Its tokenizer, or None.
        arguments: The arguments of its ``forward``.
    """
    if tokenizer is None:
        return None
    inputs, settings = arguments
    if isinstance(model, Model):
        sequences = [_label_text(tokenizer, tokens) for tokens in inputs]
        if len(sequences) == 1:
            return sequences[0]
        return (sequences[0], sequences[1]) if len(sequences) == 2 and model.is_encoder_decoder else None
    source = _label_text(tokenizer, settings["input_ids"] if "input_ids" in settings else next(iter(inputs), None))
    labels: Labels = source
    if is_encoder_decoder(model):
        labels = (source, _label_text(tokenizer, settings.get(DECODER_INPUT)))
    sites = Sites(list(attentions))
    try:  # a part of the model may read something else than the text, such as an image
        check_labels_are_unambiguous(sites)
        split_labels(labels, attentions, sites)
    except ArgumentError:
        return None
    return labels


def _label_text(tokenizer: TextTokenizer, tokens: Any) -> list[str] | None:
    """Return the labels of an input that holds the token ids of one text; None for other inputs."""
    is_single_text = (
        isinstance(tokens, Tensor)
        and not (tokens.is_floating_point() or tokens.is_complex())
        and tokens.dim() == 2
        and tokens.shape[0] == 1
    )
    return label_tokens(tokenizer, tokens[0].tolist()) if is_single_text else None
