"""The right numbers, words and functions of the exercises, computed by the code that they are about.

The TOML files name them, and the wrong functions that people write.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jumok.attention import Head, MultiHead, attend, mask, score
from jumok.attention.projection import split_heads
from jumok.checkpoint import load
from jumok.data.audio.log_mel import RATE, compute_log_mel
from jumok.lab.steps.document_examples import build_example
from jumok.layers import EncoderBlock, FeedForward, LayerNorm, RecurrentEncoder, SinusoidalPositions
from jumok.layers.token_inputs import average_tokens as average_tokens
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


# d0-8: multi_head(x, wq, wk, wv, wo)


def project_and_attend(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    """Return multi-head attention with one matrix for each head."""
    output = attend(*(x[:, None] @ matrices for matrices in (wq, wk, wv)))
    assert isinstance(output, Tensor)
    return output.transpose(1, 2).flatten(2) @ wo


def _attend_by_formula(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, divisor: float) -> Tensor:
    query, key, value = (x[:, None] @ matrices for matrices in (wq, wk, wv))
    return (query @ key.mT / divisor).softmax(-1) @ value


def divide_by_width(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    """Divide the scores by the square root of the width of the input."""
    return _attend_by_formula(x, wq, wk, wv, x.shape[-1] ** 0.5).transpose(1, 2).flatten(2) @ wo


def do_not_divide(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    """Leave out the scale."""
    return _attend_by_formula(x, wq, wk, wv, 1.0).transpose(1, 2).flatten(2) @ wo


def leave_out_output_matrix(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    """Join the heads without the product with wo."""
    return _attend_by_formula(x, wq, wk, wv, wq.shape[-1] ** 0.5).transpose(1, 2).flatten(2)


def reshape_without_transpose(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    """Mix the heads of different words."""
    return _attend_by_formula(x, wq, wk, wv, wq.shape[-1] ** 0.5).reshape(*x.shape[:2], -1) @ wo


def create_projection_calls() -> list[tuple[Tensor, ...]]:
    """Return the lecture's sizes (width 8, 2 heads of 4), and others with two rows in the batch."""
    generator = torch.Generator().manual_seed(0)
    sizes = ((1, 3, 8, 2, 4), (2, 5, 6, 3, 2))
    return [
        (
            torch.randn(batch, length, width, generator=generator),
            *torch.randn(3, heads, width, head_width, generator=generator),
            torch.randn(heads * head_width, width, generator=generator),
        )
        for batch, length, width, heads, head_width in sizes
    ]


# d1-4: multi_head_attention(query, key, value, heads)


def attend_in_heads(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Split, attend and join."""
    output = attend(*(split_heads(tensor, heads) for tensor in (q, k, v)))
    return output.transpose(1, 2).flatten(2)


def attend_in_one_head(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Attend in one head over the full width."""
    return attend_in_heads(q, k, v, 1)


def scale_by_full_width(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Divide the scores by the square root of the width of all heads."""
    return attend_in_heads(q / heads**0.5, k, v, heads)


def split_length(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Cut across the positions instead of the width."""
    batch, length, width = q.shape
    parts = (tensor.reshape(batch, heads, length, width // heads) for tensor in (q, k, v))
    return attend(*parts).reshape(batch, length, width)


def join_without_transpose(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Join the heads in the wrong order."""
    return attend(*(split_heads(tensor, heads) for tensor in (q, k, v))).reshape(q.shape)


def compare_heads_of_a_patch(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Let the heads of one position attend to each other."""
    batch, length, width = q.shape
    parts = (tensor.view(batch, length, heads, width // heads) for tensor in (q, k, v))
    return attend(*parts).flatten(2)


def create_head_calls() -> list[tuple[Tensor, Tensor, Tensor, int]]:
    """Return queries, keys and values for 2 and for 3 heads."""
    generator = torch.Generator().manual_seed(0)
    calls = []
    for batch, length, width, heads in ((1, 4, 6, 2), (2, 5, 21, 3)):
        q, k, v = torch.randn(3, batch, length, width, generator=generator)
        calls.append((q, k, v, heads))
    return calls


# d2-3: single_head(inputs, w_query, w_key, w_value)


def attend_with_one_head(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and the weights of one head."""
    output, weights = attend(*((x @ matrix)[:, None] for matrix in (wq, wk, wv)), weights=True)
    return output[:, 0], weights[:, 0]


def leave_out_scale(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out the scale."""
    weights = ((x @ wq) @ (x @ wk).mT).softmax(-1)
    return weights @ x @ wv, weights


def scale_by_input_width(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> tuple[Tensor, Tensor]:
    """Divide the scores by the square root of the width of the input."""
    weights = ((x @ wq) @ (x @ wk).mT / x.shape[-1] ** 0.5).softmax(-1)
    return weights @ x @ wv, weights


def normalize_columns(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> tuple[Tensor, Tensor]:
    """Apply the softmax over the queries."""
    weights = ((x @ wq) @ (x @ wk).mT / wk.shape[-1] ** 0.5).softmax(-2)
    return weights @ x @ wv, weights


def create_single_head_calls() -> list[tuple[Tensor, ...]]:
    """Return inputs and matrices; in the second call the values have another width."""
    generator = torch.Generator().manual_seed(0)
    calls = []
    for batch, length, width, head_width, value_width in ((1, 3, 8, 4, 4), (2, 5, 7, 3, 2)):
        inputs = torch.randn(batch, length, width, generator=generator)
        widths = (head_width, head_width, value_width)
        calls.append((inputs, *(torch.randn(width, size, generator=generator) for size in widths)))
    return calls


# d2-7: average_tokens(hidden, token_mask)


def average_all_tokens(hidden: Tensor, token_mask: Tensor) -> Tensor:
    """Count padding in the mean."""
    return hidden.mean(1)


def divide_by_length(hidden: Tensor, token_mask: Tensor) -> Tensor:
    """Divide the sum of the real tokens by the length with padding."""
    return (hidden * token_mask[..., None]).sum(1) / hidden.shape[1]


def create_padded_batches() -> list[tuple[Tensor, Tensor]]:
    """Return a batch that is padded on the right, and one on the left."""
    generator = torch.Generator().manual_seed(0)
    token_mask = torch.arange(4) < torch.tensor([[4], [2]])
    right_padded = (torch.randn(2, 4, 3, generator=generator), token_mask)
    left_padded = (torch.randn(2, 4, 5, generator=generator), token_mask.flip(1))
    return [right_padded, left_padded]


# d3-8: causal_attention(query, key, value)


def attend_causally(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and the weights under a causal mask."""
    output, weights = attend(*(tensor[:, None] for tensor in (q, k, v)), mask=mask.causal, weights=True)
    return output[:, 0], weights[:, 0]


def attend_everywhere(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out the mask."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return weights @ v, weights


def attend_causally_unscaled(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out the scale."""
    scores = q @ k.mT
    weights = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf")).softmax(-1)
    return weights @ v, weights


def mask_after_softmax(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Set the weights of the future to 0."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).tril()
    return weights @ v, weights


def fill_with_zero(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Set the scores of the future to 0."""
    weights = (q @ k.mT / q.shape[-1] ** 0.5).tril().softmax(-1)
    return weights @ v, weights


def create_attention_calls() -> list[tuple[Tensor, ...]]:
    """Return queries, keys and values of two sizes."""
    generator = torch.Generator().manual_seed(0)
    return [tuple(torch.randn(3, *shape, generator=generator)) for shape in ((1, 4, 8), (2, 5, 3))]
