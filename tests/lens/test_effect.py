"""Effects: edits in a batch that restarts in the middle equal edits in separate forward passes; gradient estimates are
verified against every edge; controls and ranks are as documented."""

from __future__ import annotations

import math
from typing import Any

import pytest
import test_lens
import test_lens_huggingface
import torch
from torch import Tensor

import jumok
from jumok.errors import ArgumentError
from jumok.lens import Ablate, KnockOut, Lens
from jumok.lens.effects.edge_effects import Edge, EdgeTables, SimilarWeightFinder, estimate_edge_effects
from jumok.lens.effects.edit_runner import EditRunner
from jumok.lens.effects.effect_table import compute_pearson, compute_spearman
from jumok.lens.effects.metrics import (
    ClassScore,
    Divergence,
    LogitDifference,
    LogProbability,
    Loss,
    Metric,
    Similarity,
    Value,
    extract_answer,
)
from jumok.models.numeric import Numeric, NumericConfig
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.swin import Swin, SwinConfig
from jumok.tap import listen
from small_transformers.model_classes import list_model_classes
from small_transformers.small_model import build_small_model

TEXT = test_lens.TOKENS[:1]


def select_first_text(model_input: Any) -> Any:
    return model_input[:1] if isinstance(model_input, Tensor) else model_input


JUMOK_MODELS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    name: (
        build,
        tuple(select_first_text(model_input) for model_input in inputs),
        {key: select_first_text(setting) for key, setting in settings.items()},
    )
    for name, (build, inputs, settings) in test_lens.MODELS.items()
}
JUMOK_MODELS["rnn"] = (
    lambda: test_lens.build_model(RNNSeq2Seq, RNNSeq2SeqConfig(vocabulary=40, embedding_width=12, width=12)),
    (TEXT, test_lens.TARGETS[:1]),
    {},
)
JUMOK_MODELS["numeric"] = (
    # in float64: its outputs are large numbers compared with the effects
    lambda: test_lens.build_model(Numeric, NumericConfig(width=24, layers=2, heads=4, hidden=32), 1).double(),
    (torch.tensor([[3.0, 5.0, 8.0]]).double(), torch.tensor([[4.0, 6.0]]).double()),
    {},
)
JUMOK_MODELS["swin"] = (
    lambda: test_lens.build_model(
        Swin, SwinConfig(image=(16, 16), patch=(2, 2), channels=1, width=16, depths=(2, 2), heads=(2, 4), window=4)
    ),
    (torch.randn(1, 1, 16, 16, generator=torch.Generator().manual_seed(2)),),
    {},
)
TRANSFORMERS_MODELS = sorted(set(test_lens_huggingface.MODELS) - {"clip"})


def list_cases() -> list[Any]:
    jumok_cases = [pytest.param(*case, id=f"jumok: {name}") for name, case in JUMOK_MODELS.items()]
    transformers_cases = [
        pytest.param(
            lambda name=name: test_lens_huggingface.build_model(name),
            (),
            select_one_text(name),
            id=f"transformers: {name}",
        )
        for name in TRANSFORMERS_MODELS
    ]
    return jumok_cases + transformers_cases


def select_one_text(name: str) -> dict[str, Any]:
    """The inputs of one text without padding, because copies of it fill the batch."""
    inputs = {key: tensor[:1] for key, tensor in test_lens_huggingface.MODELS[name][2].items()}
    return {key: torch.ones_like(tensor) if key == "attention_mask" else tensor for key, tensor in inputs.items()}


def measure_alone(model: Any, inputs: Any, settings: Any, edit: Any, metric: Metric) -> float:
    """The effect of an edit in a separate, complete forward pass."""
    with Lens(model) as lens:
        clean, edited = (
            extract_answer(lens.run(*inputs, edits=edits, logits=True, **settings).output).tensor
            for edits in ((), (edit,))
        )
    return float(metric(edited, clean)[0] - metric(clean, clean)[0])


def choose_metric(model: Any, inputs: Any, settings: Any) -> Metric:
    with torch.no_grad():
        answer = extract_answer(model(*inputs, **settings))
    if answer.kind != "logits":
        return Value() if answer.kind == "numbers" else Similarity()
    return ClassScore(1) if answer.tensor.dim() == 2 else LogitDifference(5, 7)


