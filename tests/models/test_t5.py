"""Compare T5, versions 1 and 1.1, with transformers."""

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

SIZES = {
    "vocab_size": 97, "d_model": 30, "d_kv": 7, "d_ff": 41, "num_layers": 3, "num_heads": 5,
    "relative_attention_num_buckets": 10, "relative_attention_max_distance": 17, "decoder_start_token_id": 0,
}  # fmt: skip


def build_reference(untied: bool = False, **fields: Any) -> Any:
    """Build a T5 of transformers. Version 5 ties every new model, so an untied output layer is set here."""
    reference = T5ForConditionalGeneration(TheirConfig(**{**SIZES, **fields}))
    if untied:
        reference.lm_head.weight = torch.nn.Parameter(torch.randn(97, 30))
    return reference


V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
CASES: dict[str, Any] = {
    "1 tied": build_reference,
    "1.1 untied": lambda: build_reference(True, **V1_1),
    "1.1 with a tied output": lambda: build_reference(**V1_1),
    "uneven, odd buckets": lambda: build_reference(d_kv=3, num_decoder_layers=2, relative_attention_num_buckets=13),
    "gated silu, epsilon": lambda: build_reference(True, feed_forward_proj="gated-silu", tie_word_embeddings=False,
                                        layer_norm_epsilon=1e-3),
    "gelu, one head": lambda: build_reference(feed_forward_proj="gelu", num_heads=1, d_kv=11),
}  # fmt: skip

SOURCE, TARGET = 25, 20


