"""T5, versions 1 and 1.1, against transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import T5Config as TheirConfig
from transformers import T5ForConditionalGeneration, T5Model

import jumok
from jumok.attention import Cache
from jumok.errors import ArgumentError, CheckpointError
from jumok.models import Model
from jumok.models.t5 import T5, T5Config
from parity import assert_parity, check_round_trip

THEIRS = {
    "vocab_size": 97, "d_model": 30, "d_kv": 7, "d_ff": 41, "num_layers": 3, "num_heads": 5,
    "relative_attention_num_buckets": 10, "relative_attention_max_distance": 17, "decoder_start_token_id": 0,
}  # fmt: skip


def made(untied: bool = False, **fields: Any) -> Any:
    """Theirs. Version 5 ties every model it makes anew; an output map of its own is only known from files."""
    theirs = T5ForConditionalGeneration(TheirConfig(**{**THEIRS, **fields}))
    if untied:
        theirs.lm_head.weight = torch.nn.Parameter(torch.randn(97, 30))
    return theirs


V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
CASES: dict[str, Any] = {
    "1 tied": made,
    "1.1 untied": lambda: made(True, **V1_1),
    "1.1 with a tied map": lambda: made(**V1_1),
    "uneven, odd buckets": lambda: made(d_kv=3, num_decoder_layers=2, relative_attention_num_buckets=13),
    "gated silu, epsilon": lambda: made(True, feed_forward_proj="gated-silu", tie_word_embeddings=False,
                                        layer_norm_epsilon=1e-3),
    "gelu, one head": lambda: made(feed_forward_proj="gelu", num_heads=1, d_kv=11),
}  # fmt: skip

SOURCE, TARGET = 25, 20


def real_tokens(side: str) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The second row is shorter in both; the two lengths differ."""
    if side == "none":
        return None, None
    source, target = torch.ones(2, SOURCE).bool(), torch.ones(2, TARGET).bool()
    source[1, 16:], target[1, 7:] = False, False
    return (source, target) if side == "right" else (source.flip(1), target.flip(1))


