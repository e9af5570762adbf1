"""Compare the masks of long-text encoders with loops, their backends with each other, and padded with bare texts."""

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
    "random": 2, "block": 4, "features": 64, "seed": 7,
}  # fmt: skip
MASKED = [mixing for mixing in MIXINGS if mixing != "fnet"]


def build_model(mixing: str, **fields: Any) -> Long:
    """Build a model with perturbed parameters, so that heads differ and a missing bias changes the output."""
    torch.manual_seed(0)
    model: Long = perturb_parameters(Long(LongConfig.from_json({**SMALL, "mixing": mixing, **fields})))
    return model


def build_allowed_cells(mixing: str, length: int, layer: int) -> torch.Tensor:
    """Return the cells that a layer allows in a text of this length, computed cell by cell."""
    cells = torch.zeros(length, length).bool()
    for i in range(length):
        for j in range(length):
            is_global = i in (0, 5) or j in (0, 5)
            if mixing == "blocks":  # of 3 tokens; the second layer is shifted by 1
                cells[i, j] = (i - layer) // 3 == (j - layer) // 3
            elif mixing == "bigbird":  # random blocks of 4 tokens
                random = j // 4 in draw_random_keys(2, 7, -(-length // 4), i // 4)
                cells[i, j] = abs(i - j) < 3 or is_global or random
            else:
                cells[i, j] = mixing == "full" or abs(i - j) < 3 or (mixing == "longformer" and is_global)
    return cells


@pytest.mark.parametrize("mixing", ["longformer", "bigbird", "window", "blocks", "full"])
@pytest.mark.parametrize("side", ["none", "left", "right"])
@torch.no_grad()
def test_mask_equals_loops(mixing: str, side: str) -> None:
    tokens = torch.randint(50, (3, 19))
    texts = [slice(0, 19)] * 3  # the positions of each text
    if side != "none":
        texts[1:] = [slice(8, 19), slice(2, 19)] if side == "left" else [slice(0, 11), slice(0, 17)]
    dense, token_mask = torch.zeros(2, 3, 1, 19, 19).bool(), torch.zeros(3, 19).bool()  # [layer, batch, ...]
    for row, text in enumerate(texts):
        for layer in range(2):
            dense[layer, row, 0, text, text] = build_allowed_cells(mixing, text.stop - text.start, layer)
        token_mask[row, text] = True
    model, full = build_model(mixing), build_model("full")
    full.load_state_dict(model.state_dict())
    actual = model(tokens, token_mask=None if side == "none" else token_mask, weights=True)
    # the same parameters with the dense mask, positions counted over real tokens
    positions = (token_mask.long().cumsum(-1) - 1).clamp_min(0)
    hidden = full.norm(full.embedding(tokens) + full.positions(positions))
    rows = token_mask[:, None, :, None]
    for block, allowed, weights in zip(full.blocks, dense, actual.weights, strict=True):
        hidden, expected = block(hidden, mask=mask.given(allowed), weights=True)
        assert weights.shape == (3, 4, 19, 19) and torch.allclose(weights * rows, expected * rows, atol=1e-5)
        assert not weights[~allowed.expand_as(weights) & rows].any()
    assert torch.allclose(actual.hidden[token_mask], hidden[token_mask], atol=1e-5)


