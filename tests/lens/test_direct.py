"""Direct contributions: those of heads sum to the attention's output, those of all parts to the logit; rollout, flow
and weight checks against direct computations."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import test_lens
import test_lens_huggingface
import torch

import jumok
from jumok.errors import ArgumentError
from jumok.lens import (
    Lens,
    apply_logit_lens,
    check_weights,
    compute_attention_flow,
    compute_attention_rollout,
    compute_direct_effects,
    compute_head_contributions,
    sum_future_weights,
)
from jumok.lens.describe.head_statistics import merge_into_words
from jumok.lens.effects.direct_effects import find_output_projection
from jumok.lens.effects.metrics import LogitDifference
from jumok.models.bert import BERT, BERTConfig
from jumok.models.gpt import GPT, llama_config

TEXT = test_lens.TOKENS[:1]


def build_llama() -> GPT:
    config = llama_config(vocabulary=40, length=16, groups=2, width=24, layers=3, heads=4, hidden=32, tied=False)
    return test_lens.build_model(GPT, config)


def build_gemma(norm: str = "rms") -> GPT:
    sizes = {"vocabulary": 40, "length": 16, "width": 24, "layers": 2, "heads": 4, "hidden": 32}
    model = test_lens.build_model(GPT, llama_config(**sizes, norm=norm, output_norm=True, scaled_embedding=True))
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # new norms change almost nothing
            if name.endswith("norm.weight"):
                parameter.normal_(1.0, 0.5)
    return model


@pytest.mark.parametrize("name", [*test_lens.MODELS])
def test_heads_and_bias_sum_to_the_output_of_jumoks_attentions(name: str) -> None:
    build, inputs, settings = test_lens.MODELS[name]
    model = build()
    with Lens(model) as lens:
        capture = lens.run(*inputs, keep=("output", "block_output"), **settings)
    for site in capture.sites.names:
        _, bias = find_output_projection(model, site)
        total = compute_head_contributions(model, capture, site).sum(1)
        total = total if bias is None else total + bias
        assert torch.allclose(total, capture.activations[f"{site}.block_output"], atol=1e-4), site


@pytest.mark.parametrize("name", sorted(set(test_lens_huggingface.MODELS) - {"clip"}))
def test_heads_and_bias_sum_to_the_output_of_transformers_attentions(name: str) -> None:
    """A forward hook reads the output of the projection itself."""
    model, inputs = test_lens_huggingface.build_model(name), test_lens_huggingface.MODELS[name][2]
    with Lens(model) as lens:
        sites = lens.run(**inputs).sites.names
        for site in sites:
            weight, bias = find_output_projection(model, site)
            outputs: list[Any] = []
            projection = next(
                module
                for module in model.modules()
                if getattr(module, "weight", None) is not None and shares_memory(module.weight, weight)
            )
            handle = projection.register_forward_hook(
                lambda module, inputs, output, outputs=outputs: outputs.append(output)
            )
            capture = lens.run(**inputs, keep=("output",))
            handle.remove()
            total = compute_head_contributions(model, capture, site).sum(1)
            total = total if bias is None else total + bias
            assert torch.allclose(total, outputs[0].view_as(total), atol=1e-4), site


def shares_memory(weight: Any, other: torch.Tensor) -> bool:
    return isinstance(weight, torch.Tensor) and weight.data_ptr() == other.data_ptr()


@pytest.mark.parametrize("build", [test_lens.build_gpt, build_llama, build_gemma, partial(build_gemma, "layer")])
def test_direct_effects_sum_to_the_logit(build: Any) -> None:
    model = build()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # new biases are 0, which would hide a missing one
            if name.endswith("bias"):
                parameter.normal_()
    expected = model(TEXT).logits[0]
    for token, position in ((7, -1), (3, 4)):
        parts = compute_direct_effects(model, TEXT, token, position)
        assert sum(part.logit for part in parts) == pytest.approx(float(expected[position, token].detach()), abs=1e-4)
        heads = [part for part in parts if part.head is not None]
        assert len(heads) == 4 * len(model.blocks)
        assert [abs(part.logit) for part in parts] == sorted((abs(part.logit) for part in parts), reverse=True)


def test_contributions_of_heads_pass_the_norm_on_the_output() -> None:
    model = build_gemma()
    with Lens(model) as lens:
        capture = lens.run(TEXT, keep=("output", "block_output"))
    for site in capture.sites.names:
        total = compute_head_contributions(model, capture, site).sum(1)
        assert torch.allclose(total, capture.activations[f"{site}.block_output"], atol=1e-4), site


def test_a_difference_of_two_logits_is_split_too() -> None:
    """A difference between the contributions to both logits; the words may be given as text."""
    text, tiny = "the cat sat; the cat", jumok.load("tiny")
    with Lens(tiny) as lens:
        logits = lens.run(text, logits=True).logits[0]
    for position in (-1, 4):
        parts = compute_direct_effects(tiny, text, LogitDifference(" ", "s", position))
        expected = float(logits[position, ord(" ")] - logits[position, ord("s")])
        assert sum(part.logit for part in parts) == pytest.approx(expected, abs=1e-4)
        right, wrong = (
            {(p.name, p.head): p.logit for p in compute_direct_effects(tiny, text, token, position)} for token in " s"
        )
        for part in parts:
            name = part.name, part.head
            assert part.logit == pytest.approx(right[name] - wrong[name], abs=1e-9)
    with pytest.raises(ArgumentError, match="give the position once"):
        compute_direct_effects(tiny, text, LogitDifference(" ", "s"), 4)


def test_several_texts_are_refused() -> None:
    model = test_lens.build_gpt()
    for call in (
        lambda: compute_direct_effects(model, test_lens.TOKENS, 3),
        lambda: apply_logit_lens(model, test_lens.TOKENS),
    ):
        with pytest.raises(ArgumentError, match="read one text at a time, not 2"):
            call()


def test_the_induction_head_of_tiny_writes_the_answer() -> None:
    """The untrained head of the same layer adds nothing."""
    parts = compute_direct_effects(jumok.load("tiny"), "the cat sat; the cat", " ")
    heads = {(part.name, part.head): part.logit for part in parts if part.head is not None}
    assert max(heads, key=lambda name: heads[name]) == ("blocks.1.attention", 0)
    assert heads["blocks.1.attention", 1] == 0


@pytest.mark.parametrize("build", [test_lens.build_gpt, build_llama])
def test_the_logit_lens_after_the_last_block_equals_the_model(build: Any) -> None:
    model = build()
    predictions = apply_logit_lens(model, TEXT, position=5, count=40)
    assert [prediction.layer for prediction in predictions] == list(range(len(model.blocks) + 1))
    expected = model(TEXT).logits[0, 5].softmax(-1)
    for token, probability in predictions[-1].tokens:
        assert probability == pytest.approx(float(expected[token].detach()), abs=1e-5)
    shallow = test_lens.build_model(GPT, model.config.replace(layers=1))
    parameters = {name: tensor for name, tensor in model.state_dict().items() if name in shallow.state_dict()}
    shallow.load_state_dict(parameters)
    earlier = shallow(TEXT).logits[0, 5].softmax(-1)
    for token, probability in predictions[1].tokens:
        assert probability == pytest.approx(float(earlier[token].detach()), abs=1e-5), "a model that ends there"


def test_other_families_raise() -> None:
    build, inputs, _ = test_lens.MODELS["bert, padded"]
    with pytest.raises(ArgumentError, match="of the family gpt"):
        compute_direct_effects(build(), *inputs, 3)
    with pytest.raises(ArgumentError, match="continues a text or fills masks, not BERT"):
        apply_logit_lens(build(), *inputs)


def test_the_logit_lens_reads_masked_language_models() -> None:
    sizes = {"vocabulary": 40, "length": 16, "width": 24, "layers": 2, "heads": 4, "hidden": 32}
    model = test_lens.build_model(BERT, BERTConfig(**sizes, head="mlm"))
    predictions = apply_logit_lens(model, TEXT, position=5, count=40)
    expected = model(TEXT).logits[0, 5].softmax(-1)
    assert len(predictions) == 3
    for token, probability in predictions[-1].tokens:
        assert probability == pytest.approx(float(expected[token].detach()), abs=1e-5)
    assert len(apply_logit_lens(model.bfloat16(), TEXT)) == 3


def test_rollout_is_the_product_of_the_layers() -> None:
    model = test_lens.build_gpt()
    with Lens(model) as lens:
        capture = lens.run(TEXT)
    weights = model(TEXT, weights=True).weights
    mixed = [(table[0].mean(0) + torch.eye(11)) / 2 for table in weights]
    assert torch.allclose(compute_attention_rollout(capture), mixed[1] @ mixed[0], atol=1e-6)
    assert torch.allclose(compute_attention_rollout(capture, layers=1), mixed[0], atol=1e-6)


def test_flow_equals_the_weights_of_one_layer_and_the_bottlenecks_of_two() -> None:
    with Lens(test_lens.build_gpt(layers=1)) as lens:
        capture = lens.run(TEXT)
    assert torch.allclose(compute_attention_flow(capture, 6), compute_attention_rollout(capture)[6], atol=1e-6), (
        "through one layer the flow is the weight"
    )
    with Lens(test_lens.build_gpt()) as lens:
        capture = lens.run(TEXT)
    first, second = (rollout_step(capture, layer) for layer in (0, 1))
    flows = compute_attention_flow(capture, 10)
    for position in range(11):  # paths from one input through different middle tokens share no edge
        bottlenecks = torch.minimum(first[:, position], second[10])
        assert float(flows[position]) == pytest.approx(float(bottlenecks.sum()), abs=1e-6)


def rollout_step(capture: Any, layer: int) -> torch.Tensor:
    weights = capture.mean_weights(layer)
    return (weights + torch.eye(len(weights))) / 2


def test_rollout_of_several_stacks_raises() -> None:
    build, inputs, settings = test_lens.MODELS["t5"]
    with Lens(build()) as lens:
        capture = lens.run(*inputs, **settings)
    with pytest.raises(ArgumentError, match="one stack of self-attentions"):
        compute_attention_rollout(capture)


def test_checks_find_weight_on_later_positions() -> None:
    with Lens(test_lens.build_gpt()) as lens:
        causal, unmasked = lens.run(TEXT), lens.run(TEXT, edits=jumok.Remask(layer=0))
    assert check_weights(causal, 0, 0).future == 0 and check_weights(causal, 0, 0).sums < 1e-6
    largest = unmasked.weights(0, 0).triu(1).sum(-1).max()
    assert check_weights(unmasked, 0, 0).future == pytest.approx(float(largest)) and largest > 0.01
    assert check_weights(unmasked, 1, 0).future == 0
    assert torch.equal(sum_future_weights(causal, 1, 2), torch.zeros(len(sum_future_weights(causal, 1, 2))))
    assert torch.allclose(sum_future_weights(unmasked, 0, 0), unmasked.weights(0, 0).triu(1).sum(-1))


def test_descriptions_of_a_batch_row_equal_those_of_its_text() -> None:
    edit = jumok.Remask(layer=0)
    with Lens(test_lens.build_gpt()) as lens:
        batch, alone = lens.run(test_lens.TOKENS, edits=edit), lens.run(test_lens.TOKENS[1:], edits=edit)
    assert check_weights(batch, 0, 1, batch=1).future == pytest.approx(check_weights(alone, 0, 1).future)
    torch.testing.assert_close(sum_future_weights(batch, 0, 1, batch=1), sum_future_weights(alone, 0, 1))
    torch.testing.assert_close(compute_attention_rollout(batch, batch=1), compute_attention_rollout(alone))
    torch.testing.assert_close(compute_attention_flow(batch, 6, batch=1), compute_attention_flow(alone, 6))


def test_words_sum_over_keys_and_average_over_queries() -> None:
    weights = torch.rand(5, 5).softmax(-1)
    words = [range(2), range(2, 3), range(3, 5)]
    merged = merge_into_words(weights, words, words)
    for row, queries in enumerate(words):
        for column, keys in enumerate(words):
            expected = sum(float(weights[query, key]) for query in queries for key in keys) / len(queries)
            assert float(merged[row, column]) == pytest.approx(expected)
    assert torch.allclose(merged.sum(-1), torch.ones(3))
    assert torch.equal(merge_into_words(weights, None, None), weights)
