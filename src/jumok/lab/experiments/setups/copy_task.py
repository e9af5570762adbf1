"""The task of copying digits, for encoder-decoders, and six of them with about the same number of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from jumok.data.batches.split import Split
from jumok.data.datasets.toy_tasks import make_repetition_examples
from jumok.models import Model
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.transformer import Transformer, TransformerConfig

from .convolutional_seq2seq import ConvolutionalConfig, ConvolutionalSeq2Seq

Tokens = Int[Tensor, "example token"]
KINDS = 10  # different digits; the next token id starts a target
VOCABULARY = KINDS + 1
START = KINDS
POOL = 2000  # different training sequences of each length
HEADS = 4  # of the Transformer with several heads
LONGEST = 1024  # tokens that a Transformer reads; its sinusoids have no parameters


class Accuracy(NamedTuple):
    """How well a model copies sequences of one length.

    Attributes:
        forced: The share of tokens that are right where the tokens before them are given.
        generated: The share of tokens that are right in greedily generated copies.
    """

    forced: float
    generated: float


def create_training_sequences(shortest: int, longest: int, seed: int) -> dict[int, Tokens]:
    """Return training sequences by their length."""
    return {length: _create_sequences(POOL, length, "train", seed) for length in range(shortest, longest + 1)}


def draw_batches(sequences: Mapping[int, Tokens], *, size: int, seed: int) -> Iterator[Tokens]:
    """Yield batches without end. All sequences of a batch have one length, which is drawn at random, so that no model
    needs padding.
    """
    generator = torch.Generator().manual_seed(seed)
    lengths = sorted(sequences)
    while True:
        pool = sequences[lengths[int(torch.randint(len(lengths), (), generator=generator))]]
        yield pool[torch.randint(len(pool), (size,), generator=generator)]


def create_held_out_sequences(count: int, length: int, seed: int) -> Tokens:
    """Return sequences that are never in a training batch."""
    return _create_sequences(count, length, "held-out", seed)


def compute_copy_loss(model: Model, sources: Tokens) -> Tensor:
    """Return the mean cross-entropy of copies, where the tokens before each token are given."""
    return cross_entropy(model(sources, shift_target(sources)).logits.flatten(0, 1), sources.flatten())


@torch.no_grad()
def measure_accuracy(model: Model, sources: Tokens) -> Accuracy:
    """Return the share of tokens that a model copies correctly."""
    predicted = model(sources, shift_target(sources)).logits.argmax(-1)
    target = shift_target(sources)[:, :1]
    for _ in range(sources.shape[1]):  # the whole target again at each step: not every model has a cache
        target = torch.cat([target, model(sources, target).logits[:, -1:].argmax(-1)], 1)
    return Accuracy(_compute_share(predicted == sources), _compute_share(target[:, 1:] == sources))


def shift_target(sources: Tokens) -> Tokens:
    """Return the inputs of the decoder for a copy: the start token, then all tokens but the last."""
    return torch.cat([torch.full((len(sources), 1), START), sources[:, :-1]], 1)


def _create_sequences(count: int, length: int, split: Split, seed: int) -> Tokens:
    pairs = make_repetition_examples(count, length, split, seed, KINDS)
    return torch.tensor([source for source, _ in pairs])


def _compute_share(is_right: Tensor) -> float:
    return float(is_right.double().mean())


def _build_lstm(attention: str, width: int, embedding_width: int) -> Model:
    return RNNSeq2Seq(
        RNNSeq2SeqConfig(
            vocabulary=VOCABULARY, embedding_width=embedding_width, width=width, attention=attention, start=START
        )
    )


def _build_transformer(heads: int) -> Model:
    return Transformer(
        TransformerConfig(
            vocabulary=VOCABULARY,
            length=LONGEST,
            width=48,
            layers=2,
            heads=heads,
            hidden=96,
            order="pre",
            start=START,
        )
    )


#: the untrained models, by name
BUILDERS: dict[str, Callable[[], Model]] = {
    "lstm": lambda: _build_lstm("none", 84, 48),
    "bahdanau": lambda: _build_lstm("bahdanau", 62, 32),
    "luong": lambda: _build_lstm("luong_general", 74, 52),
    "cnn": lambda: ConvolutionalSeq2Seq(ConvolutionalConfig(vocabulary=VOCABULARY, width=58, layers=2, start=START)),
    "single_head": lambda: _build_transformer(1),
    "multi_head": lambda: _build_transformer(HEADS),
}
