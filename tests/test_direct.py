"""What parts write: heads' shares sum to what an attention gives, parts to a logit; rollout and flow by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import jumok
import test_lens
import test_lens_huggingface as theirs
from jumok.errors import ArgumentError
from jumok.lens import Lens, apply_logit_lens, check, compute_head_contributions, compute_rollout, flow, future
from jumok.lens.describe.word_weights import merge_into_words
from jumok.lens.effects.direct_effects import find_output_projection
from jumok.models.gpt import GPT, llama_config

TEXT = test_lens.TOKENS[:1]


def llama() -> GPT:
    config = llama_config(vocabulary=40, length=16, groups=2, width=24, layers=3, heads=4, hidden=32, tied=False)
    return test_lens.drawn(GPT, config)


@pytest.mark.parametrize("name", [*test_lens.MODELS])
def test_our_heads_and_bias_sum_to_what_the_attention_gives(name: str) -> None:
    make, inputs, settings = test_lens.MODELS[name]
    model = make()
    with Lens(model) as lens:
        run = lens.run(*inputs, keep=("output", "block_output"), **settings)
    for site in run.sites.names:
        _, bias = find_output_projection(model, site)
        total = compute_head_contributions(model, run, site).sum(1)
        total = total if bias is None else total + bias
        assert torch.allclose(total, run.kept[f"{site}.block_output"], atol=1e-4), site


@pytest.mark.parametrize("name", sorted(set(theirs.MODELS) - {"clip"}))
def test_their_heads_and_bias_sum_to_what_the_attention_gives(name: str) -> None:
    """What goes behind the output map is read off the map itself, by a hook of torch's."""
    model, inputs = theirs.made(name), theirs.MODELS[name][2]
    with Lens(model) as lens:
        sites = lens.run(**inputs).sites.names
        for site in sites:
            weight, bias = find_output_projection(model, site)
            given: list[Any] = []
            module = next(
                one for one in model.modules() if getattr(one, "weight", None) is not None and _same(one.weight, weight)
            )
            handle = module.register_forward_hook(lambda module, inputs, output, given=given: given.append(output))
            run = lens.run(**inputs, keep=("output",))
            handle.remove()
            total = compute_head_contributions(model, run, site).sum(1)
            total = total if bias is None else total + bias
            assert torch.allclose(total, given[0].view_as(total), atol=1e-4), site


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, torch.Tensor) and one.data_ptr() == other.data_ptr()


@pytest.mark.parametrize("make", [test_lens.gpt, llama])
def test_parts_sum_to_the_logit(make: Any) -> None:
    model = make()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # fresh ones are 0, and nobody would miss them
            if name.endswith("bias"):
                parameter.normal_()
    wanted = model(TEXT).logits[0]
    for token, position in ((7, -1), (3, 4)):
        parts = direct(model, TEXT, token, position)
        assert sum(one.logit for one in parts) == pytest.approx(float(wanted[position, token].detach()), abs=1e-4)
        heads = [one for one in parts if one.head is not None]
        assert len(heads) == 4 * len(model.blocks)
        assert [abs(one.logit) for one in parts] == sorted((abs(one.logit) for one in parts), reverse=True)


def test_a_head_that_writes_the_answer_is_named() -> None:
    """In `tiny` it is the induction head; the idle head adds nothing."""
    parts = {(one.name, one.head): one.logit for one in direct(jumok.load("tiny"), "the cat sat; the cat", " ")}
    heads = {name: logit for name, logit in parts.items() if name[1] is not None}
    assert max(heads, key=lambda name: heads[name]) == ("blocks.1.attention", 0)
    assert heads["blocks.1.attention", 1] == 0


