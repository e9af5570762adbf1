"""Several lenses on one model: nested, overlapping, in callbacks and in threads, each run is as if it were alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import jumok
from jumok.lens import Ablate, Capture, Lens, Patch
from jumok.models.gpt import GPT, GPTConfig

TOKENS = torch.randint(3, 37, (1, 9), generator=torch.Generator().manual_seed(0))
OTHER_TOKENS = TOKENS[:, :7].flip(1)
SMALL: dict[str, Any] = {"vocab_size": 37, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
KEPT = ("output", "block_output", "feedforward_output", "input")
EDITS = (Ablate(layer=1), Ablate(layer=0, head=2))

#: GPT-2 uses the registry of transformers; in BLOOM and GPT-J the recognizer finds the attentions
MODELS: dict[str, Callable[[], nn.Module]] = {
    "own": lambda: GPT(GPTConfig(vocabulary=37, length=19, width=12, layers=2, heads=3, hidden=17, dropout=0.5)),
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**SMALL, n_embd=12, n_layer=2, n_head=3, n_positions=19)),
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(**SMALL, hidden_size=12, n_layer=2, n_head=3)),
    "gptj": lambda: hf.GPTJForCausalLM(
        hf.GPTJConfig(**SMALL, n_embd=12, n_layer=2, n_head=3, rotary_dim=4, n_positions=19)
    ),
}


def build_model(name: str) -> Any:
    """A model whose edits change its logits."""
    torch.manual_seed(5)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3)
    return model


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return build_model(request.param)


def run(lens: Lens, **settings: Any) -> Capture:
    return lens.run(TOKENS, logits=True, keep=KEPT, **settings)


def run_alone(model: Any, **settings: Any) -> Capture:
    with Lens(model) as lens:
        return run(lens, **settings)


def get_logits(output: Any) -> Tensor:
    logits: Tensor = output.logits
    return logits


def check_equal(capture: Capture, expected: Capture) -> None:
    assert capture.sites.names == expected.sites.names
    for site in expected.sites.names:
        assert capture.weights(site).shape == expected.weights(site).shape
        assert torch.allclose(capture.weights(site), expected.weights(site), atol=1e-6)
    assert capture.activations.keys() == expected.activations.keys()
    for name, activation in expected.activations.items():
        assert capture.activations[name].shape == activation.shape, name
        assert torch.allclose(capture.activations[name], activation, atol=1e-6), name
    assert torch.allclose(get_logits(capture.output), get_logits(expected.output), atol=1e-6)


def at_some_calls(use: Callable[[], object]) -> Callable[[int, int], None]:
    """A progress callback that calls a function at three of its calls, in both layers."""
    calls: list[int] = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) in (1, 6, 17):
            use()

    return progress


class Untouched:
    """What a model looks like without a lens."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.state = self._describe()

    def _describe(self) -> Any:
        hooks = [
            (len(module._forward_hooks), len(module._forward_pre_hooks), "forward" in vars(module), module.training)
            for module in self.model.modules()
        ]
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            logits = get_logits(self.model(TOKENS)).tolist()
        return hooks, getattr(self.model.config, "_attn_implementation", None), logits

    def check(self) -> None:
        assert self._describe() == self.state


def test_a_nested_lens_records_and_edits_as_if_it_were_alone(model: Any) -> None:
    untouched = Untouched(model)
    expected = [run_alone(model), *(run_alone(model, edits=edit) for edit in EDITS)]
    with Lens(model) as outer:
        check_equal(run(outer), expected[0])
        with Lens(model) as inner:
            for edits, capture in zip(((), *EDITS), expected, strict=True):
                check_equal(run(inner, edits=edits), capture)
                check_equal(run(outer, edits=edits), capture)
        check_equal(run(outer), expected[0])
    untouched.check()


def test_effect_works_inside_an_open_lens(model: Any) -> None:
    expected = jumok.effect(model, TOKENS)
    with Lens(model) as lens:
        effects = jumok.effect(model, TOKENS)
        check_equal(run(lens), run_alone(model))
    assert effects.rows == expected.rows


@pytest.mark.parametrize("first", [0, 1])
def test_overlapping_lenses_close_in_any_order(model: Any, first: int) -> None:
    untouched = Untouched(model)
    expected = run_alone(model, edits=EDITS[0])
    lenses = [Lens(model), Lens(model)]
    for lens in lenses:
        lens.__enter__()
        run(lens)
    lenses[first].__exit__(None, None, None)
    check_equal(run(lenses[1 - first], edits=EDITS[0]), expected)
    lenses[1 - first].__exit__(None, None, None)
    untouched.check()


