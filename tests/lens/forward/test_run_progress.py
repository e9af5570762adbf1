"""A forward pass reports its progress, and the callback can stop it, which leaves model and lens usable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf

from huggingface_models import MODELS
from huggingface_models import build_model as build_transformers_model
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Capture, Lens
from jumok.lens.huggingface import forward_scope, router
from jumok.models.gpt import GPT, GPTConfig
from jumok.tap import has_listeners

TOKENS = torch.randint(37, (1, 11), generator=torch.Generator().manual_seed(0))


class CancelError(Exception):
    """Raised by a callback."""


class StopAfter:
    """A callback that raises an exception after some calls."""

    def __init__(self, calls: int, error: BaseException | None = None) -> None:
        self.remaining = calls
        self.error = CancelError("stop") if error is None else error
        self.calls: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.calls.append((done, total))
        self.remaining -= 1
        if self.remaining < 0:
            raise self.error


@pytest.fixture(autouse=True)
def forget_verified_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "_verified", {})


def build_gpt() -> GPT:
    torch.manual_seed(3)
    return GPT(GPTConfig(vocabulary=37, length=19, width=12, layers=3, heads=3, hidden=17, dropout=0.5))


def count_taps(lens: Lens, *inputs: Any, **settings: Any) -> list[tuple[int, int]]:
    calls: list[tuple[int, int]] = []
    lens.run(*inputs, progress=lambda done, total: calls.append((done, total)), **settings)
    return calls


def count_hooks(model: torch.nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_progress_counts_the_attentions_and_is_called_at_every_tap() -> None:
    with Lens(build_gpt()) as lens:
        first = count_taps(lens, TOKENS)
        assert first[-1] == (3, 0), "the first run does not know how many there are"
        second = count_taps(lens, TOKENS)
        assert [done for done, _ in second] == sorted(done for done, _ in second)
        assert second[-1] == (3, 3) and second[0] == (0, 3)
        assert len(second) >= 3 * 10, "also between the attentions"
        assert any(count_taps(lens, TOKENS)[index] == (1, 3) for index in range(len(second)))


def test_blocks_that_are_reused_count_as_finished() -> None:
    with Lens(build_gpt()) as lens:
        clean = lens.run(TOKENS, reusable=True)
        calls = count_taps(lens, TOKENS, edits=Ablate(2, 0), reuse=clean)
    assert calls[0] == (2, 3) and calls[-1] == (3, 3)


def check_usable(lens: Lens, run: Callable[[], Capture], expected: Capture, hooks: int) -> None:
    """Check that a stopped run left nothing behind: the next one gives the same weights."""
    assert not has_listeners() and count_hooks(lens.model) == hooks
    assert lens.model.training
    capture = run()
    assert list(capture.attentions) == list(expected.attentions)
    for site in expected.attentions:
        assert torch.equal(capture.weights(site), expected.weights(site))


@pytest.mark.parametrize("error", [CancelError("stop"), KeyboardInterrupt(), IndexError("of the callback")])
@pytest.mark.parametrize("calls", [0, 1, 7, 15])
def test_a_run_stops_at_the_next_tap(error: BaseException, calls: int) -> None:
    model = build_gpt().train()
    with Lens(model) as lens:
        expected = lens.run(TOKENS)
        hooks = count_hooks(model)
        callback = StopAfter(calls, error)
        with pytest.raises(type(error)) as raised:
            lens.run(TOKENS, progress=callback)
        assert raised.value is error and len(callback.calls) == calls + 1
        check_usable(lens, lambda: lens.run(TOKENS), expected, hooks)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
@pytest.mark.parametrize("error", [CancelError("stop"), KeyboardInterrupt(), IndexError("stop"), ArgumentError("stop")])
def test_models_of_transformers_stop_in_the_comparison_and_in_the_run(name: str, error: BaseException) -> None:
    model, inputs = build_transformers_model(name).train(), MODELS[name][2]
    total = len(count_calls_of_first_run(name))
    with Lens(model) as lens:
        for calls in (0, total // 4, total // 2, total - 3):  # the plain pass, the pass to compare, and the run
            router._verified.clear()
            with pytest.raises(type(error)) as raised:
                lens.run(**inputs, progress=StopAfter(calls, error))
            assert raised.value is error
        assert len(router._verified) == 1, "of the run that was stopped after the comparison"
        hooks = count_hooks(model)
        with Lens(build_transformers_model(name)) as other:
            expected = other.run(**inputs)
        check_usable(lens, lambda: lens.run(**inputs), expected, hooks)
    assert count_hooks(model) == 0


def count_calls_of_first_run(name: str) -> list[tuple[int, int]]:
    with Lens(build_transformers_model(name)) as lens:
        calls = count_taps(lens, **MODELS[name][2])
    router._verified.clear()
    return calls


def test_attentions_that_are_recognised_stop_too() -> None:
    """GPT-J is outside the registry: the recognizer is a mode of torch, which must be left."""
    torch.manual_seed(5)
    config = hf.GPTJConfig(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=4, rotary_dim=4)
    model = hf.GPTJForCausalLM(config).train()
    modes = torch.overrides._len_torch_function_stack()
    with Lens(model) as lens:
        expected = lens.run(input_ids=TOKENS)
        hooks = count_hooks(model)
        for error in (CancelError("stop"), KeyboardInterrupt()):
            with pytest.raises(type(error)):
                lens.run(input_ids=TOKENS, progress=StopAfter(9, error))
            assert torch.overrides._len_torch_function_stack() == modes
            check_usable(lens, lambda: lens.run(input_ids=TOKENS), expected, hooks)


def test_models_with_maps_only_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = forward_scope.attend

    def attend_wrongly(*tensors: torch.Tensor, **settings: Any) -> Any:
        return attend(*tensors, **settings) * 1.001

    monkeypatch.setattr(forward_scope, "attend", attend_wrongly)
    model = build_transformers_model("gpt2")
    with Lens(model) as lens:
        calls = count_taps(lens, **MODELS["gpt2"][2])
        assert lens.support is not None and lens.support.level == "maps only"
        for stop in (0, len(calls) // 2, len(calls) - 9):
            router._verified.clear()
            with pytest.raises(CancelError):
                lens.run(**MODELS["gpt2"][2], progress=StopAfter(stop))
        assert lens.run(**MODELS["gpt2"][2]).has_only_maps
        with pytest.raises(ArgumentError, match="nothing else to keep or reuse"):
            lens.run(**MODELS["gpt2"][2], reusable=True)


def test_the_search_for_sites_stops() -> None:
    with Lens(build_gpt()) as lens:
        with pytest.raises(CancelError):
            lens.run(TOKENS, edits=Ablate(1, 0), progress=StopAfter(3))
        assert count_taps(lens, TOKENS)[-1] == (3, 0), "the stopped run has not found the sites"


@pytest.mark.parametrize("name", ["own", "gpt2", "t5"])
def test_generation_counts_tokens_and_stops(name: str) -> None:
    model = build_gpt() if name == "own" else build_transformers_model(name)
    calls: list[tuple[int, int]] = []
    with Lens(model) as lens:
        generation = lens.generate(TOKENS, limit=4, progress=lambda done, total: calls.append((done, total)))
        assert calls[0] == (0, 4)
        assert calls[-1] == (len(generation.token_ids), 4)
        for edits in ([], [Ablate(generation.capture.sites.names[-1], 0)]):
            with pytest.raises(CancelError):
                lens.generate(TOKENS, limit=4, edits=edits, progress=StopAfter(20))
            assert not has_listeners()
        assert lens.generate(TOKENS, limit=4).token_ids == generation.token_ids


def test_another_thread_can_stop_a_run() -> None:
    """As a page does: an event that another thread sets."""
    begun, stop = threading.Event(), threading.Event()

    def report(done: int, total: int) -> None:
        if done == 1:
            begun.set()
            assert stop.wait(30)
            raise CancelError

    def cancel() -> None:
        assert begun.wait(30)
        stop.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    with Lens(build_gpt()) as lens, pytest.raises(CancelError):
        lens.run(TOKENS, progress=report)
    thread.join()