@pytest.mark.parametrize(("build", "inputs", "settings"), list_cases())
def test_heads_in_a_batch_equal_heads_measured_alone(build: Any, inputs: Any, settings: Any) -> None:
    model = build()
    metric = choose_metric(model, inputs, settings)
    effects = jumok.effect(model, *inputs, metric=metric, **settings)
    with Lens(model) as lens:
        capture = lens.run(*inputs, **settings)
    assert len(effects.rows) == sum(attention.heads for attention in capture.attentions.values())
    assert any(abs(row.effect) > 1e-6 for row in effects.rows), "at least one head has an effect"
    for row in effects.rows:
        expected = measure_alone(model, inputs, settings, row.edit, metric)
        assert row.effect == pytest.approx(expected, abs=2e-5), row


#: one list of layers in another, inputs changed in place, several streams, positions before the batch
UNUSUAL_BLOCKS = ("LongcatFlashForCausalLM", "XLMWithLMHeadModel", "Gemma3nForCausalLM", "XLNetLMHeadModel")


@pytest.mark.parametrize("name", UNUSUAL_BLOCKS)
def test_unusual_blocks_are_repeated_for_a_batch(name: str) -> None:
    model = build_small_model(next(entry for entry in list_model_classes() if entry.name == name))
    metric = LogitDifference(5, 7)
    effects = jumok.effect(model, input_ids=TEXT, metric=metric)
    assert len({row.layer for row in effects}) > 1
    for row in (effects[0], effects[-1]):
        expected = measure_alone(model, (), {"input_ids": TEXT}, row.edit, metric)
        assert row.effect == pytest.approx(expected, abs=2e-5), row


REPLAYED = ("gpt", "llama, grouped, window", "bert, padded", "t5", "rnn", "swin")


@pytest.mark.parametrize("name", REPLAYED)
def test_every_edit_of_heads_gives_its_effect_again(name: str) -> None:
    """By mean and resample, of the text itself and of another one; the tests above and below replay zeros and edges."""
    build, inputs, settings = JUMOK_MODELS[name]
    model = build()
    metric = choose_metric(model, inputs, settings)
    with Lens(model) as lens:
        source = lens.run(*(part.flip(-1) for part in inputs), keep="output", name="flipped", **settings)
    measured = []
    for by, read in (("mean", None), ("resample", None), ("mean", source), ("resample", source)):
        options: dict[str, Any] = {"metric": metric, "by": by, "seed": 4, "source": read, **settings}
        options["layers"] = ["encoder.1", "decoder.1.cross"] if name == "t5" else None
        if name == "rnn" and read is None:
            with pytest.raises(ArgumentError, match="cross has no self-attention that decides which positions"):
                jumok.effect(model, *inputs, **options)
            continue
        effects = jumok.effect(model, *inputs, **options)
        fields = effects.to_json()
        assert (fields["by"], fields["seed"], fields["ablation_source"]) == (by, 4, "flipped" if read else None)
        assert fields["model"] == type(model).__name__ and fields["metric_fields"] == metric.to_json()
        assert all(isinstance(row.edit, Ablate) and row.edit.source is read for row in effects)
        measured.append(effects)
    assert len({effects[0].effect for effects in measured}) > 1 or name == "rnn", "the ways of ablating differ"
    with Lens(model) as lens:
        clean = extract_answer(lens.run(*inputs, logits=True, **settings).output).tensor
        for effects, row in [(group, row) for group in measured for row in group]:
            edited = lens.run(*inputs, edits=row.edit, logits=True, **settings).output
            expected = float(effects.metric(extract_answer(edited).tensor, clean)[0]) - effects.clean
            assert row.effect == pytest.approx(expected, abs=2e-5), row


@pytest.mark.parametrize(("build", "inputs", "settings"), [case for case in list_cases() if "swin" not in str(case.id)])
def test_edges_in_a_batch_equal_edges_measured_alone(build: Any, inputs: Any, settings: Any) -> None:
    model = build()
    metric = choose_metric(model, inputs, settings)
    effects = jumok.effect(model, *inputs, metric=metric, over="edges", verify=4, controls=5, **settings)
    for row in (*effects.rows, *effects.sampled[:4]):
        expected = measure_alone(model, inputs, settings, row.edit, metric)
        assert row.effect == pytest.approx(expected, abs=2e-5), row