def test_models_that_share_a_config_or_a_part_have_lenses_of_their_own() -> None:
    first = build_model("gpt2")
    torch.manual_seed(6)
    second = hf.GPT2LMHeadModel(first.config).eval()
    expected = [run_alone(model) for model in (first, second)]
    part = Lens(first.transformer).__enter__()
    with Lens(first) as first_lens, Lens(second) as second_lens:
        part_weights = part.run(TOKENS).weights(1)
        check_equal(run(first_lens), expected[0])
        check_equal(run(second_lens), expected[1])
        part.__exit__(None, None, None)
        check_equal(run(first_lens), expected[0])
    assert torch.allclose(part_weights, expected[0].weights(1), atol=1e-6)
    assert first.config._attn_implementation == "sdpa"


def test_a_callback_may_use_the_model(model: Any) -> None:
    """With the lens that is running, with another one, and without any."""
    untouched = Untouched(model)
    with Lens(model) as lens:
        other = lens.run(OTHER_TOKENS, logits=True)
    expected, ablated = run_alone(model), run_alone(model, edits=EDITS[0])
    inner: list[tuple[Capture, Capture, Any]] = []

    def use_model() -> None:
        with Lens(model) as lens:
            inner.append((run(running, edits=EDITS[0]), lens.run(OTHER_TOKENS, logits=True), model(OTHER_TOKENS)))

    with Lens(model) as running, torch.no_grad():
        check_equal(run(running, progress=at_some_calls(use_model)), expected)
        reusable = running.run(TOKENS, keep=KEPT, logits=True, reusable=True)
        residual = Patch(layer=1, part="residual", source=reusable)
        check_equal(run(running, edits=residual, reuse=reusable, progress=at_some_calls(use_model)), expected)
    assert len(inner) > 4
    for edited, nested, plain in inner:
        check_equal(edited, ablated)
        assert nested.weights(1).shape == (3, 7, 7)
        assert torch.allclose(get_logits(nested.output), get_logits(other.output), atol=1e-6)
        assert torch.allclose(get_logits(plain)[:, -1], get_logits(other.output)[:, -1], atol=1e-5)
    untouched.check()


def test_a_callback_may_use_the_model_while_it_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    from jumok.lens.huggingface import router

    model = build_model("gptj")
    expected = run_alone(model)
    monkeypatch.setattr(router, "_verified", {})
    with Lens(model) as outer, Lens(model) as inner:
        calls: list[Capture] = []
        check_equal(run(outer, progress=at_some_calls(lambda: calls.append(run(inner)))), expected)
    assert len(calls) == 3
    for capture in calls:
        check_equal(capture, expected)


@pytest.mark.parametrize("name", MODELS)
def test_threads_do_not_see_each_other(name: str) -> None:
    """Each thread has its edit, and one has no lens; the model is in training mode before and after."""
    model = build_model(name)
    with torch.no_grad():
        plain = get_logits(model(TOKENS))
    model.train()
    edits: list[Any] = [(), *EDITS, "effect"]
    alone = [run_alone(model, edits=edit) for edit in edits[:-1]]
    effects = [row.effect for row in jumok.effect(model, TOKENS).rows]
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(edits))

    def use_model(number: int) -> None:
        try:
            barrier.wait(20)
            for _ in range(2):
                if edits[number] == "effect":
                    assert [row.effect for row in jumok.effect(model, TOKENS).rows] == pytest.approx(effects, abs=1e-5)
                else:
                    check_equal(run_alone(model, edits=edits[number]), alone[number])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use_model, args=(number,)) for number in range(len(edits))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors, errors[0]
    assert all(module.training for module in model.modules())
    Untouched(model.eval()).check()
    with torch.no_grad():
        assert torch.equal(get_logits(model(TOKENS)), plain)


def test_a_plain_call_in_another_thread_is_not_recorded(model: Any) -> None:
    expected = run_alone(model)
    with torch.no_grad():
        logits = get_logits(model(OTHER_TOKENS))
    plain: list[Tensor] = []

    def call_plain() -> None:
        with torch.no_grad():
            plain.append(get_logits(model(OTHER_TOKENS)))

    @at_some_calls
    def wait_for_thread() -> None:
        thread = threading.Thread(target=call_plain)
        thread.start()
        thread.join(20)

    with Lens(model) as lens:
        check_equal(run(lens, progress=wait_for_thread), expected)
    assert len(plain) == 3
    assert all(torch.allclose(other, logits, atol=1e-5) for other in plain)


def test_an_exception_in_a_nested_run_leaves_both_lenses_usable(model: Any) -> None:
    untouched = Untouched(model)
    expected = run_alone(model)

    def stop(done: int, total: int) -> None:
        raise ZeroDivisionError

    def stop_inside(done: int, total: int) -> None:
        with Lens(model) as lens:
            run(lens, progress=stop)

    with Lens(model) as lens:
        with pytest.raises(ZeroDivisionError):
            run(lens, progress=stop_inside)
        check_equal(run(lens), expected)
    untouched.check()