@pytest.mark.parametrize("mixing", ["longformer", "bigbird", "window", "blocks"])
@pytest.mark.parametrize("padded", [False, True])
def test_blocked_equals_explicit_forward_and_backward(mixing: str, padded: bool, tiny_blocks: None) -> None:
    tokens = torch.randint(50, (2, 29))
    token_mask = torch.ones(2, 29).bool()
    token_mask[1, :7] = False

    def compute_outputs(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        model = build_model(mixing, head="mlm")
        model.use_backend(backend)
        model.checkpointing = checkpointing
        logits = model(tokens, token_mask=token_mask if padded else None).logits[token_mask]
        logits.square().mean().backward()
        return [logits, *(parameter.grad for parameter in model.parameters())]

    for first, second in zip(compute_outputs("explicit", False), compute_outputs("blocked", True), strict=True):
        assert torch.allclose(first, second, atol=1e-4)


@torch.no_grad()
def test_performer_approximates_full_attention_with_many_features() -> None:
    full = build_model("full")
    tokens = torch.randint(50, (2, 23))
    expected = full(tokens).hidden
    errors = []
    for features in (4, 64, 4096):
        performer = build_model("performer", features=features)
        performer.load_state_dict(full.state_dict())
        errors.append(float((performer(tokens).hidden - expected).norm() / expected.norm()))
    assert errors[0] > 4 * errors[2] and errors[1] > errors[2] and errors[2] < 0.05, errors


@torch.no_grad()
def test_linear_performer_equals_performer_with_weights() -> None:
    model = build_model("performer")
    tokens = torch.randint(50, (2, 23))
    token_mask = torch.ones(2, 23).bool()
    token_mask[1, :9] = False
    for padding in (None, token_mask):
        output = model(tokens, token_mask=padding, weights=True)
        assert torch.allclose(
            model(tokens, token_mask=padding).hidden[token_mask], output.hidden[token_mask], atol=1e-4
        )
        assert torch.allclose(output.weights[0].sum(-1), torch.ones(2, 4, 23), atol=1e-5)
    assert not output.weights[1][1, :, :, :9].any()
    model.use_backend("linear")
    assert torch.equal(model.train()(tokens).hidden, model.eval()(tokens).hidden)


def test_performer_trains_in_linear_time_with_dropout() -> None:
    model = build_model("performer", dropout=0.3).train()
    model.use_backend("linear")  # the linear backend refuses dropout on weights
    model(torch.randint(50, (2, 23))).hidden.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@torch.no_grad()
def test_fnet_equals_its_formula() -> None:
    model = build_model("fnet", layers=1, width=6, hidden=11, heads=4)  # fnet ignores heads
    tokens = torch.randint(50, (2, 5))
    hidden = model.norm(model.embedding(tokens) + model.positions(range(5))).double()
    mixed = torch.zeros_like(hidden)
    for position in range(5):
        for width in range(6):
            for changed in range(5):
                for other_width in range(6):
                    angle = torch.tensor(2 * torch.pi * (position * changed / 5 + width * other_width / 6)).cos()
                    mixed[:, position, width] += hidden[:, changed, other_width] * angle
    block = model.blocks[0]
    middle = block.attention_norm((hidden + mixed).float())
    expected = block.feedforward_norm(middle + block.feedforward(middle))
    assert torch.allclose(model(tokens).hidden, expected, atol=1e-5)
    assert torch.equal(model(tokens, token_mask=torch.ones(2, 5).bool()).hidden, model(tokens).hidden)


def test_fnet_refuses_padding_and_weights() -> None:
    model = build_model("fnet")
    tokens = torch.randint(50, (2, 5))
    token_mask = torch.ones(2, 5).bool()
    token_mask[1, 3:] = False
    with pytest.raises(ArgumentError, match="fnet mixes all tokens, including padding"):
        model(tokens, token_mask=token_mask)
    with pytest.raises(ArgumentError, match="has no weights"):
        model(tokens, weights=True)


@pytest.mark.parametrize("mixing", MASKED)
@pytest.mark.parametrize("side", ["left", "right", "both", "between"])
@torch.no_grad()
def test_padding_does_not_change_the_output(mixing: str, side: str) -> None:
    model = build_model(mixing, head="mlm")
    tokens = torch.randint(50, (3, 19))
    token_mask = torch.ones(3, 19).bool()
    for position in {"left": [0, 1, 2, 3], "right": [15, 16, 17, 18], "both": [0, 1, 18], "between": [4, 9, 10]}[side]:
        token_mask[1, position] = False
    token_mask[2] = False  # a text without tokens gives finite numbers
    changed = torch.where(token_mask, tokens, (tokens + 11) % 50)
    first, second = model(tokens, token_mask=token_mask).logits, model(changed, token_mask=token_mask).logits
    assert torch.equal(first[token_mask], second[token_mask]) and first.isfinite().all()
    for row in (0, 1):
        unpadded = model(tokens[row : row + 1, token_mask[row]]).logits
        assert torch.allclose(first[row, token_mask[row]], unpadded[0], atol=2e-4), (
            (first[row, token_mask[row]] - unpadded[0]).abs().max()
        )


@pytest.mark.parametrize("mixing", ["performer", "fnet", "full", "blocks"])
def test_checkpointing_gives_the_same_gradients(mixing: str) -> None:
    tokens = torch.randint(50, (2, 11))

    def gradients(checkpointing: bool) -> list[torch.Tensor]:
        model = build_model(mixing)
        model.checkpointing = checkpointing
        model(tokens).hidden.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for first, second in zip(gradients(False), gradients(True), strict=True):
        assert torch.allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("head", ["none", "mlm"])
@torch.no_grad()
def test_saved_model_loads_with_equal_outputs(mixing: str, head: str, tmp_path: Path) -> None:
    model = build_model(mixing, head=head, tied=mixing != "full", globals=())
    jumok.save(model, tmp_path / "own")
    loaded = jumok.load(tmp_path / "own")
    assert loaded.config == model.config and loaded.family == "long"
    tokens = torch.randint(50, (2, 13))
    first, second = model(tokens), loaded.model(tokens)
    assert torch.equal(first.hidden, second.hidden)
    if head == "none":
        assert first.logits is None
    else:
        assert first.logits.shape == (2, 13, 50) and torch.equal(first.logits, second.logits)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 5}, "width 24 cannot be split evenly into 5 heads"),
        ({"mixing": "reformer"}, "mixing of the long config must be one of longformer, bigbird, window, blocks, "),
        ({"block": 0}, "block of the long config must be from 1"),
        ({"window": 0}, "window of the long config must be from 1"),
        ({"globals": (-1,)}, "globals of the long config must be from 0"),
        ({"globals": ["a"]}, r"globals of the long config must be a list of integers, not \('a',\)"),
        ({"width": "wide"}, "width of the long config must be an integer, not 'wide'"),
    ],
)
def test_invalid_configs_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        LongConfig.from_json({**SMALL, **fields})