@pytest.mark.parametrize("make", [test_lens.gpt, llama])
def test_the_lens_on_the_last_block_is_the_model(make: Any) -> None:
    model = make()
    guesses = apply_logit_lens(model, TEXT, position=5, count=40)
    assert [one.layer for one in guesses] == list(range(len(model.blocks) + 1))
    wanted = model(TEXT).logits[0, 5].softmax(-1)
    for token, share in guesses[-1].tokens:
        assert share == pytest.approx(float(wanted[token].detach()), abs=1e-5)
    cut = test_lens.drawn(GPT, model.config.replace(layers=1))
    cut.load_state_dict({name: one for name, one in model.state_dict().items() if name in cut.state_dict()})
    earlier = cut(TEXT).logits[0, 5].softmax(-1)
    for token, share in guesses[1].tokens:
        assert share == pytest.approx(float(earlier[token].detach()), abs=1e-5), "a model that ends there"


def test_other_families_are_refused_in_a_sentence() -> None:
    make, inputs, _ = test_lens.MODELS["bert, padded"]
    for call in (lambda model: direct(model, *inputs, 3), lambda model: apply_logit_lens(model, *inputs)):
        with pytest.raises(ArgumentError, match="for the family gpt"):
            call(make())


def test_rollout_is_a_product_of_layers() -> None:
    model = test_lens.gpt()
    with Lens(model) as lens:
        run = lens.run(TEXT)
    weights = model(TEXT, weights=True).weights
    mixed = [(one[0].mean(0) + torch.eye(11)) / 2 for one in weights]
    assert torch.allclose(compute_rollout(run), mixed[1] @ mixed[0], atol=1e-6)
    assert torch.allclose(compute_rollout(run, layers=1), mixed[0], atol=1e-6)


def test_flow_through_one_layer_is_the_layer_and_through_two_the_narrowest_way() -> None:
    one = test_lens.gpt(layers=1)
    with Lens(one) as lens:
        run = lens.run(TEXT)
    assert torch.allclose(flow(run, 6), compute_rollout(run)[6], atol=1e-6), "one layer: what flows is the weight"
    with Lens(test_lens.gpt()) as lens:
        run = lens.run(TEXT)
    first, second = (rollout_step(run, layer) for layer in (0, 1))
    found = flow(run, 10)
    for place in range(11):  # from one input every way over a middle token is open to itself alone
        assert float(found[place]) == pytest.approx(float(torch.minimum(first[:, place], second[10]).sum()), abs=1e-6)


def rollout_step(run: Any, layer: int) -> torch.Tensor:
    weights = run.mean_weights(layer)
    return (weights + torch.eye(len(weights))) / 2


def test_a_model_of_two_stacks_has_no_rollout() -> None:
    make, inputs, settings = test_lens.MODELS["t5"]
    with Lens(make()) as lens:
        run = lens.run(*inputs, **settings)
    with pytest.raises(ArgumentError, match="one stack of self-attentions"):
        compute_rollout(run)


def test_checks_tell_the_future() -> None:
    with Lens(test_lens.gpt()) as lens:
        causal, free = lens.run(TEXT), lens.run(TEXT, edits=jumok.Remask(layer=0))
    assert check(causal, 0, 0).future == 0 and check(causal, 0, 0).sums < 1e-6
    ahead = free.weights(0, 0).triu(1).sum(-1).max()
    assert check(free, 0, 0).future == pytest.approx(float(ahead)) and ahead > 0.01
    assert check(free, 1, 0).future == 0
    assert torch.equal(future(causal, 1, 2), torch.zeros(len(future(causal, 1, 2))))
    assert torch.allclose(future(free, 0, 0), free.weights(0, 0).triu(1).sum(-1))


def test_words_are_sums_over_keys_and_means_over_queries() -> None:
    weights = torch.rand(5, 5).softmax(-1)
    places = [range(2), range(2, 3), range(3, 5)]
    found = merge_into_words(weights, places, places)
    for row, some in enumerate(places):
        for column, others in enumerate(places):
            wanted = sum(float(weights[a, b]) for a in some for b in others) / len(some)
            assert float(found[row, column]) == pytest.approx(wanted)
    assert torch.allclose(found.sum(-1), torch.ones(3))
    assert torch.equal(merge_into_words(weights, None, None), weights)
