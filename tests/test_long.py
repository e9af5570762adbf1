"""Encoders of long texts: their masks against loops, their backends against each other, padding against none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.attention import mask
from jumok.errors import ArgumentError, ShapeError
from jumok.models.long import MIXINGS, Long, LongConfig
from oracle import draw_random_keys
from parity import perturb_parameters

SMALL = {
    "vocabulary": 50, "length": 30, "width": 24, "layers": 2, "heads": 4, "hidden": 40, "window": 3, "globals": (0, 5),
    "random": 2, "features": 64, "seed": 7,
}  # fmt: skip
MASKED = [mixing for mixing in MIXINGS if mixing != "fnet"]


def made(mixing: str, **fields: Any) -> Long:
    """Shaken, so that heads differ and forgotten biases are seen."""
    torch.manual_seed(0)
    model: Long = perturb_parameters(Long(LongConfig.from_json({**SMALL, "mixing": mixing, **fields})))
    return model


def allowed(mixing: str, length: int) -> torch.Tensor:
    """Who sees whom in a text of this length, cell by cell."""
    cells = torch.zeros(length, length).bool()
    for i in range(length):
        for j in range(length):
            near = abs(i - j) < 3 or i in (0, 5) or j in (0, 5)
            drawn = mixing == "bigbird" and j in draw_random_keys(2, 7, length, i)
            cells[i, j] = mixing == "full" or near or drawn
    return cells


@pytest.mark.parametrize("mixing", ["longformer", "bigbird", "full"])
@pytest.mark.parametrize("side", ["none", "left", "right"])
@torch.no_grad()
def test_the_mask_is_the_loops(mixing: str, side: str) -> None:
    tokens = torch.randint(50, (3, 19))
    own = [slice(0, 19)] * 3  # where each text stands
    if side != "none":
        own[1:] = [slice(8, 19), slice(2, 19)] if side == "left" else [slice(0, 11), slice(0, 17)]
    dense, real = torch.zeros(3, 1, 19, 19).bool(), torch.zeros(3, 19).bool()
    for row, text in enumerate(own):
        dense[row, 0, text, text] = allowed(mixing, text.stop - text.start)
        real[row, text] = True
    model, full = made(mixing), made("full")
    full.load_state_dict(model.state_dict())
    found = model(tokens, token_mask=None if side == "none" else real, weights=True)
    # the same parameters under the dense mask, its positions counted over real tokens
    places = (real.long().cumsum(-1) - 1).clamp_min(0)
    hidden = full.norm(full.embedding(tokens) + full.positions(places))
    wanted, weights = full.run_blocks(full.blocks, hidden, mask=mask.given(dense), weights=True)
    assert torch.allclose(found.hidden[real], wanted[real], atol=1e-5)
    for one, two in zip(found.weights, weights, strict=True):
        rows = real[:, None, :, None]
        assert one.shape == (3, 4, 19, 19) and torch.allclose(one * rows, two * rows, atol=1e-5)
        assert not one[~dense.expand_as(one) & rows].any()


@pytest.mark.parametrize("mixing", ["longformer", "bigbird"])
@pytest.mark.parametrize("padded", [False, True])
def test_blocked_is_explicit_forward_and_backward(mixing: str, padded: bool, tiny_blocks: None) -> None:
    tokens = torch.randint(50, (2, 29))
    real = torch.ones(2, 29).bool()
    real[1, :7] = False

    def computed(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        model = made(mixing, head="mlm")
        model.use_backend(backend)
        model.checkpointing = checkpointing
        logits = model(tokens, token_mask=real if padded else None).logits[real]
        logits.square().mean().backward()
        return [logits, *(parameter.grad for parameter in model.parameters())]

    for one, two in zip(computed("explicit", False), computed("blocked", True), strict=True):
        assert torch.allclose(one, two, atol=1e-4)


@torch.no_grad()
def test_performer_comes_near_full_attention_with_many_features() -> None:
    full = made("full")
    tokens = torch.randint(50, (2, 23))
    wanted = full(tokens).hidden
    errors = []
    for features in (4, 64, 4096):
        performer = made("performer", features=features)
        performer.load_state_dict(full.state_dict())
        errors.append(float((performer(tokens).hidden - wanted).norm() / wanted.norm()))
    assert errors[0] > 4 * errors[2] and errors[1] > errors[2] and errors[2] < 0.05, errors


@torch.no_grad()
def test_performer_in_linear_time_is_performer_by_its_weights() -> None:
    model = made("performer")
    tokens = torch.randint(50, (2, 23))
    real = torch.ones(2, 23).bool()
    real[1, :9] = False
    for padding in (None, real):
        output = model(tokens, token_mask=padding, weights=True)
        assert torch.allclose(model(tokens, token_mask=padding).hidden[real], output.hidden[real], atol=1e-4)
        assert torch.allclose(output.weights[0].sum(-1), torch.ones(2, 4, 23), atol=1e-5)
    assert not output.weights[1][1, :, :, :9].any()
    model.use_backend("linear")
    assert torch.equal(model.train()(tokens).hidden, model.eval()(tokens).hidden)


def test_a_performer_trains_in_linear_time_with_dropout() -> None:
    model = made("performer", dropout=0.3).train()
    model.use_backend("linear")  # which would refuse weights to drop
    model(torch.randint(50, (2, 23))).hidden.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@torch.no_grad()
def test_fnet_is_its_formula() -> None:
    model = made("fnet", layers=1, width=6, hidden=11, heads=4)  # heads are nobody's business here
    tokens = torch.randint(50, (2, 5))
    hidden = model.norm(model.embedding(tokens) + model.positions(range(5))).double()
    mixed = torch.zeros_like(hidden)
    for place in range(5):
        for width in range(6):
            for other in range(5):
                for each in range(6):
                    angle = torch.tensor(2 * torch.pi * (place * other / 5 + width * each / 6)).cos()
                    mixed[:, place, width] += hidden[:, other, each] * angle
    block = model.blocks[0]
    middle = block.attention_norm((hidden + mixed).float())
    wanted = block.feedforward_norm(middle + block.feedforward(middle))
    assert torch.allclose(model(tokens).hidden, wanted, atol=1e-5)
    assert torch.equal(model(tokens, token_mask=torch.ones(2, 5).bool()).hidden, model(tokens).hidden)


def test_fnet_refuses_padding_and_weights_in_a_sentence() -> None:
    model = made("fnet")
    tokens = torch.randint(50, (2, 5))
    real = torch.ones(2, 5).bool()
    real[1, 3:] = False
    with pytest.raises(ArgumentError, match="fnet mixes all tokens, including padding"):
        model(tokens, token_mask=real)
    with pytest.raises(ArgumentError, match="has no weights"):
        model(tokens, weights=True)


@pytest.mark.parametrize("mixing", MASKED)
@pytest.mark.parametrize("side", ["left", "right", "both", "between"])
@torch.no_grad()
def test_nothing_moves_when_the_padding_changes(mixing: str, side: str) -> None:
    model = made(mixing, head="mlm")
    tokens = torch.randint(50, (3, 19))
    real = torch.ones(3, 19).bool()
    for place in {"left": [0, 1, 2, 3], "right": [15, 16, 17, 18], "both": [0, 1, 18], "between": [4, 9, 10]}[side]:
        real[1, place] = False
    real[2] = False  # a text without tokens moves nobody, and is a number
    other = torch.where(real, tokens, (tokens + 11) % 50)
    one, two = model(tokens, token_mask=real).logits, model(other, token_mask=real).logits
    assert torch.equal(one[real], two[real]) and one.isfinite().all()
    for row in (0, 1):
        alone = model(tokens[row : row + 1, real[row]]).logits
        assert torch.allclose(one[row, real[row]], alone[0], atol=2e-4), (one[row, real[row]] - alone[0]).abs().max()


@pytest.mark.parametrize("mixing", ["performer", "fnet", "full"])
def test_checkpointing_gives_the_same_gradients(mixing: str) -> None:
    tokens = torch.randint(50, (2, 11))

    def gradients(checkpointing: bool) -> list[torch.Tensor]:
        model = made(mixing)
        model.checkpointing = checkpointing
        model(tokens).hidden.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for one, two in zip(gradients(False), gradients(True), strict=True):
        assert torch.allclose(one, two, atol=1e-6)


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("head", ["none", "mlm"])
@torch.no_grad()
def test_it_is_saved_and_loaded(mixing: str, head: str, tmp_path: Path) -> None:
    model = made(mixing, head=head, tied=mixing != "full", globals=())
    jumok.save(model, tmp_path / "own")
    loaded = jumok.load(tmp_path / "own")
    assert loaded.config == model.config and loaded.family == "long"
    tokens = torch.randint(50, (2, 13))
    one, two = model(tokens), loaded.model(tokens)
    assert torch.equal(one.hidden, two.hidden)
    if head == "none":
        assert one.logits is None
    else:
        assert one.logits.shape == (2, 13, 50) and torch.equal(one.logits, two.logits)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"heads": 5}, "width 24 does not divide into 5 heads"),
        ({"mixing": "reformer"}, "mixing of the long config must be one of longformer, bigbird, performer, fnet, full"),
        ({"window": 0}, "window of the long config must be from 1"),
        ({"globals": (-1,)}, "globals of the long config must be from 0"),
        ({"globals": ["a"]}, r"globals of the long config must be a list of integers, not \('a',\)"),
        ({"width": "wide"}, "width of the long config must be an integer, not 'wide'"),
    ],
)
def test_a_bad_config_is_refused_in_a_sentence(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        LongConfig.from_json({**SMALL, **fields})


def test_inputs_that_do_not_fit_are_refused() -> None:
    model = made("longformer")
    with pytest.raises(ShapeError, match="position 30 is outside the 30 positions"):
        model(torch.zeros(1, 31).long())
    with pytest.raises(ShapeError, match=r"token_mask is \[1, 4\], but the tokens are \[1, 5\]"):
        model(torch.zeros(1, 5).long(), token_mask=torch.ones(1, 4).bool())