@pytest.mark.parametrize("mixing", MASKED)
@torch.no_grad()
def test_lens_records_the_weights_of_every_layer(mixing: str) -> None:
    model, tokens = build_model(mixing), torch.randint(50, (1, 19))
    expected = model(tokens, weights=True).weights
    with jumok.Lens(model) as lens:
        capture = lens.run(tokens)
    for layer in range(2):
        for head in range(4):
            assert torch.allclose(capture.weights(layer, head), expected[layer][0, head], atol=1e-5)


@pytest.mark.parametrize("mixing", MIXINGS)
@torch.no_grad()
def test_scored_positions_have_the_logits_of_all_positions(mixing: str) -> None:
    model, tokens = build_model(mixing, head="mlm"), torch.randint(50, (2, 11))
    token_mask = torch.ones(2, 11).bool()
    if mixing != "fnet":
        token_mask[1, :3] = False
    positions = torch.zeros(2, 11).bool()
    positions[0, 2] = positions[1, 5] = positions[1, 10] = True
    logits = model(tokens, token_mask=token_mask, positions_to_score=positions).logits
    torch.testing.assert_close(logits, model(tokens, token_mask=token_mask).logits[positions])
    with pytest.raises(ArgumentError, match="positions_to_score needs a masked-language-model head"):
        build_model(mixing)(tokens, positions_to_score=positions)


def test_invalid_inputs_are_refused() -> None:
    model = build_model("longformer")
    with pytest.raises(ShapeError, match="position 30 is outside the"):
        model(torch.zeros(1, 31).long())
    with pytest.raises(ShapeError, match=r"token_mask is \[1, 4\], but the tokens are \[1, 5\]"):
        model(torch.zeros(1, 5).long(), token_mask=torch.ones(1, 4).bool())
