"""Check that the numeric model learns a rule, never reads its answer, and decodes as it was trained."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from jumok import ArgumentError
from jumok.attention import Cache
from jumok.models.numeric import Numeric, NumericConfig


def build_model(**fields: object) -> Numeric:
    return Numeric(NumericConfig(**fields)).eval()


def draw_numbers(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) * 100


def test_default_model_is_the_lessons_model() -> None:
    model = build_model()
    config = model.config
    assert (config.width, config.heads, len(model.encoder), len(model.decoder)) == (16, 2, 2, 2)
    # one number more than the target has: the first comes from the start vector
    assert model(draw_numbers(3, 5), draw_numbers(3, 4)).numbers.shape == (3, 5)
    assert model(draw_numbers(3, 5), draw_numbers(3, 0)).numbers.shape == (3, 1)
    assert model.predict(draw_numbers(3, 5), 7).shape == (3, 7)


@pytest.mark.slow
def test_model_learns_to_add_two_and_predicts_unseen_sequences() -> None:
    # the test sequences are unseen, and predict() gets nothing but them
    torch.manual_seed(0)
    model = Numeric(NumericConfig())
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=300)
    for _ in range(300):
        source = draw_numbers(64, 5)
        answer = source + 2
        actual = model(source, answer[:, :-1]).numbers
        loss = functional.mse_loss(actual / model.config.scale, answer / model.config.scale)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()
    unseen = torch.rand(200, 5, generator=torch.Generator().manual_seed(9)) * 100
    error = (model.predict(unseen, 5) - (unseen + 2)).abs()
    assert error.mean() < 1.5, error.mean()
    lesson = model.predict(torch.tensor([[10, 20, 30, 40, 50]]), 5)
    assert (lesson - torch.tensor([12, 22, 32, 42, 52])).abs().mean() < 3, lesson


def test_later_tokens_do_not_change_earlier_logits() -> None:
    model = build_model()
    source, target = draw_numbers(2, 5), draw_numbers(2, 6)
    changed = target.clone()
    changed[:, 3:] += 31
    with torch.no_grad():
        first, second = model(source, target).numbers, model(source, changed).numbers
    # position 4 is the first that reads target number 3
    assert torch.equal(first[:, :4], second[:, :4])
    assert ((first[:, 4:] - second[:, 4:]).abs() > 1e-4).all()


def test_every_position_depends_on_the_source_and_earlier_numbers() -> None:
    model = build_model()
    source, target = draw_numbers(1, 5), draw_numbers(1, 4)
    source.requires_grad_()
    target.requires_grad_()
    actual = model(source, target).numbers[0]
    for position, number in enumerate(actual):
        to_source, to_target = torch.autograd.grad(number, (source, target), retain_graph=True)
        assert (to_source != 0).all()
        assert (to_target[0, :position] != 0).all() and (to_target[0, position:] == 0).all()


def test_predicting_equals_teacher_forcing_on_its_own_answer() -> None:
    model = build_model()
    source = draw_numbers(3, 5)
    answer = model.predict(source, 7)
    with torch.no_grad():
        assert torch.allclose(model(source, answer[:, :-1]).numbers, answer, atol=1e-3)
        # the same in parts of other sizes, with a cache
        encoded, cache = model.encode(source), Cache()
        parts = [model.decode(part, encoded, cache=cache).numbers for part in answer[:, :-1].split([3, 1, 2], 1)]
        assert torch.allclose(torch.cat(parts, 1), answer, atol=1e-3)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_the_output(side: str) -> None:
    model = build_model()
    source, target = draw_numbers(2, 7), draw_numbers(2, 4)
    token_mask = torch.ones(2, 7).bool()
    token_mask[1, slice(0, 3) if side == "left" else slice(4, 7)] = False
    changed = torch.where(token_mask, source, source + 57)
    with torch.no_grad():
        first = model(source, target, source_token_mask=token_mask).numbers
        assert torch.equal(first, model(changed, target, source_token_mask=token_mask).numbers)
        assert torch.allclose(first[1], model(source[1:, token_mask[1]], target[1:]).numbers[0], atol=1e-3)
        predicted = model.predict(source, 3, source_token_mask=token_mask)
        assert torch.allclose(predicted[1], model.predict(source[1:, token_mask[1]], 3)[0], atol=1e-3)


def test_weights_of_every_stack_are_returned() -> None:
    model = build_model(layers=3)
    token_mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    output = model(draw_numbers(2, 5), draw_numbers(2, 6), source_token_mask=token_mask, weights=True)
    shapes = {name: [list(layer.shape) for layer in layers] for name, layers in output.weights.items()}
    assert shapes == {"encoder": [[2, 2, 5, 5]] * 3, "decoder": [[2, 2, 7, 7]] * 3, "cross": [[2, 2, 7, 5]] * 3}
    for layers in output.weights.values():
        for weights in layers:
            assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-6)
    assert output.weights["cross"][2][1, :, :, 3:].eq(0).all()
    assert output.weights["decoder"][0].triu(1).eq(0).all()
    assert output.logits is None and model(draw_numbers(2, 5), draw_numbers(2, 6)).weights is None


def test_scale_only_changes_the_unit() -> None:
    torch.manual_seed(1)
    first = build_model(scale=100.0)
    torch.manual_seed(1)
    second = build_model(scale=1.0)
    source, target = draw_numbers(2, 5), draw_numbers(2, 4)
    with torch.no_grad():
        assert torch.allclose(
            first(source, target).numbers, 100 * second(source / 100, target / 100).numbers, rtol=1e-4, atol=1e-3
        )


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_backends_and_checkpointing_give_the_same_gradients(backend: str) -> None:
    source, target = draw_numbers(2, 5), draw_numbers(2, 4)

    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = Numeric(NumericConfig(scale=50.0))
        model.use_backend(backend)
        model.checkpointing = checkpointing
        (model(source, target).numbers / 50).square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for first, second in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert first is not None and torch.allclose(first, second, atol=1e-5)


def test_integers_are_accepted() -> None:
    model = build_model()
    integers = torch.tensor([[10, 20, 30]])
    assert torch.equal(model.predict(integers, 2), model.predict(integers.float(), 2))


def test_invalid_inputs_are_refused() -> None:
    model = build_model()
    with pytest.raises(ArgumentError, match="width 15 cannot be split evenly into 2 heads"):
        NumericConfig(width=15)
    with pytest.raises(ArgumentError, match="scale of the numeric config must be from"):
        NumericConfig(scale=0.0)
    with pytest.raises(ArgumentError, match="at least one number"):
        model.predict(draw_numbers(2, 0), 3)
    with pytest.raises(ArgumentError, match="length must be at least 1, not 0"):
        model.predict(draw_numbers(2, 5), 0)
    with pytest.raises(ArgumentError, match="NaN"):
        model.predict(torch.tensor([[1.0, float("nan")]]), 3)
