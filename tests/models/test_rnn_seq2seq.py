"""Compare the LSTM encoder-decoder and its attentions with plain loops, and check what the decoder depends on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from jumok import ArgumentError, BackendError, ShapeError
from jumok.attention import mask
from jumok.attention.weights import record_weights
from jumok.layers import RecurrentEncoder
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.tap import listen

SIZES: dict[str, Any] = {
    "vocabulary": 31, "target_vocabulary": 23, "embedding_width": 7, "width": 10, "encoder_width": 6,
    "attention_width": 5,
}  # fmt: skip
ATTENTIONS: dict[str, dict[str, Any]] = {
    "bahdanau": {"attention": "bahdanau"},
    "dot": {"attention": "luong_dot", "encoder_width": None},
    "dot, fed": {"attention": "luong_dot", "encoder_width": None, "input_feeding": True},
    "general": {"attention": "luong_general"},
    "general, fed": {"attention": "luong_general", "input_feeding": True},
    "concat": {"attention": "luong_concat"},
    "concat, fed": {"attention": "luong_concat", "input_feeding": True},
}
KINDS = {**ATTENTIONS, "none": {"attention": "none"}}

SOURCE = torch.randint(31, (3, 5), generator=torch.Generator().manual_seed(3))
TARGET = torch.randint(23, (3, 4), generator=torch.Generator().manual_seed(4))
RIGHT = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()
LEFT = RIGHT.flip(1)


def build_model(kind: str, **fields: Any) -> RNNSeq2Seq:
    """Build a model with large parameters, so that attention differs between positions and steps."""
    model = RNNSeq2Seq(RNNSeq2SeqConfig(**{**SIZES, **KINDS[kind], **fields}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(15)
    return model.eval()


# The reference: one row, one step and one number at a time.


def softmax(scores: list[float]) -> list[float]:
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / sum(powers) for power in powers]


def step_lstm(model: RNNSeq2Seq, inputs: Tensor, hidden: list[Tensor], memory: list[Tensor]) -> None:
    """Advance by one token; ``hidden`` and ``memory`` have a vector per layer and are changed in place."""
    for layer in range(len(hidden)):
        by_input, by_state, input_bias, state_bias = (
            getattr(model.decoder, f"{part}_l{layer}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        gates = by_input @ inputs + input_bias + by_state @ hidden[layer] + state_bias
        enter, forget, new, leave = gates.chunk(4)
        memory[layer] = forget.sigmoid() * memory[layer] + enter.sigmoid() * new.tanh()
        inputs = hidden[layer] = leave.sigmoid() * memory[layer].tanh()


def compute_score(model: RNNSeq2Seq, state: Tensor, source: Tensor) -> float:
    kind = model.config.attention
    if kind == "luong_dot":
        return float(sum(first * second for first, second in zip(state, source, strict=True)))
    parameters = model.cross.score
    if kind == "luong_general":
        return float(state @ parameters.matrix[0] @ source)
    if kind == "luong_concat":
        return float(parameters.vector[0] @ torch.tanh(parameters.matrix[0] @ torch.cat([state, source])))
    return float(
        parameters.vector[0] @ torch.tanh(parameters.query_matrix[0] @ state + parameters.key_matrix[0] @ source)
    )


def attend_by_hand(
    model: RNNSeq2Seq, state: Tensor, states: Tensor, token_mask: list[bool]
) -> tuple[Tensor, list[float]]:
    positions = [position for position, is_real in enumerate(token_mask) if is_real]
    shares = softmax([compute_score(model, state, states[position]) for position in positions])
    context = sum(share * states[position] for share, position in zip(shares, positions, strict=True))
    row = [0.0] * len(token_mask)
    for share, position in zip(shares, positions, strict=True):
        row[position] = share
    return context, row


def decode_by_hand(model: RNNSeq2Seq, source: Tensor, target: Tensor, token_mask: Tensor) -> tuple[Tensor, Tensor]:
    encoded = model.encode(source, source_token_mask=token_mask)
    width, layers = model.config.width, model.config.layers
    all_logits, all_rows = [], []
    for row in range(len(source)):
        states = encoded.states[row]
        bridge = model.bridge.weight @ encoded.summary[row] + model.bridge.bias
        vectors = list(bridge.split(width))
        hidden, memory = [first.tanh() for first in vectors[:layers]], vectors[layers:]
        previous_readout = torch.zeros_like(hidden[0])
        logits, rows = [], []
        for token in target[row]:
            embedded = model.target_embedding.weight[token]
            if model.config.attention == "bahdanau":
                context, weights = attend_by_hand(model, hidden[-1], states, token_mask[row].tolist())
                step_lstm(model, torch.cat([embedded, context]), hidden, memory)
                wide = model.readout.weight @ torch.cat([hidden[-1], context, embedded]) + model.readout.bias
                readout = torch.stack([torch.maximum(first, second) for first, second in wide.view(-1, 2)])
            else:
                inputs = torch.cat([embedded, previous_readout]) if model.config.input_feeding else embedded
                step_lstm(model, inputs, hidden, memory)
                context, weights = attend_by_hand(model, hidden[-1], states, token_mask[row].tolist())
                readout = previous_readout = torch.tanh(model.readout.weight @ torch.cat([context, hidden[-1]]))
            logits.append(model.output.weight @ readout)
            rows.append(weights)
        all_logits.append(torch.stack(logits))
        all_rows.append(rows)
    return torch.stack(all_logits), torch.tensor(all_rows, dtype=torch.float64)[:, None]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", ATTENTIONS)
@torch.no_grad()
def test_each_attention_equals_plain_loops(kind: str, layers: int) -> None:
    model = build_model(kind, layers=layers).double()
    logits, rows = decode_by_hand(model, SOURCE, TARGET, RIGHT)
    output = model(SOURCE, TARGET, source_token_mask=RIGHT, weights=True)
    assert torch.allclose(output.logits, logits, atol=1e-10)
    assert torch.allclose(output.weights["cross"][0], rows, atol=1e-10)
    # the weights differ between steps and are not uniform, so the comparison means something
    assert rows[0, 0].std(0).max() > 0.002 and (rows[0, 0] - 0.2).abs().max() > 0.02


@pytest.mark.parametrize("kind", ATTENTIONS)
@torch.no_grad()
def test_weights_sum_to_one_and_are_zero_on_padding(kind: str) -> None:
    model = build_model(kind, layers=2)
    for token_mask in (RIGHT, LEFT):
        (weights,) = model(SOURCE, TARGET, source_token_mask=token_mask, weights=True).weights["cross"]
        assert weights.shape == (3, 1, 4, 5)
        assert torch.allclose(weights.sum(-1), torch.ones(3, 1, 4), atol=1e-6)
        assert (weights > 0).eq(token_mask[:, None, None].expand(3, 1, 4, 5)).all()
    assert model(SOURCE, TARGET).weights is None


@pytest.mark.parametrize("kind", ATTENTIONS)
@torch.no_grad()
def test_weights_depend_on_the_decoders_state(kind: str) -> None:
    # A linear score of [state; source] without tanh adds the same number for every position, which softmax cancels.
    model = build_model(kind)
    encoded = model.encode(SOURCE)
    state = model.compute_first_state(encoded)
    changed = replace(state, hidden=-state.hidden)
    with record_weights() as calls:
        model.decode(TARGET[:, :1], encoded, state)
        model.decode(TARGET[:, :1], encoded, changed)
    (_, first), (_, second) = calls
    assert (first - second).abs().max() > 0.01

    linear = torch.randn(model.config.width + model.config.source_width)

    def compute_linear_weights(hidden: Tensor) -> Tensor:
        pairs = torch.cat([hidden[:, None].expand(-1, 5, -1), encoded.states], -1)
        return (pairs @ linear).softmax(-1)

    assert torch.allclose(
        compute_linear_weights(state.hidden[-1]), compute_linear_weights(changed.hidden[-1]), atol=1e-6
    )


@pytest.mark.parametrize("token_mask", [RIGHT, LEFT], ids=["right", "left"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_padding_does_not_change_the_output(kind: str, layers: int, token_mask: Tensor) -> None:
    model = build_model(kind, layers=layers)
    first = model(SOURCE, TARGET, source_token_mask=token_mask).logits
    changed = torch.where(token_mask, SOURCE, (SOURCE + 11) % 31)
    assert torch.equal(first, model(changed, TARGET, source_token_mask=token_mask).logits)
    for row in range(3):
        unpadded = model(SOURCE[row : row + 1, token_mask[row]], TARGET[row : row + 1]).logits
        assert torch.allclose(first[row], unpadded[0], atol=1e-4)
    assert not torch.allclose(first[1], model(SOURCE, TARGET).logits[1], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_later_tokens_do_not_change_earlier_logits(kind: str) -> None:
    model = build_model(kind)
    changed = TARGET.clone()
    changed[:, 2:] = (changed[:, 2:] + 7) % 23
    first, second = model(SOURCE, TARGET).logits, model(SOURCE, changed).logits
    assert torch.equal(first[:, :2], second[:, :2]) and not torch.allclose(first[:, 2:], second[:, 2:])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_step_by_step_decoding_equals_teacher_forcing(kind: str, layers: int) -> None:
    model = build_model(kind, layers=layers)
    full_logits = model(SOURCE, TARGET, source_token_mask=RIGHT).logits
    encoded = model.encode(SOURCE, source_token_mask=RIGHT)
    for sizes in ([1, 1, 1, 1], [2, 1, 1], [1, 3]):
        state, parts = None, []
        for part in TARGET.split(sizes, 1):
            logits, state = model.decode(part, encoded, state)
            parts.append(logits)
        assert state.length == 4
        assert torch.allclose(torch.cat(parts, 1), full_logits, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_rows_can_be_selected_between_steps(kind: str) -> None:
    model = build_model(kind)
    encoded = model.encode(SOURCE, source_token_mask=RIGHT)
    _, state = model.decode(TARGET[:, :2], encoded)
    rows = torch.tensor([2, 0, 0, 1])
    logits, _ = model.decode(TARGET[rows, 2:], encoded.select(rows), state.select(rows))
    straight, _ = model.decode(TARGET[:, 2:], encoded, state)
    assert torch.allclose(logits, straight[rows], atol=1e-5)


@torch.no_grad()
def test_without_attention_the_decoder_depends_only_on_the_summary() -> None:
    model = build_model("none")
    encoded = model.encode(SOURCE)
    assert encoded.summary.shape == (3, 6)
    changed = replace(encoded, states=torch.randn_like(encoded.states))
    assert torch.equal(model.decode(TARGET, encoded)[0], model.decode(TARGET, changed)[0])
    changed_summary = replace(encoded, summary=encoded.summary + 0.1)
    assert not torch.allclose(model.decode(TARGET, encoded)[0], model.decode(TARGET, changed_summary)[0], atol=1e-3)
    for kind in ATTENTIONS:
        model = build_model(kind)
        encoded = model.encode(SOURCE)
        changed = replace(encoded, states=torch.randn_like(encoded.states))
        assert not torch.allclose(model.decode(TARGET, encoded)[0], model.decode(TARGET, changed)[0], atol=1e-3)
    with pytest.raises(ArgumentError, match="has no weights"):
        build_model("none")(SOURCE, TARGET, weights=True)


@torch.no_grad()
def test_summary_holds_the_last_state_of_each_direction() -> None:
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
def test_listeners_receive_every_step(kind: str, calls: int) -> None:
    model = build_model(kind)
    events: list[tuple[str, Any]] = []
    with listen(lambda site, value: (events.append((site, value)), value)[1]):
        model(SOURCE, TARGET)
    assert {site.split(".")[0] for site, _ in events} == ({"cross"} if calls else set())
    queries = [value for site, value in events if site == "cross.query"]
    assert len(queries) == calls
    positions = [position for site, value in events if site == "cross.positions" for position in value[0]]
    assert positions == (list(range(4)) if calls else [])
    contexts = [value for site, value in events if site == "cross.block_output"]
    assert sum(first.shape[1] for first in contexts) == (4 if calls else 0)


@pytest.mark.parametrize("kind", ATTENTIONS)
@torch.no_grad()
def test_one_edge_can_be_removed(kind: str) -> None:
    model = build_model(kind)
    before = model(SOURCE, TARGET, weights=True).weights["cross"][0]

    def remove_edge(site: str, value: Any) -> Any:
        return ~mask.edge(query=2, key=1) if site == "cross.mask" else value

    with listen(remove_edge):
        after = model(SOURCE, TARGET, weights=True).weights["cross"][0]
    assert torch.allclose(before[:, :, :2], after[:, :, :2])
    assert after[:, :, 2, 1].eq(0).all() and (after[:, :, [0, 1, 3]] > 0).all()
    assert torch.allclose(after.sum(-1), torch.ones(3, 1, 4), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["explicit", "blocked", "auto"])
def test_backends_and_checkpointing_give_the_same_gradients(kind: str, backend: str) -> None:
    def gradients(backend: str, checkpointing: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = build_model(kind, layers=2)
        model.use_backend(backend)
        model.checkpointing = checkpointing
        model(SOURCE, TARGET, source_token_mask=RIGHT).logits.square().mean().backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    first, second = gradients("explicit", False), gradients(backend, True)
    for name, gradient in first.items():
        assert gradient is not None and gradient.abs().max() > 0, name
        assert torch.allclose(gradient, second[name], rtol=1e-4, atol=1e-5), name


def test_backend_without_the_score_raises() -> None:
    model = build_model("bahdanau")
    model.use_backend("sdpa")
    with pytest.raises(BackendError, match="not Additive"):
        model(SOURCE, TARGET)
    dot = build_model("dot")
    with torch.no_grad():
        explicit = dot(SOURCE, TARGET).logits
        dot.use_backend("sdpa")
        assert torch.allclose(dot(SOURCE, TARGET).logits, explicit, atol=1e-4)


def test_tied_output_adds_no_parameters() -> None:
    model = build_model("general", tied=True, embedding_width=10)
    assert model.output is None and model(SOURCE, TARGET).logits.shape == (3, 4, 23)
    untied = build_model("general", embedding_width=10)
    assert untied.parameter_count - model.parameter_count == 23 * 10


def test_dropout_applies_only_in_training() -> None:
    model = build_model("concat, fed", dropout=0.5, layers=2)
    assert torch.equal(model(SOURCE, TARGET).logits, model(SOURCE, TARGET).logits)
    model.train()
    assert not torch.equal(model(SOURCE, TARGET).logits, model(SOURCE, TARGET).logits)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder_width": 5}, "needs an even state width, not 5"),
        ({"attention": "luong_dot"}, "luong_dot multiplies decoder states"),
        ({"input_feeding": True}, "input_feeding needs a luong attention, not 'bahdanau'"),
        ({"tied": True}, "embedding_width 7, but width is 10"),
        ({"end": 23}, "end is token 23, but the vocabulary has 23 tokens"),
        ({"attention": "luong"}, "must be one of none, bahdanau"),
    ],
)
def test_invalid_configs_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        RNNSeq2SeqConfig(**{**SIZES, **fields})


def test_invalid_inputs_are_refused() -> None:
    model = build_model("general")
    nothing = RIGHT.clone()
    nothing[1] = False
    with pytest.raises(ArgumentError, match="row 1 of the batch has only padding"):
        model(SOURCE, TARGET, source_token_mask=nothing)
    with pytest.raises(ShapeError, match=r"token_mask is \[3, 4\], but the tokens are \[3, 5\]"):
        model(SOURCE, TARGET, source_token_mask=RIGHT[:, :4])
    with pytest.raises(ArgumentError, match="token 42 is out of range"):
        model(SOURCE, TARGET + 23)


def test_bahdanau_attention_may_have_biases() -> None:
    sizes = {"vocabulary": 19, "embedding_width": 6, "width": 8}
    plain, biased = (RNNSeq2Seq(RNNSeq2SeqConfig(**sizes, attention_bias=bias)) for bias in (False, True))
    assert biased.parameter_count - plain.parameter_count == 8 + 8 + 1
    with pytest.raises(ArgumentError, match="attention_bias needs the attention bahdanau, not 'luong_dot'"):
        RNNSeq2SeqConfig(**sizes, attention="luong_dot", attention_bias=True)
