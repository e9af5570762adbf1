"""Inputs of every family without numbers, on the meta device, in the sizes that a person asks for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text
from jumok.models import Model
from jumok.models.captioner import Captioner
from jumok.models.numeric import Numeric
from jumok.models.rnn_seq2seq import RNNSeq2Seq
from jumok.models.speech import Speech

DEFAULT_TOKENS = 128  # of a model whose texts may have any length
DEFAULT_NUMBERS = 5


@dataclass(frozen=True)
class ModelInputs:
    """The inputs of one forward pass.

    Attributes:
        tensors: The arguments of the model, on the meta device.
        tokens: The number of tokens of a text, or of numbers; None for images.
    """

    tensors: tuple[Tensor, ...]
    tokens: int | None
    description: Text


def build_inputs(model: Model, tokens: int | None, batch: int) -> ModelInputs:
    """Return inputs for a model.

    Args:
        tokens: The number of tokens of each text; an encoder-decoder reads as many as it writes. None = the longest
            text of the model, or 128.
        batch: The number of texts or images.

    Raises:
        ArgumentError: If a number is out of range, or ``tokens`` is given for a model that reads images.
    """
    if batch < 1 or (tokens is not None and tokens < 1):
        raise ArgumentError(f"tokens and batch must be at least 1, not {tokens} and {batch}")
    if model.reads == "image" and not isinstance(model, Captioner):
        return _build_images(model, tokens, batch)
    if isinstance(model, Numeric):
        count = tokens or model.config.trained_length or DEFAULT_NUMBERS
        numbers = torch.zeros(batch, count, device="meta")
        # the first input of the decoder is its start vector: the target has one number less
        description = Text(f"{batch} x {count:,} numbers in and out", f"입출력 각 {batch} x {count:,}개의 수")
        return ModelInputs((numbers, numbers[:, 1:]), count, description)

    count = tokens or model.context_length or DEFAULT_TOKENS
    if model.context_length is not None and count > model.context_length:
        raise ArgumentError(f"the model reads at most {model.context_length:,} tokens, not {count:,}")
    text = torch.zeros(batch, count, dtype=torch.long, device="meta")
    if isinstance(model, Captioner):
        return _build_captions(model, text)
    if isinstance(model, Speech):
        return _build_transcripts(model, text)
    if model.is_encoder_decoder or isinstance(model, RNNSeq2Seq):
        description = Text(f"{batch} x {count:,} tokens in and out", f"입출력 각 {batch} x {count:,} 토큰")
        return ModelInputs((text, text), count, description)
    return ModelInputs((text,), count, Text(f"{batch} x {count:,} tokens", f"{batch} x {count:,} 토큰"))


def _build_images(model: Model, tokens: int | None, batch: int) -> ModelInputs:
    assert model.image_size is not None and model.image_channels is not None
    rows, columns = model.image_size
    if tokens is not None:
        raise ArgumentError(f"{model.family} reads images of {rows} x {columns} pixels, not texts; remove --tokens")
    images = torch.zeros(batch, model.image_channels, rows, columns, device="meta")
    description = Text(f"{batch} image(s) of {rows} x {columns} pixels", f"{rows} x {columns} 픽셀의 이미지 {batch}장")
    return ModelInputs((images,), None, description)


def _build_captions(model: Captioner, target: Tensor) -> ModelInputs:
    batch, count = target.shape
    config = model.config
    if config.source == "regions":
        source = torch.zeros(batch, config.regions, config.features, device="meta")
        description = Text(
            f"{batch} x {config.regions} regions in, {count:,} tokens out",
            f"입력 {batch} x 영역 {config.regions}개, 출력 {count:,} 토큰",
        )
    else:
        rows, columns = config.image
        source = torch.zeros(batch, config.channels, rows, columns, device="meta")
        description = Text(
            f"{batch} image(s) of {rows} x {columns} pixels in, {count:,} tokens out",
            f"입력 {rows} x {columns} 픽셀의 이미지 {batch}장, 출력 {count:,} 토큰",
        )
    return ModelInputs((source, target), count, description)


def _build_transcripts(model: Speech, target: Tensor) -> ModelInputs:
    batch, count = target.shape
    config = model.config
    source = torch.zeros(batch, config.mel_bins, config.frame_count, device="meta")
    seconds = config.frame_count / 100  # a frame each 10 ms
    description = Text(
        f"{batch} x {seconds:g} s of audio in, {count:,} tokens out",
        f"입력 {batch} x {seconds:g}초의 소리, 출력 {count:,} 토큰",
    )
    return ModelInputs((source, target), count, description)