def test_edges_of_windows_raise() -> None:
    build, inputs, _ = JUMOK_MODELS["swin"]
    with pytest.raises(ArgumentError, match="attends inside windows"):
        jumok.effect(build(), *inputs, over="edges")


def test_the_gradient_finds_the_largest_edges() -> None:
    """Verified against all edges of 16 tokens and 4 layers."""
    model = test_lens.build_model(
        test_lens.GPT, test_lens.GPTConfig(vocabulary=40, length=16, width=24, layers=4, heads=4), 2
    )
    text = torch.randint(1, 40, (1, 16), generator=torch.Generator().manual_seed(8))
    every = jumok.effect(model, text, metric=LogProbability(9), over="edges", verify=None)
    assert len(every.rows) == 4 * 4 * 16 * 17 // 2
    largest = {(row.layer, row.head, row.query, row.key) for row in every.top(20)}
    screened = jumok.effect(model, text, metric=LogProbability(9), over="edges", verify=40)
    verified = {(row.layer, row.head, row.query, row.key) for row in screened.rows}
    assert len(largest & verified) >= 18
    assert every.agreement is not None and every.agreement > 0.9
    for row in screened.rows:
        expected = every.get(row.layer, row.head, row.query, row.key)
        assert (row.effect, row.estimate) == pytest.approx((expected.effect, expected.estimate), abs=2e-6)


def test_the_estimate_is_the_derivative_along_the_edit() -> None:
    """Compared with a finite difference in float64: 1e-5 of the change that the edit makes to the head's output."""
    model = test_lens.build_gpt(groups=2).double()
    metric, step = LogProbability(9), 1e-5
    with Lens(model) as lens:
        runner = EditRunner(lens, (TEXT,), {}, metric)
        gradients = runner.compute_gradients()
        for layer, head, query, key in ((0, 0, 7, 2), (0, 3, 10, 10), (1, 2, 10, 4), (0, 1, 0, 0)):
            site = runner.capture.sites.find(layer)
            edit = KnockOut(layer=layer, head=head, query=query, key=key)
            edited = lens.run(TEXT, edits=edit, keep=("output",))
            change = edited.activations[f"{site}.output"] - runner.capture.activations[f"{site}.output"]
            change[:, [other for other in range(4) if other != head]] = 0

            def add_change(tap_site: str, value: Any, site: str = site, change: Tensor = change) -> Any:
                return value + step * change if tap_site == f"{site}.output" else value

            with torch.no_grad(), listen(add_change):
                moved = float(metric(model(TEXT).logits, runner.clean_answer)[0])
            weights = runner.capture.weights(layer, head)
            estimates = estimate_edge_effects(runner, site, head, weights, gradients[site][head])
            expected = (moved - runner.clean_value) / step
            assert float(estimates[query, key]) == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_edges_are_ranked_among_edges_of_similar_weight() -> None:
    effects = jumok.effect(jumok.load("tiny"), "the cat sat; the cat", over="edges", verify=8, controls=10)
    first = effects.rows[0]
    edge = first.layer, first.head, first.query, first.key
    assert edge == (1, 0, 19, 7), "the induction head attends to the token after 'the cat'"
    assert first.rank == 1 and first.of == 11
    assert all(row.rank is not None and 1 <= row.rank <= 11 for row in effects.rows)
    assert any(row.rank != 1 for row in effects.rows), "not every edge with a large weight matters"


def test_random_edges_exceed_their_controls_as_rarely_as_stated() -> None:
    """With every edge chosen, none is chosen for its effect: 1 in 21 has a larger effect than its 20 controls."""
    for text in ("the cat sat; the cat", "one two one t"):
        effects = jumok.effect("tiny", text, over="edges", verify=None)
        beyond, expected = effects.beyond_controls
        assert expected == pytest.approx(len(effects) / 21)
        assert 0.5 * expected < beyond < 1.5 * expected
        chosen = jumok.effect("tiny", text, over="edges")
        fields = chosen.to_json()["beyond_controls"]
        assert fields["edges"] > 2 * fields["expected_of_random_edges"], "edges of large estimates do so more often"
    with pytest.raises(ArgumentError, match="heads have no controls"):
        _ = jumok.effect("tiny", "the cat").beyond_controls


