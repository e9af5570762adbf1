"""Effects: many edits in one batch, restarted in the middle, give the numbers of one ordinary run each; the gradient's
screen is checked against every edge; controls and ranks are what they say."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import jumok
import test_lens
import test_lens_huggingface as theirs
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Effects, KnockOut, Lens
from jumok.lens.effects.edit_bench import EditRunner
from jumok.lens.effects.effect_table import pearson, spearman
from jumok.lens.effects.measure import _Alike, _Known, estimate_edge_effects
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

TEXT = test_lens.TOKENS[:1]


def first(given: Any) -> Any:
    return given[:1] if isinstance(given, Tensor) else given


OURS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    name: (make, tuple(first(one) for one in inputs), {key: first(one) for key, one in settings.items()})
    for name, (make, inputs, settings) in test_lens.MODELS.items()
}
OURS["rnn"] = (
    lambda: test_lens.drawn(RNNSeq2Seq, RNNSeq2SeqConfig(vocabulary=40, embedding_width=12, width=12)),
    (TEXT, test_lens.OTHERS[:1]),
    {},
)
OURS["numeric"] = (
    # in float64: its answers are large numbers, and effects are small beside them
    lambda: test_lens.drawn(Numeric, NumericConfig(width=24, layers=2, heads=4, hidden=32), 1).double(),
    (torch.tensor([[3.0, 5.0, 8.0]]).double(), torch.tensor([[4.0, 6.0]]).double()),
    {},
)
OURS["swin"] = (
    lambda: test_lens.drawn(
        Swin, SwinConfig(image=(16, 16), patch=(2, 2), channels=1, width=16, depths=(2, 2), heads=(2, 4), window=4)
    ),
    (torch.randn(1, 1, 16, 16, generator=torch.Generator().manual_seed(2)),),
    {},
)
THEIRS = sorted(set(theirs.MODELS) - {"clip"})


def cases() -> list[Any]:
    return [pytest.param(*one, id=f"ours: {name}") for name, one in OURS.items()] + [
        pytest.param(lambda name=name: theirs.made(name), (), _one(name), id=f"theirs: {name}") for name in THEIRS
    ]


def _one(name: str) -> dict[str, Any]:
    """One text, not padded: copies of it fill the batch."""
    inputs = {key: value[:1] for key, value in theirs.MODELS[name][2].items()}
    return {key: torch.ones_like(value) if key == "attention_mask" else value for key, value in inputs.items()}


def by_hand(model: Any, inputs: Any, settings: Any, edit: Any, effects: Effects, metric: Metric) -> float:
    """The same edit, alone, in an ordinary run from the beginning."""
    with Lens(model) as lens:
        clean, cut = (
            extract_answer(lens.run(*inputs, edits=edits, logits=True, **settings).output)[0] for edits in ((), (edit,))
        )
    return float(metric(cut, clean)[0] - metric(clean, clean)[0])


def metric_for(model: Any, inputs: Any, settings: Any) -> Metric:
    with torch.no_grad():
        found, kind = extract_answer(model(*inputs, **settings))
    if kind != "logits":
        return Value() if kind == "numbers" else Similarity()
    return ClassScore(1) if found.dim() == 2 else LogitDifference(5, 7)


@pytest.mark.parametrize(("make", "inputs", "settings"), cases())
def test_every_head_in_a_batch_is_every_head_alone(make: Any, inputs: Any, settings: Any) -> None:
    model = make()
    metric = metric_for(model, inputs, settings)
    effects = jumok.effect(model, *inputs, metric=metric, **settings)
    with Lens(model) as lens:
        run = lens.run(*inputs, **settings)
    assert len(effects.rows) == sum(one.heads for one in run.attentions.values())
    assert len({abs(one.effect) > 1e-6 for one in effects.rows} & {True}) == 1, "something must matter"
    for row in effects.rows:
        wanted = by_hand(model, inputs, settings, row.edit, effects, metric)
        assert row.effect == pytest.approx(wanted, abs=2e-5), row


def test_a_recurrent_decoder_is_silenced_step_by_step() -> None:
    inputs, metric = OURS["rnn"][1], LogProbability(5)
    model = test_lens.drawn(RNNSeq2Seq, RNNSeq2SeqConfig(vocabulary=40, embedding_width=12, width=12)).double()
    with torch.no_grad():  # sharper, so that steps look at different places
        model.cross.score.query_matrix.mul_(20)
        model.cross.score.vector.mul_(20)
    effects = jumok.effect(model, *inputs, metric=metric, by="resample", seed=2)
    with Lens(model) as lens:
        kept = lens.run(*inputs, keep=("output",)).kept["cross.output"]
    draw = torch.Generator().manual_seed(2)
    count = kept.shape[2]
    rows = (torch.arange(count) + torch.randint(1, count, (count,), generator=draw)) % count
    assert all(row != place for place, row in enumerate(rows.tolist()))
    steps = iter(rows.tolist())  # every step takes what another step saw

    def replaced(site: str, value: Any) -> Any:
        return kept[:, :, [next(steps)]] if site == "cross.output" else value

    with torch.no_grad(), listen(replaced):
        cut = model(*inputs).logits
    wanted = float(metric(cut, cut)[0]) - effects.clean
    assert effects.rows[0].effect == pytest.approx(wanted, rel=1e-3) and abs(wanted) > 1e-6


@pytest.mark.parametrize("by", ["zero", "mean", "resample"])
def test_heads_are_silenced_as_ablate_does_it(by: str) -> None:
    model = test_lens.gpt()
    metric = Divergence(position=3)
    effects = jumok.effect(model, TEXT, metric=metric, by=by, seed=4)
    for row in effects.rows:
        edit = Ablate(layer=row.layer, head=row.head, by=by, seed=4)
        assert row.effect == pytest.approx(by_hand(model, (TEXT,), {}, edit, effects, metric), abs=2e-5)


@pytest.mark.parametrize(("make", "inputs", "settings"), [one for one in cases() if "swin" not in str(one.id)])
def test_every_edge_in_a_batch_is_every_edge_alone(make: Any, inputs: Any, settings: Any) -> None:
    model = make()
    metric = metric_for(model, inputs, settings)
    effects = jumok.effect(model, *inputs, metric=metric, over="edges", verify=4, controls=5, **settings)
    for row in (*effects.rows, *effects.sampled[:4]):
        wanted = by_hand(model, inputs, settings, row.edit, effects, metric)
        assert row.effect == pytest.approx(wanted, abs=2e-5), row


def test_edges_of_windows_are_refused() -> None:
    make, inputs, _ = OURS["swin"]
    with pytest.raises(ArgumentError, match="looks inside windows"):
        jumok.effect(make(), *inputs, over="edges")


def test_the_screen_is_checked_by_every_edge() -> None:
    """16 tokens, 4 layers: the edges that the gradient finds largest are largest."""
    model = test_lens.drawn(
        test_lens.GPT, test_lens.GPTConfig(vocabulary=40, length=16, width=24, layers=4, heads=4), 2
    )
    text = torch.randint(1, 40, (1, 16), generator=torch.Generator().manual_seed(8))
    every = jumok.effect(model, text, metric=LogProbability(9), over="edges", verify=None)
    assert len(every.rows) == 4 * 4 * 16 * 17 // 2
    largest = {(one.layer, one.head, one.query, one.key) for one in every.top(20)}
    screened = jumok.effect(model, text, metric=LogProbability(9), over="edges", verify=40)
    found = {(one.layer, one.head, one.query, one.key) for one in screened.rows}
    assert len(largest & found) >= 18
    assert every.agreement is not None and every.agreement > 0.9
    for one in screened.rows:
        same = every.of(one.layer, one.head, one.query, one.key)
        assert (one.effect, one.estimate) == pytest.approx((same.effect, same.estimate), abs=2e-6)


def test_the_estimate_is_the_slope_of_the_cut() -> None:
    """A hundred-thousandth of what the cut does to the head, a hundred thousand times: in float64 that is the slope."""
    model = test_lens.gpt(groups=2).double()
    metric, step = LogProbability(9), 1e-5
    with Lens(model) as lens:
        bench = EditRunner(lens, (TEXT,), {}, metric)
        gradients = bench.gradients()
        for layer, head, query, key in ((0, 0, 7, 2), (0, 3, 10, 10), (1, 2, 10, 4), (0, 1, 0, 0)):
            site = bench.run.sites.find(layer)
            cut = lens.run(TEXT, edits=KnockOut(layer=layer, head=head, query=query, key=key), keep=("output",))
            change = cut.kept[f"{site}.output"] - bench.run.kept[f"{site}.output"]
            change[:, [one for one in range(4) if one != head]] = 0

            def nudged(at: str, value: Any, site: str = site, change: Tensor = change) -> Any:
                return value + step * change if at == f"{site}.output" else value

            with torch.no_grad(), listen(nudged):
                moved = float(metric(model(TEXT).logits, bench.clean)[0])
            weights = bench.run.weights(layer, head)
            found = estimate_edge_effects(bench, site, head, weights, gradients[site][head])[query, key]
            assert float(found) == pytest.approx((moved - bench.value) / step, rel=1e-3, abs=1e-5)


def test_a_rank_is_counted_among_edges_of_equal_weight() -> None:
    effects = jumok.effect(jumok.load("tiny"), "the cat sat; the cat", over="edges", verify=8, controls=10)
    head = effects.rows[0]
    assert (head.layer, head.head, head.query, head.key) == (1, 0, 19, 7), "the induction head looks behind 'the cat'"
    assert head.rank == 1 and head.of == 11 and head.p == pytest.approx(1 / 11)
    assert all(one.rank is not None and 1 <= one.rank <= 11 for one in effects.rows)
    ranks = [one.rank for one in effects.rows]
    assert max(rank for rank in ranks if rank is not None) > 1, "not everything that is looked at matters"


def test_controls_are_the_edges_of_nearest_weight() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [0.3, 0.31, 0.39]])
    known = _Known({("a", 0): weights}, {("a", 0): weights})
    pool = known.all()
    assert len(pool) == 8, "what has no weight is no edge"
    for edge in pool:
        own = math.log(known.weight(edge))
        others = sorted(abs(math.log(known.weight(one)) - own) for one in pool if one != edge)
        found = _Alike(known, pool)(edge, 3)
        assert [abs(math.log(known.weight(one)) - own) for one in found] == pytest.approx(others[:3])
    assert known.largest({("a", 0): weights}, 2) == [("a", 0, 1, 2), ("a", 0, 0, 0)]


def test_the_most_looked_at_edges_are_cut_whatever_the_gradient_says() -> None:
    tiny = jumok.load("tiny")
    effects = jumok.effect(tiny, "the cat sat; the cat", over="edges", verify=4, controls=3)
    with Lens(tiny) as lens:
        run = lens.run("the cat sat; the cat")
    largest = sorted((float(run.weights(layer, head).max()) for layer in (0, 1) for head in (0, 1)), reverse=True)
    assert max(one.weight or 0 for one in effects.rows) == pytest.approx(largest[0])
    told = effects.weight_and_effect
    assert told.edges == len(effects.sampled) and not told.every, "a correlation is of random edges alone"


def test_heads_are_ranked_among_all_heads() -> None:
    effects = jumok.effect(test_lens.gpt(), TEXT, metric=Divergence())
    assert [one.rank for one in effects.rows] == list(range(1, 9)) and all(one.of == 8 for one in effects.rows)
    sizes = [abs(one.effect) for one in effects.rows]
    assert sizes == sorted(sizes, reverse=True)


def test_the_induction_head_carries_the_copy() -> None:
    """Known of `tiny`: without block 1 head 0 the copy is lost; without the idle head 1 nothing changes."""
    tiny = jumok.load("tiny")
    effects = jumok.effect(tiny, "qzv kxw pmf qzv kx", metric=LogProbability("w"))
    assert effects.clean > -0.2
    assert effects.of(1, 0).effect < -2 and effects.of(1, 1).effect == 0


def test_what_weight_says_about_effect() -> None:
    effects = jumok.effect(jumok.load("tiny"), "the cat sat; the cat", over="edges", verify=None)
    told = effects.weight_and_effect
    weights, sizes = [one.weight or 0.0 for one in effects.rows], [abs(one.effect) for one in effects.rows]
    both = torch.corrcoef(torch.tensor([weights, sizes], dtype=torch.float64))[0, 1]
    assert told.pearson == pytest.approx(float(both)) and told.edges == len(effects.rows) == 4 * 20 * 21 // 2
    largest = max(sizes)
    assert all(abs(one.effect) < 0.05 * largest for one in told.looked_at_but_useless)
    assert all((one.weight or 0) > 0.9 for one in told.looked_at_but_useless), "first tokens look at themselves alone"
    assert all((one.weight or 1) < 0.05 for one in told.useful_but_little_looked_at)
    assert effects.to_json()["weight_and_effect"]["edges"] == told.edges


def test_correlations_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    left, right = [1.0, 2.0, 2.0, 5.0, -3.0, 0.5], [0.1, 0.4, 0.4, 0.2, -1.0, 7.0]
    assert pearson(left, right) == pytest.approx(stats.pearsonr(left, right).statistic)
    assert spearman(left, right) == pytest.approx(stats.spearmanr(left, right).statistic)
    assert pearson([1.0, 1.0], [2.0, 3.0]) == 0


def test_metrics_against_torch() -> None:
    logits = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0))
    clean = logits[:1]
    log = logits.log_softmax(-1)
    assert torch.allclose(LogProbability(2, 1)(logits, clean), log[:, 1, 2])
    assert torch.allclose(LogitDifference(2, 3)(logits, clean), logits[:, -1, 2] - logits[:, -1, 3])
    text = (4, 1, 6, 0)
    wanted = torch.nn.functional.cross_entropy(logits[1, :3], torch.tensor(text[1:]))
    assert torch.allclose(Loss(text)(logits, clean)[1], wanted)
    divergence = Divergence()(logits, clean)
    wanted = torch.nn.functional.kl_div(log[1, -1], log[0, -1], log_target=True, reduction="sum")
    assert divergence[0] == 0 and torch.allclose(divergence[1], wanted)
    assert torch.allclose(ClassScore(1)(logits[:, 0], clean[:, 0]), log[:, 0, 1])
    assert Similarity()(logits, clean)[0] == pytest.approx(1)


def test_tokens_may_be_written() -> None:
    tiny = jumok.load("tiny")
    effects = jumok.effect(tiny, "ab ab a", metric=LogitDifference("b", "a"))
    assert effects.metric.startswith(f"logit of token {ord('b')} minus that of token {ord('a')}")
    with pytest.raises(ArgumentError, match="'주' is 3 tokens"):
        jumok.effect(tiny, "ab", metric=LogProbability("주"))
    with pytest.raises(ArgumentError, match="needs a tokenizer"):
        jumok.effect(tiny.model, [97, 98], metric=LogProbability("a"))


def test_what_has_no_slope_is_screened_by_another() -> None:
    model = test_lens.gpt()
    effects = jumok.effect(model, TEXT, metric=Divergence(), over="edges", verify=None)
    assert all(one.effect > -1e-6 for one in effects.rows) and any(one.estimate for one in effects.rows)
    assert effects.agreement is not None and effects.agreement > 0.5


def test_vectors_are_measured_by_likeness_alone() -> None:
    make, inputs, settings = OURS["bert, padded"]
    effects = jumok.effect(make(), *inputs, over="edges", verify=3, controls=3, **settings)
    assert effects.clean == pytest.approx(1) and effects.metric == "cosine to the clean answer"
    with pytest.raises(ArgumentError, match="gives vectors, and no logits, which LogProbability cannot measure"):
        jumok.effect(make(), *inputs, metric=LogProbability(3), **settings)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"over": "layers"}, "over is one of heads, edges"),
        ({"by": "noise"}, "by is one of zero, mean, resample"),
        ({"over": "edges", "verify": 0}, "at least 1, or None for all"),
        ({"metric": LogProbability(5000)}, "the model chooses among 256"),
        ({"metric": LogProbability(5, position=99)}, "99 is none of them"),
        ({"metric": ClassScore(1)}, "gives no classes"),
        ({"layers": [7]}, "there are 2 layers"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(call: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        jumok.effect(jumok.load("tiny"), "the cat", **call)
    with pytest.raises(ArgumentError, match="one text at a time; 2 were given"):
        jumok.effect(test_lens.gpt(), test_lens.TOKENS)


def test_nothing_remains_and_progress_is_told() -> None:
    model = test_lens.gpt()
    told: list[tuple[int, int]] = []
    before = model(TEXT).logits
    jumok.effect(model, TEXT, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (8, 8)
    assert not any("forward" in module.__dict__ or module._forward_hooks for module in model.modules())
    assert all(one.grad is None for one in model.parameters())
    assert torch.equal(model(TEXT).logits, before)
