"""Compute the right numbers and words of the exercises, by the code that they are about. The TOML files name them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jumok.attention import Head, MultiHead, attend, mask, score
from jumok.checkpoint import load
from jumok.data.audio.log_mel import RATE, compute_log_mel
from jumok.lab.document_examples import build_example
from jumok.layers import EncoderBlock, FeedForward, LayerNorm, RecurrentEncoder, SinusoidalPositions
from jumok.lens import Lens, effect
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.speech import FRAMES_PER_POSITION
from jumok.tasks.labelled_input import prepare_input

Numbers = Sequence[int | float]
REPEATING_TEXT = "Mary gave John a book; Mary"


# d0: the lecture


def count_encoder_numbers() -> Numbers:
    """Return how many numbers the last state and all states of an LSTM encoder are."""
    states, last = RecurrentEncoder(8, 512, bidirectional=False)(torch.zeros(1, 100, 8))
    return [last.numel(), states.numel()]


def count_scores(words: int) -> Numbers:
    """Return how many weights one head computes."""
    vectors = torch.zeros(1, 1, words, 8)
    _, weights = attend(vectors, vectors, vectors, weights=True)
    return [weights.numel()]


def find_key_of_it() -> Sequence[str]:
    """Return the word with the largest weight in the row of "it", with the random parameters of the example."""
    (weights,) = (step for step in build_example("sentence").steps if step.is_weights)
    row = weights.matrix[weights.rows.index("it")]
    return [weights.columns[int(row.argmax())]]


def encode_position_one(layout: str = "interleaved", base: float = 10_000.0) -> Numbers:
    """Return the sinusoidal encoding of position 1, four wide."""
    encoding: list[float] = SinusoidalPositions(4, base, layout)(range(1, 2))[0].tolist()
    return encoding


def find_parts_without_influence() -> Sequence[str]:
    """Change query, key and value in turn, and return the names of those that leave the weights as they are."""
    generator = torch.Generator().manual_seed(0)
    query, key, value, other = torch.randn(4, 1, 1, 3, 8, generator=generator)
    _, weights = attend(query, key, value, weights=True)
    variants = {
        "query 쿼리 Q": (other, key, value),
        "key 키 K": (query, other, value),
        "value 값 V": (query, key, other),
    }
    return [
        spelling
        for names, tensors in variants.items()
        if torch.equal(attend(*tensors, weights=True)[1], weights)
        for spelling in (*names.split(), f"{names.split()[0]}s")
    ]


def divide_weights(first: float, second: float) -> Numbers:
    """Return the difference of the scores that have these weights."""
    return [float(torch.tensor(first / second).log())]


# d1: attention for vision


def find_highlighted_token(sentence: str, word: str) -> Sequence[str]:
    """Return the Korean token that the translator's head attends to most when the next word is ``word``."""
    translator = load("translator")
    labelled = prepare_input(translator, sentence)
    with Lens(translator) as lens:
        capture = lens.run(*labelled.inputs)
    row = labelled.target.index(word) - 1
    position = int(capture.weights("decoder.1.cross", 2)[row].argmax())
    return (labelled.source[position], f"{labelled.source[position]}[{position}]")


def measure_cross_attention_shape() -> Numbers:
    """Return the shape of the weights of 5 words that attend to 16 patches."""
    patches, words = torch.zeros(1, 16, 64), torch.zeros(1, 5, 64)
    _, weights = MultiHead(64, 4)(words, patches, weights=True)
    return list(weights.shape)


def compute_softmax(scores: Sequence[float], divisor: float = 1.0, hidden: int = 0) -> Numbers:
    """Return the weights of scores, and 0 for each key that a mask hides after them."""
    weights = (torch.tensor(scores, dtype=torch.float32) / divisor).softmax(-1)
    return [*weights.tolist(), *[0.0] * hidden]


def attend_to_inverted_patch(inverted: bool, scaled: bool = True) -> Numbers:
    """Return the weights of the first patch of the page's image."""
    across = (torch.arange(8) % 2 - 0.5)[:, None].expand(8, 8)
    last = -across if inverted else across
    patches = torch.stack([across, across.T, torch.zeros(8, 8), last]).reshape(1, 1, 4, 64)
    _, weights = attend(patches if scaled else patches * 64**0.5, patches, patches, weights=True)
    return weights[0, 0, 0].tolist()


