"""The models of the experiment ``recurrence``: six encoder-decoders with about the same number of parameters."""

from __future__ import annotations

from collections.abc import Callable

from jumok.lab.bilingual_text import Text
from jumok.models import Model
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.transformer import Transformer, TransformerConfig

from .convolutional_seq2seq import ConvolutionalConfig, ConvolutionalSeq2Seq
from .copy_task import START, VOCABULARY

BOTTLENECK = "lstm"  # the model whose decoder gets a single vector of the source
RECURRENT = (BOTTLENECK, "bahdanau", "luong")
SINGLE_HEAD, MULTI_HEAD = "single_head", "multi_head"
HEADS = 4  # of the Transformer with several heads
LONGEST = 1024  # tokens that a Transformer reads; its sinusoids have no parameters

NAMES = {
    BOTTLENECK: Text("LSTM", "LSTM"),
    "bahdanau": Text("Bahdanau", "Bahdanau"),
    "luong": Text("Luong", "Luong"),
    "cnn": Text("CNN", "CNN"),
    SINGLE_HEAD: Text("1 head", "헤드 1개"),
    MULTI_HEAD: Text(f"{HEADS} heads", f"헤드 {HEADS}개"),
}
# as part of a sentence
FULL_NAMES = {
    BOTTLENECK: Text("the LSTM without attention", "어텐션이 없는 LSTM"),
    "bahdanau": Text("the LSTM with Bahdanau's attention", "Bahdanau 어텐션이 있는 LSTM"),
    "luong": Text("the LSTM with Luong's attention", "Luong 어텐션이 있는 LSTM"),
    "cnn": Text("the CNN", "CNN"),
    SINGLE_HEAD: Text("the Transformer with 1 head", "헤드가 1개인 트랜스포머"),
    MULTI_HEAD: Text(f"the Transformer with {HEADS} heads", f"헤드가 {HEADS}개인 트랜스포머"),
}
LEGEND = Text(
    "LSTM: without attention; Bahdanau, Luong: LSTMs with attention; CNN: convolutions with attention; 1 head, "
    f"{HEADS} heads: Transformers",
    f"LSTM: 어텐션 없음; Bahdanau, Luong: 어텐션이 있는 LSTM; CNN: 어텐션이 있는 합성곱; 헤드 1개, 헤드 {HEADS}개: "
    "트랜스포머",
)


def build_model(name: str) -> Model:
    """Return an untrained model for the copy task.

    Args:
        name: One of ``NAMES``.
    """
    return BUILDERS[name]()


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


BUILDERS: dict[str, Callable[[], Model]] = {
    BOTTLENECK: lambda: _build_lstm("none", 84, 48),
    "bahdanau": lambda: _build_lstm("bahdanau", 62, 32),
    "luong": lambda: _build_lstm("luong_general", 74, 52),
    "cnn": lambda: ConvolutionalSeq2Seq(ConvolutionalConfig(vocabulary=VOCABULARY, width=58, layers=2, start=START)),
    SINGLE_HEAD: lambda: _build_transformer(1),
    MULTI_HEAD: lambda: _build_transformer(HEADS),
}