@pytest.mark.parametrize("side", ["none", "right", "left"])
@pytest.mark.parametrize("name", CASES)
def test_logits_are_transformers(name: str, side: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    source, target = torch.randint(97, (2, SOURCE)), torch.randint(97, (2, TARGET))
    source_real, target_real = real_tokens(side)

    def check(ours: Model, theirs: Any) -> None:
        settings: dict[str, Any] = {}
        if source_real is not None and target_real is not None:
            settings = {"attention_mask": source_real.long(), "decoder_attention_mask": target_real.long()}
        wanted = theirs(source, decoder_input_ids=target, **settings)
        found = ours(source, target, source_token_mask=source_real, target_token_mask=target_real)
        assert_parity(found.logits, wanted.logits, target_real)
        assert_parity(ours.encode(source, source_token_mask=source_real), wanted.encoder_last_hidden_state, source_real)

    model = check_round_trip(CASES[name](), tmp_path, check)
    assert isinstance(model, T5)
    assert model.config.tied == (not name.startswith(("1.1", "gated")))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_tied_and_scaled_are_two_things(tied: bool, scaled: bool, tmp_path: Path) -> None:
    ours = T5(CONFIGS["1.1"].replace(tied=tied, scaled_output=scaled)).eval()
    jumok.save(ours, tmp_path / "ours", format="huggingface")
    theirs = T5ForConditionalGeneration.from_pretrained(tmp_path / "ours").eval()
    source, target = torch.randint(50, (2, 6)), torch.randint(50, (2, 5))
    with torch.no_grad():
        assert_parity(ours(source, target).logits, theirs(source, decoder_input_ids=target).logits)
        assert_parity(jumok.load(tmp_path / "ours").model(source, target).logits, ours(source, target).logits)


def test_a_folder_of_version_4_loads(tmp_path: Path) -> None:
    # there, tie_word_embeddings alone says that the output is neither tied nor scaled, and every name is written
    theirs = made(True, **V1_1).eval()
    theirs.save_pretrained(tmp_path / "old")
    told = json.loads((tmp_path / "old" / "config.json").read_text())
    for name in ("scale_decoder_outputs", "is_gated_act", "dense_act_fn", "num_decoder_layers"):
        del told[name]
    (tmp_path / "old" / "config.json").write_text(json.dumps({**told, "tie_word_embeddings": False}))
    (tmp_path / "old" / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / "old" / "pytorch_model.bin")
    source, target = torch.randint(97, (2, 6)), torch.randint(97, (2, 5))
    with torch.no_grad():
        ours = jumok.load(tmp_path / "old", pickled=True).model
        assert_parity(ours(source, target).logits, theirs(source, decoder_input_ids=target).logits)


def test_a_folder_without_a_head_loads(tmp_path: Path) -> None:
    theirs = T5Model(TheirConfig(**THEIRS)).eval()
    theirs.save_pretrained(tmp_path / "bare")
    source, target = torch.randint(97, (2, 6)), torch.randint(97, (2, 5))
    with torch.no_grad():
        wanted = theirs(source, decoder_input_ids=target).last_hidden_state
        assert_parity(jumok.load(tmp_path / "bare").model(source, target).hidden, wanted)


def test_what_is_not_supported_is_refused(tmp_path: Path) -> None:
    theirs = made(True)  # tied and scaled by its config, and yet an output map in the file
    theirs.save_pretrained(tmp_path / "torn")
    with pytest.raises(CheckpointError, match=r"'lm_head.weight' is a copy of 'shared.weight', but they differ"):
        jumok.load(tmp_path / "torn")
    told = json.loads((tmp_path / "torn" / "config.json").read_text())
    for field, sentence in {
        "is_encoder_decoder": "only True is supported",
        "feed_forward_proj": "must be text",
    }.items():
        (tmp_path / "torn" / "config.json").write_text(json.dumps({**told, field: False}))
        with pytest.raises(CheckpointError, match=sentence):
            jumok.load(tmp_path / "torn")
    (tmp_path / "torn" / "config.json").write_text(json.dumps({**told, "dense_act_fn": "tanh"}))
    with pytest.raises(ArgumentError, match="activation of the t5 config must be one of"):
        jumok.load(tmp_path / "torn")


SMALL = {
    "vocabulary": 50, "width": 24, "layers": 2, "decoder_layers": 3, "heads": 3, "head_width": 5, "hidden": 40,
    "buckets": 8, "max_distance": 7,
}  # fmt: skip
CONFIGS = {
    "1": T5Config(**SMALL),
    "1.1": T5Config(**SMALL, feedforward="gated", activation="gelu_tanh", tied=False),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_moves_when_the_future_changes(name: str) -> None:
    model = T5(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, 8)), torch.randint(50, (2, 9))
    later, other = target.clone(), source.clone()
    later[:, 5:] = (later[:, 5:] + 7) % 50
    other[:, -1] = (other[:, -1] + 7) % 50
    with torch.no_grad():
        one, two, three = model(source, target).logits, model(source, later).logits, model(other, target).logits
    assert torch.equal(one[:, :5], two[:, :5]) and not torch.allclose(one[:, 5:], two[:, 5:])
    assert not torch.allclose(one[:, 0], three[:, 0])  # the source is read to its end


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_nothing_moves_when_the_padding_changes(name: str, side: str) -> None:
    model = T5(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, SOURCE)), torch.randint(50, (2, TARGET))
    source_real, target_real = real_tokens(side)
    assert source_real is not None and target_real is not None
    other_source = torch.where(source_real, source, (source + 11) % 50)
    other_target = torch.where(target_real, target, (target + 11) % 50)
    padding = {"source_token_mask": source_real, "target_token_mask": target_real}
    with torch.no_grad():
        one = model(source, target, **padding).logits
        two = model(other_source, other_target, **padding).logits
        alone = model(source[1:, source_real[1]], target[1:, target_real[1]]).logits
    assert torch.equal(one[target_real], two[target_real])
    assert torch.allclose(one[1, target_real[1]], alone[0], atol=1e-5)