def compute_swin_ratio(side: int, window: int) -> Numbers:
    """Return how many times fewer cells windows allow than full attention."""
    first_patch = mask.blocks((window, window), grid=(side, side)).dense([0], side**2)
    return [side**2 / int(first_patch.sum())]


def find_most_important_head() -> Numbers:
    """Return layer and head with the largest effect on what tiny predicts."""
    first = effect(load("tiny"), REPEATING_TEXT)[0]
    return [int(first.layer), first.head]


# d2: the article "Transformer in Python"


def attend_among_one_hot_words(words: int, scale: float | None = None) -> Numbers:
    """Return the weight that a one-hot word puts on itself, among as many words as the vectors are wide."""
    vectors = torch.eye(words)[None, None]
    _, weights = attend(vectors, vectors, vectors, score=score.ScaledDot(scale=scale), weights=True)
    return [float(weights[0, 0, 0, 0])]


def sum_weights_of_heads() -> Numbers:
    """Return the sum of the weights of eight heads on 20 tokens."""
    _, weights = MultiHead(512, 8)(torch.zeros(1, 20, 512), weights=True)
    return [round(float(weights.detach().sum()), 3)]


def count_block_parameters() -> Numbers:
    """Return the parameters of a block of the original Transformer."""
    with torch.device("meta"):
        block = EncoderBlock(MultiHead(512, 8), FeedForward(512, 2048), norm=lambda: LayerNorm(512))
    return [sum(parameter.numel() for parameter in block.parameters())]


def find_attended_token(sentence: str, word: str) -> Sequence[str]:
    """Return the Korean token that head 2 of decoder.1.cross attends to most from an input of the decoder."""
    translator = load("translator")
    labelled = prepare_input(translator, sentence)
    with Lens(translator) as lens:
        capture = lens.run(*labelled.positional)
    row = capture.row("decoder.1.cross", 2, labelled.target.index(word))
    return [labelled.source[int(row.argmax())]]


def find_smallest_scale(gradient: float) -> Numbers:
    """Return the smallest power of two by which a small gradient must be multiplied to be above 0 in float16."""
    scale = 1
    while not float(torch.tensor(gradient * scale).half()):
        scale *= 2
    return [scale]


# d3: GPT-2's attention


def mix_values(weights: Sequence[float], values: Sequence[Sequence[float]]) -> Numbers:
    """Return the output of attention for these weights and values."""
    return (torch.tensor(weights) @ torch.tensor(values, dtype=torch.float32)).tolist()


def count_joined_parameters() -> Numbers:
    """Build one block of GPT-2 without memory, and count the parameters of its joined projection."""
    with torch.device("meta"):
        model = GPT(GPTConfig(layers=1))
    return [sum(tensor.numel() for name, tensor in model.named_parameters() if ".projection." in name)]


def find_induction_key() -> Numbers:
    """Return the position that head 0 of layer 1 of tiny attends to most from the last letter."""
    tiny = load("tiny")
    assert tiny.tokenizer is not None
    with Lens(tiny) as lens:
        capture = lens.run(tiny.tokenizer.encode(REPEATING_TEXT))
    return [float(capture.weights(layer=1, head=0)[-1].argmax())]


def compute_window_ratio(tokens: int, window: int) -> Numbers:
    """Return how many times fewer cells a causal window allows than a causal mask."""
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)
    causal = int((distance >= 0).sum())
    return [causal / int(((distance >= 0) & (distance < window)).sum())]


# d4: the study note; speech


def count_head_parameters(bias: bool) -> Numbers:
    """Return the parameters of four heads from width 64 to 16."""
    heads = [Head(64, 16, bias=bias) for _ in range(4)]
    return [sum(tensor.numel() for head in heads for tensor in head.parameters())]


def count_frames(seconds: float) -> Numbers:
    """Return the frames of the spectrogram of a recording."""
    return [compute_log_mel(torch.zeros(int(seconds * RATE))).shape[1]]


def count_positions(seconds: float) -> Numbers:
    """Return the positions of Whisper's encoder that belong to a recording."""
    return [count_frames(seconds)[0] // FRAMES_PER_POSITION]


def compute_start_of_position(position: int) -> Numbers:
    """Return the second of the audio at which a position of Whisper's encoder begins."""
    return [position * FRAMES_PER_POSITION / 100]