def test_controls_are_the_edges_of_most_similar_weight() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [0.3, 0.31, 0.39]])
    tables = EdgeTables({("a", 0): weights}, {("a", 0): weights})
    pool = tables.list_all()
    assert len(pool) == 8, "a cell with weight 0 is not an edge"

    def compute_difference(edge: Edge, other: Edge) -> float:
        return abs(math.log(tables.get_weight(other)) - math.log(tables.get_weight(edge)))

    for edge in pool:
        differences = sorted(compute_difference(edge, other) for other in pool if other != edge)
        controls = SimilarWeightFinder(tables, pool).find(edge, 3)
        assert [compute_difference(edge, control) for control in controls] == pytest.approx(differences[:3])
    assert tables.find_largest(tables.weights, 2) == [Edge("a", 0, 1, 2), Edge("a", 0, 0, 0)]


def test_edges_of_the_largest_weight_are_measured_whatever_their_estimate() -> None:
    tiny = jumok.load("tiny")
    effects = jumok.effect(tiny, "the cat sat; the cat", over="edges", verify=4, controls=3)
    with Lens(tiny) as lens:
        capture = lens.run("the cat sat; the cat")
    largest = max(float(capture.weights(layer, head).max()) for layer in (0, 1) for head in (0, 1))
    assert max(row.weight or 0 for row in effects.rows) == pytest.approx(largest)
    relation = effects.weight_and_effect
    assert relation.edges == len(effects.sampled) and not relation.every, "correlations use random edges only"


def test_heads_are_ranked_among_all_heads() -> None:
    effects = jumok.effect(test_lens.build_gpt(), TEXT, metric=Divergence())
    assert [row.rank for row in effects.rows] == list(range(1, 9)) and all(row.of == 8 for row in effects.rows)
    sizes = [abs(row.effect) for row in effects.rows]
    assert sizes == sorted(sizes, reverse=True)


def test_tiny_copies_with_its_induction_head() -> None:
    """Without head 0 of block 1 the copy is lost; ablating the untrained head 1 changes nothing."""
    tiny = jumok.load("tiny")
    effects = jumok.effect(tiny, "qzv kxw pmf qzv kx", metric=LogProbability("w"))
    assert effects.clean > -0.2
    assert effects.get(1, 0).effect < -2
    assert effects.get(1, 1).effect == pytest.approx(0, abs=1e-6)  # batches of another size round differently


def test_the_relation_of_weights_and_effects() -> None:
    effects = jumok.effect(jumok.load("tiny"), "the cat sat; the cat", over="edges", verify=None)
    relation = effects.weight_and_effect
    weights = [row.weight or 0.0 for row in effects.rows]
    sizes = [abs(row.effect) for row in effects.rows]
    correlation = torch.corrcoef(torch.tensor([weights, sizes], dtype=torch.float64))[0, 1]
    assert relation.pearson == pytest.approx(float(correlation))
    assert relation.edges == len(effects.rows) == 4 * 20 * 21 // 2
    largest = max(sizes)
    assert all(abs(edge.effect) <= 0.01 * largest for edge in relation.looked_at_but_useless)
    assert all((edge.weight or 0) > 0.8 for edge in relation.looked_at_but_useless)
    assert all((edge.weight or 1) < 0.05 for edge in relation.useful_but_little_looked_at)
    assert effects.to_json()["weight_and_effect"]["edges"] == relation.edges


def test_correlations_equal_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    left, right = [1.0, 2.0, 2.0, 5.0, -3.0, 0.5], [0.1, 0.4, 0.4, 0.2, -1.0, 7.0]
    assert compute_pearson(left, right) == pytest.approx(stats.pearsonr(left, right).statistic)
    assert compute_spearman(left, right) == pytest.approx(stats.spearmanr(left, right).statistic)
    assert compute_pearson([1.0, 1.0], [2.0, 3.0]) == 0


