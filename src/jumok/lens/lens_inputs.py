"""Convert the inputs of a lens (texts, token ids, tensors) to arguments of a model, and label their positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
import torch
from torch import Tensor, nn

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.token_labels import label_tokens
from jumok.errors import ArgumentError, JumokError
from jumok.models import Model

from .capture.captured_attention import CapturedAttention
from .capture.model_capture import Labels, check_labels_are_unambiguous, split_labels
from .model_facts import DECODER_INPUT, find_start_token, is_encoder_decoder
from .sites import Sites, is_integer

if TYPE_CHECKING:
    from .lens import Lens

TARGET_ARGUMENTS = {DECODER_INPUT, "decoder_inputs_embeds", "labels"}  # a model needs one of them
LARGEST_ID = 2**62  # token ids of torch are 64 bits


class ModelArguments(NamedTuple):
    """The arguments of a model's ``forward``."""

    inputs: tuple[Any, ...]
    settings: dict[str, Any]


def convert_inputs(lens: Lens, inputs: tuple[Any, ...], settings: dict[str, Any]) -> ModelArguments:
    """Convert inputs to arguments of the model's ``forward``; texts become token ids.

    A target text gets the decoder's start token. For models of transformers, source and target are passed by name, as
    their second argument is a mask.
    """
    model, tokenizer = lens.model, lens.tokenizer
    prepared = tuple(convert_input(lens, model_input) for model_input in inputs)
    if isinstance(model, Model):
        if len(inputs) == 2 and isinstance(inputs[1], str) and model.is_encoder_decoder:
            assert tokenizer is not None  # the text has been encoded
            if model.start_token is None:
                raise ArgumentError(f"this {model.family} model declares no start token, so its decoder cannot start")
            target = torch.tensor([[model.start_token, *tokenizer.encode(inputs[1], special=False)]])
            return ModelArguments((prepared[0], target.to(prepared[1].device)), settings)
        return ModelArguments(prepared, settings)
    if not any(isinstance(part, str) for part in inputs):
        return ModelArguments(prepared, settings)
    name = type(model).__name__
    if len(inputs) == 1:
        can_generate = getattr(model, "can_generate", None)  # then its decoder needs an input too
        generates = is_encoder_decoder(model) and callable(can_generate) and bool(can_generate())
        if generates and not settings.keys() & TARGET_ARGUMENTS:
            raise ArgumentError(f"{name} reads a source and a target; give both texts: lens.run(source, target)")
        return ModelArguments(prepared, settings)
    if len(inputs) > 2 or not is_encoder_decoder(model):
        reads = "a source and a target" if is_encoder_decoder(model) else "one text"
        raise ArgumentError(
            f"{name} reads {reads}, not {len(inputs)} inputs; pass other arguments by name, such as "
            'lens.run(**tokenizer(first, second, return_tensors="pt"))'
        )
    target = prepared[1]
    if isinstance(inputs[1], str):
        assert tokenizer is not None  # the text has been encoded
        target = encode_target(model, tokenizer, inputs[1]).to(target.device)
    source_name = str(getattr(model, "main_input_name", "input_ids"))
    return ModelArguments((), {source_name: prepared[0], DECODER_INPUT: target, **settings})


def convert_input(lens: Lens, model_input: Any) -> Any:
    """Convert one input: a text or a list of token ids becomes ``[1, length]``; tensors move to the model's device."""
    if isinstance(model_input, str):
        if lens.tokenizer is None:
            raise ArgumentError(
                "a text needs a tokenizer: create the lens from jumok.load(...) or with tokenizer=..., or pass "
                "token ids"
            )
        model_input = lens.tokenizer.encode(model_input)
        if not model_input:
            raise ArgumentError("the text is empty; give at least one token")
    if isinstance(model_input, Mapping):
        raise ArgumentError("pass a dictionary of inputs by name: lens.run(**inputs)")
    if isinstance(model_input, list | tuple):
        model_input = _convert_token_list(model_input)
    elif isinstance(model_input, numpy.ndarray):
        model_input = _convert_token_array(model_input)
    if not isinstance(model_input, Tensor):
        return model_input
    if model_input.is_meta:
        raise ArgumentError("an input is on the meta device, so it has no numbers; create it on the cpu")
    if model_input.layout is not torch.strided or model_input.is_nested or model_input.is_quantized:
        raise ArgumentError("an input is a sparse, nested or quantized tensor; a model reads dense tensors")
    if model_input.dtype in (torch.int32, torch.int64):
        if (count := lens.facts.vocabulary) is not None:
            unknown = model_input[(model_input < 0) | (model_input >= count)]
            if unknown.numel():  # torch's own error does not name the token
                raise ArgumentError(
                    f"token {int(unknown[0])} does not exist; the model has {count:,} tokens, counted from 0"
                )
        model_input = model_input[None] if model_input.dim() == 1 else model_input
    return model_input.to(next(lens.model.parameters()).device)