@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("name", CONFIGS)
def test_step_by_step_with_a_cache_is_the_whole(name: str, side: str) -> None:
    model = T5(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, SOURCE)), torch.randint(50, (2, TARGET))
    source_real, target_real = real_tokens(side)
    with torch.no_grad():
        whole = model(source, target, source_token_mask=source_real, target_token_mask=target_real).logits
        encoded = model.encode(source, source_token_mask=source_real)
        for capacity in (None, TARGET):
            cache, parts, end = Cache(capacity), [], 0
            for part in target.split([14, 1, 1, 4], 1):
                end += part.shape[1]
                real = None if target_real is None else target_real[:, :end]
                step = model.decode(part, encoded, source_token_mask=source_real, target_token_mask=real, cache=cache)
                parts.append(step.logits)
            assert_parity(torch.cat(parts, 1), whole, target_real)
        last = model.decode(target, encoded, source_token_mask=source_real, target_token_mask=target_real, last=2)
        assert torch.allclose(last.logits, whole[:, -2:], atol=1e-5)


def test_every_layers_weights() -> None:
    model = T5(CONFIGS["1"]).eval()
    source, target = torch.randint(50, (2, 8)), torch.randint(50, (2, 9))
    weights = model(source, target, weights=True).weights
    assert {name: [list(one.shape) for one in stack] for name, stack in weights.items()} == {
        "encoder": [[2, 3, 8, 8]] * 2,
        "decoder": [[2, 3, 9, 9]] * 3,
        "cross": [[2, 3, 9, 8]] * 3,
    }
    for stack in weights.values():
        assert torch.allclose(stack[1].sum(-1), torch.ones(()), atol=1e-5)
    assert model(source, target).weights is None


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
def test_backends_and_checkpointing_give_the_same_gradients(backend: str) -> None:
    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = T5(CONFIGS["1.1"])
        model.use_backend(backend)
        model.checkpointing = checkpointing
        model(torch.arange(16).view(2, 8), torch.arange(18).view(2, 9)).logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for one, two in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert one.abs().max() > 0  # the tables of relative biases too
        assert torch.allclose(one, two, atol=1e-5)


def test_dropout_drops_while_training_only() -> None:
    model = T5(CONFIGS["1"].replace(dropout=0.5))
    tokens = torch.randint(50, (2, 8))
    assert not torch.equal(model(tokens, tokens).logits, model(tokens, tokens).logits)
    model.eval()
    assert torch.equal(model(tokens, tokens).logits, model(tokens, tokens).logits)


def test_first_logits_are_of_size_one() -> None:
    # the two ways to the logits start alike: a tied map is scaled, one of its own is drawn smaller
    for name, config in CONFIGS.items():
        logits = T5(config.replace(width=256)).eval()(*torch.randint(50, (2, 2, 30))).logits
        assert 0.5 < float(logits.detach().std()) < 2, name


def test_first_parameters_are_drawn_as_published() -> None:
    model = T5(T5Config(vocabulary=300, width=100, heads=7, head_width=16, hidden=400, layers=1))
    attention, feedforward = model.decoder[0].cross, model.decoder[0].feedforward
    query, key, value = attention.projection.joined.weight.split(112)
    wanted = [
        (query, (100 * 16) ** -0.5),
        (key, 100**-0.5),
        (value, 100**-0.5),
        (attention.output.weight, 112**-0.5),
        (feedforward.inner.weight, 100**-0.5),
        (feedforward.outer.weight, 400**-0.5),
        (model.embedding.weight, 1.0),
        (model.encoder_bias.weight, 100**-0.5),
    ]
    for parameter, deviation in wanted:
        assert float(parameter.detach().std()) == pytest.approx(deviation, rel=0.15)


def test_t5_small_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        assert T5(T5Config()).parameter_count == 60_506_624
        # version 1.1 small: https://huggingface.co/google/t5-v1_1-small
        newer = T5Config(layers=8, heads=6, hidden=1024, feedforward="gated", activation="gelu_tanh", tied=False)
        assert T5(newer).parameter_count == 76_961_152


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"buckets": 40, "max_distance": 20}, "max_distance must be above 20"),
        ({"start": 50}, "start is token 50, but the vocabulary has 50 tokens"),
        ({"feedforward": "swish"}, "feedforward of the t5 config must be one of plain, gated"),
    ],
)
def test_a_config_that_cannot_be_meant(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        CONFIGS["1"].replace(**fields)


def test_tokens_that_are_not_there() -> None:
    model = T5(CONFIGS["1"])
    good, bad = torch.tensor([[1, 2]]), torch.tensor([[1, 50]])
    for source, target in ((good, bad), (bad, good)):
        with pytest.raises(ArgumentError, match="token 50 is out of range"):
            model(source, target)