def test_metrics_equal_torch() -> None:
    logits = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0))
    clean = logits[:1]
    log_probabilities = logits.log_softmax(-1)
    assert torch.allclose(LogProbability(2, 1)(logits, clean), log_probabilities[:, 1, 2])
    assert torch.allclose(LogitDifference(2, 3)(logits, clean), logits[:, -1, 2] - logits[:, -1, 3])
    text = (4, 1, 6, 0)
    expected = torch.nn.functional.cross_entropy(logits[1, :3], torch.tensor(text[1:]))
    assert torch.allclose(Loss(text)(logits, clean)[1], expected)
    divergence = Divergence()(logits, clean)
    expected = torch.nn.functional.kl_div(
        log_probabilities[1, -1], log_probabilities[0, -1], log_target=True, reduction="sum"
    )
    assert divergence[0] == 0 and torch.allclose(divergence[1], expected)
    assert torch.allclose(ClassScore(1)(logits[:, 0], clean[:, 0]), log_probabilities[:, 0, 1])
    assert Similarity()(logits, clean)[0] == pytest.approx(1)


def test_tokens_may_be_given_as_text() -> None:
    tiny = jumok.load("tiny")
    effects = jumok.effect(tiny, "ab ab a", metric=LogitDifference("b", "a"))
    assert str(effects.metric).startswith(f"logit of token {ord('b')} minus that of token {ord('a')}")
    with pytest.raises(ArgumentError, match="'주' is 3 tokens"):
        jumok.effect(tiny, "ab", metric=LogProbability("주"))
    with pytest.raises(ArgumentError, match="needs a tokenizer"):
        jumok.effect(tiny.model, [97, 98], metric=LogProbability("a"))


def test_divergence_is_estimated_by_another_gradient() -> None:
    model = test_lens.build_gpt()
    effects = jumok.effect(model, TEXT, metric=Divergence(), over="edges", verify=None)
    assert all(row.effect > -1e-6 for row in effects.rows) and any(row.estimate for row in effects.rows)
    assert effects.agreement is not None and effects.agreement > 0.5


def test_vectors_are_measured_by_similarity_only() -> None:
    build, inputs, settings = JUMOK_MODELS["bert, padded"]
    effects = jumok.effect(build(), *inputs, over="edges", verify=3, controls=3, **settings)
    assert effects.clean == pytest.approx(1) and str(effects.metric) == "cosine to the clean answer"
    with pytest.raises(ArgumentError, match="outputs vectors and no logits, which LogProbability cannot measure"):
        jumok.effect(build(), *inputs, metric=LogProbability(3), **settings)


with Lens(test_lens.build_gpt()) as opened:
    CAPTURE = opened.run(TEXT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"over": "layers"}, "over must be one of heads, edges"),
        ({"by": "noise"}, "by must be one of zero, mean, resample"),
        ({"source": CAPTURE}, 'read only by by="mean" and by="resample"'),
        ({"over": "edges", "verify": 0}, "at least 1, or None to measure every edge"),
        ({"metric": LogProbability(5000)}, "the logits have 256 entries"),
        ({"metric": LogProbability(5, position=99)}, "99 is not one of them"),
        ({"metric": ClassScore(1)}, "has no classes"),
        ({"layers": [7]}, "there are 2 layers"),
    ],
)
def test_invalid_options_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        jumok.effect(jumok.load("tiny"), "the cat", **options)
    with pytest.raises(ArgumentError, match="one text at a time, not 2"):
        jumok.effect(test_lens.build_gpt(), test_lens.TOKENS)
    with pytest.raises(ArgumentError, match="one text at a time, not 2"):
        jumok.effect(test_lens.build_gpt(), tokens=test_lens.TOKENS)


def test_effect_reports_progress_and_leaves_nothing_behind() -> None:
    model = test_lens.build_gpt()
    reports: list[tuple[int, int]] = []
    before = model(TEXT).logits
    jumok.effect(model, TEXT, progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (8, 8)
    assert not any("forward" in module.__dict__ or module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(model(TEXT).logits, before)


def test_the_command_offers_every_metric() -> None:
    from jumok.cli.effect import METRICS

    assert tuple(Metric.kinds) == METRICS