def _convert_token_list(tokens: list[Any] | tuple[Any, ...]) -> Tensor:
    """Convert a list of token ids to a tensor ``[length]``."""
    if any(isinstance(token, str) for token in tokens):
        raise ArgumentError("a lens reads one text at a time; pass several texts of equal length as a tensor of tokens")
    if not tokens or not all(is_integer(token) for token in tokens):
        raise ArgumentError("a list must hold the token ids of one text: integers, at least one")
    if not all(abs(token) < LARGEST_ID for token in tokens):
        raise ArgumentError("a list must hold the token ids of one text; an id is larger than any vocabulary")
    return torch.tensor(list(tokens))


def _convert_token_array(tokens: numpy.ndarray) -> Tensor:
    """Convert a numpy array of token ids to a tensor of the same shape."""
    if tokens.dtype.kind not in "iu":
        raise ArgumentError(
            f"a numpy array must hold token ids, which are integers, not {tokens.dtype}; pass other inputs as tensors: "
            "torch.from_numpy(array)"
        )
    if tokens.size and int(tokens.max()) >= LARGEST_ID:
        raise ArgumentError("a numpy array must hold token ids; an id is larger than any vocabulary")
    return torch.from_numpy(tokens.astype(numpy.int64))


def check_token_tensor(tokens: object, model: nn.Module) -> None:
    """Raise an ArgumentError if the first input of a model that reads tokens does not hold token ids."""
    if getattr(model, "reads", None) != "text" and getattr(model, "main_input_name", None) != "input_ids":
        return
    if not isinstance(tokens, Tensor):
        kind = type(tokens).__name__
        raise ArgumentError(f"this model reads token ids: a text, a list of integers or a tensor, not a {kind}")
    if tokens.dtype not in (torch.int32, torch.int64) or not tokens.dim() or not tokens.numel():
        raise ArgumentError(
            f"this model reads token ids, integers (torch.int64) [batch, length] with at least one token, not "
            f"{str(tokens.dtype).removeprefix('torch.')} {list(tokens.shape)}"
        )


def encode_target(model: nn.Module, tokenizer: TextTokenizer, text: str) -> Tensor:
    """Return the token ids ``[1, length]`` that a decoder of transformers reads to predict a text, behind its start."""
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


def label_arguments(
    model: nn.Module,
    tokenizer: TextTokenizer | None,
    arguments: ModelArguments,
    attentions: Mapping[str, CapturedAttention],
) -> Labels:
    """Return the tokens of a single text as labels, or those of a source and its target; None without a tokenizer."""
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


@contextmanager
def explain_index_errors(model: nn.Module, context_length: int | None) -> Iterator[None]:
    """Explain torch's "index out of range in self", which models of transformers raise for long texts."""
    try:
        yield
    except IndexError as error:
        if isinstance(model, Model) or context_length is None:
            raise
        raise ArgumentError(
            f"{type(model).__name__} reads at most {context_length:,} positions; "
            "the input is longer, or contains an unknown token"
        ) from error


@contextmanager
def explain_failures(model: nn.Module) -> Iterator[None]:
    """Turn errors inside a model of transformers into one sentence: it may read more than a text or an image."""
    try:
        yield
    except (JumokError, OSError):
        raise
    except Exception as error:
        if isinstance(model, Model):
            raise
        raise ArgumentError(
            f"{type(model).__name__} cannot run on this input: {str(error)[:300]}; jumok.Lens(model).run(**inputs) "
            "takes any tensors"
        ) from error
