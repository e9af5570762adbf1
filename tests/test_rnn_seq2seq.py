"""The LSTM encoder-decoder and its attentions, against plain loops; and what a decoder without attention can see."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from jumok import ArgumentError, BackendError, ShapeError
from jumok.attention import mask
from jumok.layers import RecurrentEncoder
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.tap import listen

SIZES: dict[str, Any] = {
    "vocabulary": 31, "target_vocabulary": 23, "embedding_width": 7, "width": 10, "encoder_width": 6,
    "attention_width": 5,
}  # fmt: skip
LOOKS: dict[str, dict[str, Any]] = {
    "bahdanau": {"attention": "bahdanau"},
    "dot": {"attention": "luong_dot", "encoder_width": None},
    "dot, fed": {"attention": "luong_dot", "encoder_width": None, "input_feeding": True},
    "general": {"attention": "luong_general"},
    "general, fed": {"attention": "luong_general", "input_feeding": True},
    "concat": {"attention": "luong_concat"},
    "concat, fed": {"attention": "luong_concat", "input_feeding": True},
}
KINDS = {**LOOKS, "none": {"attention": "none"}}

SOURCE = torch.randint(31, (3, 5), generator=torch.Generator().manual_seed(3))
TARGET = torch.randint(23, (3, 4), generator=torch.Generator().manual_seed(4))
RIGHT = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()
LEFT = RIGHT.flip(1)


def made(kind: str, **fields: Any) -> RNNSeq2Seq:
    """Numbers far larger than at the start of training: attention that differs from place to place, step to step."""
    model = RNNSeq2Seq(RNNSeq2SeqConfig(**{**SIZES, **KINDS[kind], **fields}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(15)
    return model.eval()


# The oracle: one row, one step, one number at a time.


def softmax(scores: list[float]) -> list[float]:
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / sum(powers) for power in powers]


def lstm_step(model: RNNSeq2Seq, inputs: Tensor, hidden: list[Tensor], memory: list[Tensor]) -> None:
    """One token further; ``hidden`` and ``memory`` have a vector a layer."""
    for layer in range(len(hidden)):
        by_input, by_state, input_bias, state_bias = (
            getattr(model.decoder, f"{part}_l{layer}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        gates = by_input @ inputs + input_bias + by_state @ hidden[layer] + state_bias
        enter, forget, new, leave = gates.chunk(4)
        memory[layer] = forget.sigmoid() * memory[layer] + enter.sigmoid() * new.tanh()
        inputs = hidden[layer] = leave.sigmoid() * memory[layer].tanh()


def one_score(model: RNNSeq2Seq, state: Tensor, source: Tensor) -> float:
    kind = model.config.attention
    if kind == "luong_dot":
        return float(sum(one * two for one, two in zip(state, source, strict=True)))
    own = model.cross.score
    if kind == "luong_general":
        return float(state @ own.matrix[0] @ source)
    if kind == "luong_concat":
        return float(own.vector[0] @ torch.tanh(own.matrix[0] @ torch.cat([state, source])))
    return float(own.vector[0] @ torch.tanh(own.query_matrix[0] @ state + own.key_matrix[0] @ source))


def look(model: RNNSeq2Seq, state: Tensor, states: Tensor, real: list[bool]) -> tuple[Tensor, list[float]]:
    places = [place for place, there in enumerate(real) if there]
    shares = softmax([one_score(model, state, states[place]) for place in places])
    context = sum(share * states[place] for share, place in zip(shares, places, strict=True))
    row = [0.0] * len(real)
    for share, place in zip(shares, places, strict=True):
        row[place] = share
    return context, row


def by_hand(model: RNNSeq2Seq, source: Tensor, target: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    encoded = model.encode(source, source_token_mask=real)
    width, layers = model.config.width, model.config.layers
    all_logits, all_rows = [], []
    for row in range(len(source)):
        states = encoded.states[row]
        bridge = model.bridge.weight @ encoded.summary[row] + model.bridge.bias
        vectors = list(bridge.split(width))
        hidden, memory = [one.tanh() for one in vectors[:layers]], vectors[layers:]
        fed = torch.zeros_like(hidden[0])
        logits, rows = [], []
        for token in target[row]:
            embedded = model.target_embedding.weight[token]
            if model.config.attention == "bahdanau":
                context, weights = look(model, hidden[-1], states, real[row].tolist())
                lstm_step(model, torch.cat([embedded, context]), hidden, memory)
                wide = model.readout.weight @ torch.cat([hidden[-1], context, embedded]) + model.readout.bias
                read = torch.stack([torch.maximum(one, two) for one, two in wide.view(-1, 2)])
            else:
                inputs = torch.cat([embedded, fed]) if model.config.input_feeding else embedded
                lstm_step(model, inputs, hidden, memory)
                context, weights = look(model, hidden[-1], states, real[row].tolist())
                read = fed = torch.tanh(model.readout.weight @ torch.cat([context, hidden[-1]]))
            logits.append(model.output.weight @ read)
            rows.append(weights)
        all_logits.append(torch.stack(logits))
        all_rows.append(rows)
    return torch.stack(all_logits), torch.tensor(all_rows, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", LOOKS)
@torch.no_grad()
def test_each_attention_is_the_plain_loop(kind: str, layers: int) -> None:
    # M8, M9
    model = made(kind, layers=layers).double()
    logits, rows = by_hand(model, SOURCE, TARGET, RIGHT)
    output = model(SOURCE, TARGET, source_token_mask=RIGHT, weights=True)
    assert torch.allclose(output.logits, logits, atol=1e-10)
    assert torch.allclose(output.weights["cross"][0], rows, atol=1e-10)
    # the weights differ from step to step and are not uniform: there was something to compare
    assert rows[0, 0].std(0).max() > 0.002 and (rows[0, 0] - 0.2).abs().max() > 0.02


@pytest.mark.parametrize("kind", LOOKS)
@torch.no_grad()
def test_weights_sum_to_one_and_are_zero_on_padding(kind: str) -> None:
    model = made(kind, layers=2)
    for real in (RIGHT, LEFT):
        (weights,) = model(SOURCE, TARGET, source_token_mask=real, weights=True).weights["cross"]
        assert weights.shape == (3, 1, 4, 5)
        assert torch.allclose(weights.sum(-1), torch.ones(3, 1, 4), atol=1e-6)
        assert (weights > 0).eq(real[:, None, None].expand(3, 1, 4, 5)).all()
    assert model(SOURCE, TARGET).weights is None


@pytest.mark.parametrize("kind", LOOKS)
@torch.no_grad()
def test_weights_depend_on_the_decoders_state(kind: str) -> None:
    # M10. The document scores with one linear map of [state; source] and no tanh: the state's part is the same number
    # for every place, and softmax takes it away.
    model = made(kind)
    encoded = model.encode(SOURCE)
    state = model.compute_first_state(encoded)
    other = replace(state, hidden=-state.hidden)
    _, one, _ = model._run_step(model.target_embedding(TARGET[:, :1]), encoded, state, True)
    _, two, _ = model._run_step(model.target_embedding(TARGET[:, :1]), encoded, other, True)
    assert (one - two).abs().max() > 0.01

    linear = torch.randn(model.config.width + model.config.source_width)

    def documents(hidden: Tensor) -> Tensor:
        pairs = torch.cat([hidden[:, None].expand(-1, 5, -1), encoded.states], -1)
        return (pairs @ linear).softmax(-1)

    assert torch.allclose(documents(state.hidden[-1]), documents(other.hidden[-1]), atol=1e-6)


@pytest.mark.parametrize("real", [RIGHT, LEFT], ids=["right", "left"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_nothing_moves_when_the_padding_changes(kind: str, layers: int, real: Tensor) -> None:
    model = made(kind, layers=layers)
    one = model(SOURCE, TARGET, source_token_mask=real).logits
    other = torch.where(real, SOURCE, (SOURCE + 11) % 31)
    assert torch.equal(one, model(other, TARGET, source_token_mask=real).logits)
    for row in range(3):
        alone = model(SOURCE[row : row + 1, real[row]], TARGET[row : row + 1]).logits
        assert torch.allclose(one[row], alone[0], atol=1e-4)
    assert not torch.allclose(one[1], model(SOURCE, TARGET).logits[1], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_nothing_moves_when_the_future_changes(kind: str) -> None:
    model = made(kind)
    later = TARGET.clone()
    later[:, 2:] = (later[:, 2:] + 7) % 23
    one, two = model(SOURCE, TARGET).logits, model(SOURCE, later).logits
    assert torch.equal(one[:, :2], two[:, :2]) and not torch.allclose(one[:, 2:], two[:, 2:])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_step_by_step_is_teacher_forcing(kind: str, layers: int) -> None:
    model = made(kind, layers=layers)
    whole = model(SOURCE, TARGET, source_token_mask=RIGHT).logits
    encoded = model.encode(SOURCE, source_token_mask=RIGHT)
    for sizes in ([1, 1, 1, 1], [2, 1, 1], [1, 3]):
        state, parts = None, []
        for part in TARGET.split(sizes, 1):
            logits, state = model.decode(part, encoded, state)
            parts.append(logits)
        assert state.length == 4
        assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_rows_can_be_chosen_between_steps(kind: str) -> None:
    model = made(kind)
    encoded = model.encode(SOURCE, source_token_mask=RIGHT)
    _, state = model.decode(TARGET[:, :2], encoded)
    rows = torch.tensor([2, 0, 0, 1])
    logits, _ = model.decode(TARGET[rows, 2:], encoded.select(rows), state.select(rows))
    straight, _ = model.decode(TARGET[:, 2:], encoded, state)
    assert torch.allclose(logits, straight[rows], atol=1e-5)


@torch.no_grad()
def test_without_attention_one_vector_is_all_the_decoder_sees() -> None:
    # B8: the bottleneck
    model = made("none")
    encoded = model.encode(SOURCE)
    assert encoded.summary.shape == (3, 6)
    other = replace(encoded, states=torch.randn_like(encoded.states))
    assert torch.equal(model.decode(TARGET, encoded)[0], model.decode(TARGET, other)[0])
    moved = replace(encoded, summary=encoded.summary + 0.1)
    assert not torch.allclose(model.decode(TARGET, encoded)[0], model.decode(TARGET, moved)[0], atol=1e-3)
    for kind in LOOKS:
        model = made(kind)
        encoded = model.encode(SOURCE)
        other = replace(encoded, states=torch.randn_like(encoded.states))
        assert not torch.allclose(model.decode(TARGET, encoded)[0], model.decode(TARGET, other)[0], atol=1e-3)
    with pytest.raises(ArgumentError, match="has no weights"):
        made("none")(SOURCE, TARGET, weights=True)


@torch.no_grad()
def test_the_last_state_is_each_directions_own() -> None:
    encoder = RecurrentEncoder(7, 6, 2)
    inputs = torch.randn(3, 5, 7)
    states, summary = encoder(inputs, LEFT)
    lengths = LEFT.sum(1)
    for row in range(3):
        first, last = 5 - int(lengths[row]), 4
        assert torch.equal(summary[row, :3], states[row, last, :3])
        assert torch.equal(summary[row, 3:], states[row, first, 3:])
        assert states[row, :first].eq(0).all()
    one_way = RecurrentEncoder(7, 5, bidirectional=False)
    states, summary = one_way(inputs)
    assert torch.equal(summary, states[:, -1])


@pytest.mark.parametrize(("kind", "calls"), [("bahdanau", 4), ("general, fed", 4), ("general", 1), ("none", 0)])
@torch.no_grad()
def test_listeners_hear_every_step(kind: str, calls: int) -> None:
    model = made(kind)
    heard: list[tuple[str, Any]] = []
    with listen(lambda site, value: (heard.append((site, value)), value)[1]):
        model(SOURCE, TARGET)
    assert {site.split(".")[0] for site, _ in heard} == ({"cross"} if calls else set())
    queries = [value for site, value in heard if site == "cross.query"]
    assert len(queries) == calls
    places = [place for site, value in heard if site == "cross.positions" for place in value[0]]
    assert places == (list(range(4)) if calls else [])
    contexts = [value for site, value in heard if site == "cross.block_output"]
    assert sum(one.shape[1] for one in contexts) == (4 if calls else 0)


@pytest.mark.parametrize("kind", LOOKS)
@torch.no_grad()
def test_one_edge_can_be_cut(kind: str) -> None:
    model = made(kind)
    before = model(SOURCE, TARGET, weights=True).weights["cross"][0]

    def cut(site: str, value: Any) -> Any:
        return ~mask.edge(query=2, key=1) if site == "cross.mask" else value

    with listen(cut):
        after = model(SOURCE, TARGET, weights=True).weights["cross"][0]
    assert torch.allclose(before[:, :, :2], after[:, :, :2])
    assert after[:, :, 2, 1].eq(0).all() and (after[:, :, [0, 1, 3]] > 0).all()
    assert torch.allclose(after.sum(-1), torch.ones(3, 1, 4), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["explicit", "blocked", "auto"])
def test_backends_and_checkpointing_give_the_same_gradients(kind: str, backend: str) -> None:
    def gradients(backend: str, checkpointing: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = made(kind, layers=2)
        model.use_backend(backend)
        model.checkpointing = checkpointing
        model(SOURCE, TARGET, source_token_mask=RIGHT).logits.square().mean().backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    one, two = gradients("explicit", False), gradients(backend, True)
    for name, gradient in one.items():
        assert gradient is not None and gradient.abs().max() > 0, name
        assert torch.allclose(gradient, two[name], rtol=1e-4, atol=1e-5), name


def test_a_backend_that_cannot_do_the_score_says_so() -> None:
    model = made("bahdanau")
    model.use_backend("sdpa")
    with pytest.raises(BackendError, match="not Additive"):
        model(SOURCE, TARGET)
    dot = made("dot")
    with torch.no_grad():
        explicit = dot(SOURCE, TARGET).logits
        dot.use_backend("sdpa")
        assert torch.allclose(dot(SOURCE, TARGET).logits, explicit, atol=1e-4)


def test_a_tied_output_is_one_parameter() -> None:
    model = made("general", tied=True, embedding_width=10)
    assert model.output is None and model(SOURCE, TARGET).logits.shape == (3, 4, 23)
    untied = made("general", embedding_width=10)
    assert untied.parameter_count - model.parameter_count == 23 * 10


def test_dropout_drops_while_training_only() -> None:
    model = made("concat, fed", dropout=0.5, layers=2)
    assert torch.equal(model(SOURCE, TARGET).logits, model(SOURCE, TARGET).logits)
    model.train()
    assert not torch.equal(model(SOURCE, TARGET).logits, model(SOURCE, TARGET).logits)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"encoder_width": 5}, "two directions share 5 numbers"),
        ({"attention": "luong_dot"}, "luong_dot multiplies decoder states"),
        ({"input_feeding": True}, "input_feeding belongs to luong's attention, not to 'bahdanau'"),
        ({"tied": True}, "embedding_width 7, but width is 10"),
        ({"end": 23}, "end is token 23, but the vocabulary has 23 tokens"),
        ({"attention": "luong"}, "must be one of none, bahdanau"),
    ],
)
def test_a_config_that_cannot_be_meant_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        RNNSeq2SeqConfig(**{**SIZES, **fields})


def test_padding_that_does_not_fit_is_refused() -> None:
    model = made("general")
    nothing = RIGHT.clone()
    nothing[1] = False
    with pytest.raises(ArgumentError, match="row 1 of the batch has only padding"):
        model(SOURCE, TARGET, source_token_mask=nothing)
    with pytest.raises(ShapeError, match=r"token_mask is \[3, 4\], tokens are \[3, 5\]"):
        model(SOURCE, TARGET, source_token_mask=RIGHT[:, :4])
    with pytest.raises(ArgumentError, match="token 42 is out of range"):
        model(SOURCE, TARGET + 23)