def build_token_masks(side: str) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return masks of source and target; the second row is shorter in both, by different lengths."""
    if side == "none":
        return None, None
    source, target = torch.ones(2, SOURCE).bool(), torch.ones(2, TARGET).bool()
    source[1, 16:], target[1, 7:] = False, False
    return (source, target) if side == "right" else (source.flip(1), target.flip(1))


@pytest.mark.parametrize("side", ["none", "right", "left"])
@pytest.mark.parametrize("name", CASES)
def test_logits_equal_transformers(name: str, side: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    source, target = torch.randint(97, (2, SOURCE)), torch.randint(97, (2, TARGET))
    source_mask, target_mask = build_token_masks(side)

    def check(ours: Model, reference: Any) -> None:
        settings: dict[str, Any] = {}
        if source_mask is not None and target_mask is not None:
            settings = {"attention_mask": source_mask.long(), "decoder_attention_mask": target_mask.long()}
        expected = reference(source, decoder_input_ids=target, **settings)
        actual = ours(source, target, source_token_mask=source_mask, target_token_mask=target_mask)
        assert_parity(actual.logits, expected.logits, target_mask)
        assert_parity(
            ours.encode(source, source_token_mask=source_mask), expected.encoder_last_hidden_state, source_mask
        )

    model = check_round_trip(CASES[name](), tmp_path, check)
    assert isinstance(model, T5)
    assert model.config.tied == (not name.startswith(("1.1", "gated")))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_tied_and_scaled_are_independent(tied: bool, scaled: bool, tmp_path: Path) -> None:
    ours = T5(CONFIGS["1.1"].replace(tied=tied, scaled_output=scaled)).eval()
    jumok.save(ours, tmp_path / "ours", format="huggingface")
    reference = T5ForConditionalGeneration.from_pretrained(tmp_path / "ours").eval()
    source, target = torch.randint(50, (2, 6)), torch.randint(50, (2, 5))
    with torch.no_grad():
        assert_parity(ours(source, target).logits, reference(source, decoder_input_ids=target).logits)
        assert_parity(jumok.load(tmp_path / "ours").model(source, target).logits, ours(source, target).logits)


def test_folder_of_version_4_loads(tmp_path: Path) -> None:
    # in version 4 tie_word_embeddings decides tying and scaling, and every name is stored
    reference = build_reference(True, **V1_1).eval()
    reference.save_pretrained(tmp_path / "old")
    config_json = json.loads((tmp_path / "old" / "config.json").read_text())
    for name in ("scale_decoder_outputs", "is_gated_act", "dense_act_fn", "num_decoder_layers"):
        del config_json[name]
    (tmp_path / "old" / "config.json").write_text(json.dumps({**config_json, "tie_word_embeddings": False}))
    (tmp_path / "old" / "model.safetensors").unlink()
    torch.save(reference.state_dict(), tmp_path / "old" / "pytorch_model.bin")
    source, target = torch.randint(97, (2, 6)), torch.randint(97, (2, 5))
    with torch.no_grad():
        ours = jumok.load(tmp_path / "old", pickled=True).model
        assert_parity(ours(source, target).logits, reference(source, decoder_input_ids=target).logits)


def test_folder_without_a_head_loads(tmp_path: Path) -> None:
    reference = T5Model(TheirConfig(**SIZES)).eval()
    reference.save_pretrained(tmp_path / "bare")
    source, target = torch.randint(97, (2, 6)), torch.randint(97, (2, 5))
    with torch.no_grad():
        expected = reference(source, decoder_input_ids=target).last_hidden_state
        assert_parity(jumok.load(tmp_path / "bare").model(source, target).hidden, expected)


def test_unsupported_configs_are_refused(tmp_path: Path) -> None:
    reference = build_reference(True)  # tied by its config, but with an output layer in the file
    reference.save_pretrained(tmp_path / "torn")
    with pytest.raises(CheckpointError, match=r"'lm_head.weight' to 'shared.weight', but the two tensors differ"):
        jumok.load(tmp_path / "torn")
    config_json = json.loads((tmp_path / "torn" / "config.json").read_text())
    for field, message in {
        "is_encoder_decoder": "only True is supported",
        "feed_forward_proj": "must be text",
    }.items():
        (tmp_path / "torn" / "config.json").write_text(json.dumps({**config_json, field: False}))
        with pytest.raises(CheckpointError, match=message):
            jumok.load(tmp_path / "torn")
    (tmp_path / "torn" / "config.json").write_text(json.dumps({**config_json, "dense_act_fn": "tanh"}))
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
def test_later_tokens_do_not_change_earlier_logits(name: str) -> None:
    model = T5(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, 8)), torch.randint(50, (2, 9))
    changed_target, changed_source = target.clone(), source.clone()
    changed_target[:, 5:] = (changed_target[:, 5:] + 7) % 50
    changed_source[:, -1] = (changed_source[:, -1] + 7) % 50
    with torch.no_grad():
        first, second, third = (
            model(source, target).logits,
            model(source, changed_target).logits,
            model(changed_source, target).logits,
        )
    assert torch.equal(first[:, :5], second[:, :5]) and not torch.allclose(first[:, 5:], second[:, 5:])
    assert not torch.allclose(first[:, 0], third[:, 0])  # the whole source is read


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_the_output(name: str, side: str) -> None:
    model = T5(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, SOURCE)), torch.randint(50, (2, TARGET))
    source_mask, target_mask = build_token_masks(side)
    assert source_mask is not None and target_mask is not None
    other_source = torch.where(source_mask, source, (source + 11) % 50)
    other_target = torch.where(target_mask, target, (target + 11) % 50)
    masks = {"source_token_mask": source_mask, "target_token_mask": target_mask}
    with torch.no_grad():
        first = model(source, target, **masks).logits
        second = model(other_source, other_target, **masks).logits
        unpadded = model(source[1:, source_mask[1]], target[1:, target_mask[1]]).logits
    assert torch.equal(first[target_mask], second[target_mask])
    assert torch.allclose(first[1, target_mask[1]], unpadded[0], atol=1e-5)


@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("name", CONFIGS)
def test_decoding_with_a_cache_equals_one_pass(name: str, side: str) -> None:
    model = T5(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, SOURCE)), torch.randint(50, (2, TARGET))
    source_mask, target_mask = build_token_masks(side)
    with torch.no_grad():
        full_logits = model(source, target, source_token_mask=source_mask, target_token_mask=target_mask).logits
        encoded = model.encode(source, source_token_mask=source_mask)
        for capacity in (None, TARGET):
            cache, parts, end = Cache(capacity), [], 0
            for part in target.split([14, 1, 1, 4], 1):
                end += part.shape[1]
                step_mask = None if target_mask is None else target_mask[:, :end]
                step = model.decode(
                    part, encoded, source_token_mask=source_mask, target_token_mask=step_mask, cache=cache
                )
                parts.append(step.logits)
            assert_parity(torch.cat(parts, 1), full_logits, target_mask)
        last = model.decode(target, encoded, source_token_mask=source_mask, target_token_mask=target_mask, last=2)
        assert torch.allclose(last.logits, full_logits[:, -2:], atol=1e-5)


def test_weights_of_every_layer_are_returned() -> None:
    model = T5(CONFIGS["1"]).eval()
    source, target = torch.randint(50, (2, 8)), torch.randint(50, (2, 9))
    weights = model(source, target, weights=True).weights
    assert {name: [list(layer.shape) for layer in stack] for name, stack in weights.items()} == {
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

    for first, second in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert first.abs().max() > 0  # including the tables of relative biases
        assert torch.allclose(first, second, atol=1e-5)


def test_dropout_applies_only_in_training() -> None:
    model = T5(CONFIGS["1"].replace(dropout=0.5))
    tokens = torch.randint(50, (2, 8))
    assert not torch.equal(model(tokens, tokens).logits, model(tokens, tokens).logits)
    model.eval()
    assert torch.equal(model(tokens, tokens).logits, model(tokens, tokens).logits)


def test_initial_logits_have_deviation_near_one() -> None:
    # a tied output layer is scaled, a separate one is initialised smaller
    for name, config in CONFIGS.items():
        logits = T5(config.replace(width=256)).eval()(*torch.randint(50, (2, 2, 30))).logits
        assert 0.5 < float(logits.detach().std()) < 2, name


def test_initial_parameters_are_as_published() -> None:
    model = T5(T5Config(vocabulary=300, width=100, heads=7, head_width=16, hidden=400, layers=1))
    attention, feedforward = model.decoder[0].cross, model.decoder[0].feedforward
    query, key, value = attention.projection.joined.weight.split(112)
    expected = [
        (query, (100 * 16) ** -0.5),
        (key, 100**-0.5),
        (value, 100**-0.5),
        (attention.output.weight, 112**-0.5),
        (feedforward.inner.weight, 100**-0.5),
        (feedforward.outer.weight, 400**-0.5),
        (model.embedding.weight, 1.0),
        (model.encoder_bias.weight, 100**-0.5),
    ]
    for parameter, deviation in expected:
        assert float(parameter.detach().std()) == pytest.approx(deviation, rel=0.15)


def test_t5_small_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        assert T5(T5Config()).parameter_count == 60_506_624
        # version 1.1 small: https://huggingface.co/google/t5-v1_1-small
        newer = T5Config(layers=8, heads=6, hidden=1024, feedforward="gated", activation="gelu_tanh", tied=False)
        assert T5(newer).parameter_count == 76_961_152


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"buckets": 40, "max_distance": 20}, "max_distance must be above 20"),
        ({"start": 50}, "start is token 50, but the vocabulary has 50 tokens"),
        ({"feedforward": "swish"}, "feedforward of the t5 config must be one of plain, gated"),
    ],
)
def test_invalid_configs_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        CONFIGS["1"].replace(**fields)


def test_tokens_out_of_range_are_refused() -> None:
    model = T5(CONFIGS["1"])
    good, bad = torch.tensor([[1, 2]]), torch.tensor([[1, 50]])
    for source, target in ((good, bad), (bad, good)):
        with pytest.raises(ArgumentError, match="token 50 is out of range"):
            model(source, target)
