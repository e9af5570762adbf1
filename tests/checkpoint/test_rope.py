"""Compare scaled rotary positions with transformers, within the training length and beyond it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import jumok
from jumok.errors import ArgumentError, CheckpointError
from jumok.layers import Llama3Scaling, RotaryPositions, RotaryScaling, YarnScaling
from jumok.models import GPT, Model, llama_config
from parity import assert_parity, check_round_trip

TRAINED, LONGEST = 32, 128  # the training length, and the length that the scaling is for
SIZES = {
    "vocab_size": 97, "max_position_embeddings": LONGEST, "hidden_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 53,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": TRAINED,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED}

KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "llama3": LLAMA3,
    "llama3 of 3.2": {**LLAMA3, "factor": 32, "rope_theta": 500_000.0},
    "llama3 with other turns": {**LLAMA3, "low_freq_factor": 0.25, "high_freq_factor": 1.5, "rope_theta": 100.0},
    "yarn": YARN,
    "yarn with other turns": {**YARN, "beta_fast": 4, "beta_slow": 0.5, "rope_theta": 300.0},
    "yarn with its own gain": {**YARN, "attention_factor": 1.3, "rope_theta": 1_000_000.0},
    "yarn with two scales": {**YARN, "mscale": 1.4, "mscale_all_dim": 0.7},
    "yarn with one scale": {**YARN, "mscale": 1.4},
    "yarn with a trained length shorter than one turn": {**YARN, "original_max_position_embeddings": 3, "beta_fast": 2},
    "yarn of a small base": {**YARN, "beta_fast": 4, "rope_theta": 2.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
}


def build_reference(config_json: dict[str, Any]) -> Any:
    return LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters={"rope_theta": 10_000.0, **config_json}))


@pytest.mark.parametrize("name", KINDS)
def test_logits_equal_transformers_at_every_length(name: str, tmp_path: Path) -> None:
    tokens = torch.randint(97, (1, LONGEST))

    def check(ours: Model, reference: Any) -> None:
        for length in (TRAINED // 2, TRAINED, TRAINED + 1, LONGEST):
            assert_parity(ours(tokens[:, :length]).logits, reference(tokens[:, :length]).logits)

    model = check_round_trip(build_reference(KINDS[name]), tmp_path, check)
    saved = json.loads((tmp_path / "again" / "config.json").read_text())
    kind = KINDS[name]["rope_type"]
    assert saved["rope_parameters"]["rope_type"] == kind
    if kind not in ("default", "dynamic"):  # without the scaling the logits differ
        plain = GPT(model.config.replace(rotary_scaling="none")).eval()
        plain.load_state_dict(model.state_dict())
        with torch.no_grad():
            assert (plain(tokens).logits - model(tokens).logits).abs().max() > 1e-2


@pytest.mark.parametrize("name", [name for name in KINDS if "too short" not in name])
def test_old_and_new_config_fields_are_read(name: str, tmp_path: Path) -> None:
    """Read rope_parameters of version 5, rope_scaling and rope_theta of older versions, and "type" of the oldest."""
    reference = build_reference(KINDS[name]).eval()
    reference.save_pretrained(tmp_path / "made")
    file, tokens = tmp_path / "made" / "config.json", torch.randint(97, (1, LONGEST))
    expected = jumok.load(tmp_path / "made").config
    config_json = json.loads(file.read_text())
    scaling = config_json.pop("rope_parameters")
    base, kind = scaling.pop("rope_theta"), scaling.pop("rope_type")
    for type_field in ("rope_type", "type"):
        file.write_text(json.dumps({**config_json, "rope_theta": base, "rope_scaling": {type_field: kind, **scaling}}))
        loaded = jumok.load(tmp_path / "made")
        assert loaded.config == expected
        with torch.no_grad():
            reloaded = LlamaForCausalLM.from_pretrained(tmp_path / "made").eval()
            assert_parity(loaded.model(tokens).logits, reloaded(tokens).logits)


def test_older_field_wins_as_in_transformers(tmp_path: Path) -> None:
    reference = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    reference.save_pretrained(tmp_path / "made")
    file, tokens = tmp_path / "made" / "config.json", torch.randint(97, (1, LONGEST))
    config_json = json.loads(file.read_text())
    config_json["rope_parameters"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0}
    config_json |= {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 700.0}
    file.write_text(json.dumps(config_json))
    loaded = jumok.load(tmp_path / "made")
    assert (loaded.config.rotary_factor, loaded.config.rotary_base) == (4.0, 700.0)
    with torch.no_grad():
        assert_parity(
            loaded.model(tokens).logits, LlamaForCausalLM.from_pretrained(tmp_path / "made").eval()(tokens).logits
        )


def test_training_length_beside_the_scaling_wins(tmp_path: Path) -> None:
    reference = build_reference({**YARN, "beta_fast": 4}).eval()
    reference.save_pretrained(tmp_path / "made")
    file, tokens = tmp_path / "made" / "config.json", torch.randint(97, (1, LONGEST))
    file.write_text(json.dumps({**json.loads(file.read_text()), "original_max_position_embeddings": 61}))
    loaded = jumok.load(tmp_path / "made")
    assert loaded.config.rotary_length == 61
    with torch.no_grad():
        assert_parity(
            loaded.model(tokens).logits, LlamaForCausalLM.from_pretrained(tmp_path / "made").eval()(tokens).logits
        )


def test_yarn_in_a_config_with_the_old_length(tmp_path: Path) -> None:
    """Read a config as Qwen2's page describes it: factor 4 with the old max_position_embeddings."""
    config_json = {**SIZES, "max_position_embeddings": TRAINED}
    reference = Qwen2ForCausalLM(Qwen2Config(**config_json, rope_parameters={**YARN, "rope_theta": 1e6})).eval()
    reference.save_pretrained(tmp_path / "made")
    loaded, tokens = jumok.load(tmp_path / "made"), torch.randint(97, (1, LONGEST))
    assert loaded.config.length == LONGEST
    with torch.no_grad():
        assert_parity(loaded.model(tokens).logits, reference(tokens).logits)


PUBLISHED = {
    "Llama 3.1": (
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192, "rope_theta": 500_000.0},
        Llama3Scaling(8.0, 8192), 500_000.0,
    ),
    "Llama 3.2": (
        {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192, "rope_theta": 500_000.0},
        Llama3Scaling(32.0, 8192), 500_000.0,
    ),
    "Qwen2.5": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, "rope_theta": 1_000_000.0},
        YarnScaling(4.0, 32768, stretch=0.1 * math.log(4) + 1), 1_000_000.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_scalings_equal_transformers(name: str) -> None:
    config_json, scaling, base = PUBLISHED[name]
    config = LlamaConfig(
        hidden_size=256, num_attention_heads=2, max_position_embeddings=131072, rope_parameters=config_json
    )
    positions = torch.tensor([[0, 1, 2, 100, 8191, 8192, 40_000, 131_071]])
    ones = torch.zeros(1, 1, 8, 128)
    ones[..., :64] = 1.0  # rotated, these are the cosines and sines
    cosine, sine = LlamaRotaryEmbedding(config)(ones, positions)
    expected = torch.cat([cosine[..., :64], sine[..., :64]], -1)[:, None]
    # a rounding error of a frequency is multiplied by 131,071 in the last angle
    assert (RotaryPositions(128, base, scaling=scaling)(ones, positions) - expected).abs().max() < 2e-2
    assert (RotaryPositions(128, base, scaling=scaling)(ones, positions) - expected)[:, :, :6].abs().max() < 2e-3
    assert (RotaryPositions(128, base)(ones, positions) - expected)[:, :, :6].abs().max() > 0.5


def test_scaling_by_turns_in_plain_numbers() -> None:
    """A pair with 8 turns keeps its frequency, one with half a turn is 4 times slower, one with 2.5 is in between."""
    frequencies = torch.tensor([8.0, 2.5, 0.5]) * 2 * math.pi / 100
    factors = Llama3Scaling(4.0, 100, slow=1.0, fast=4.0).scale_frequencies(frequencies, 10_000.0) / frequencies
    assert torch.allclose(factors, torch.tensor([1.0, 0.5 + 0.5 / 4, 0.25]))
    assert torch.allclose(RotaryScaling(4.0).scale_frequencies(frequencies, 10_000.0), frequencies / 4)


@pytest.mark.parametrize(
    "build",
    [
        lambda: RotaryScaling(0.0),
        lambda: RotaryScaling(-1.0),
        lambda: RotaryScaling(math.nan),
        lambda: RotaryScaling(math.inf),
        lambda: Llama3Scaling(2.0, 0),
        lambda: Llama3Scaling(2.0, 10, 4.0, 4.0),
        lambda: Llama3Scaling(2.0, 10, 0.0, 4.0),
        lambda: YarnScaling(2.0, 10, stretch=0.0),
        lambda: RotaryPositions(8, 1.0, scaling=YarnScaling(2.0, 10)),
        lambda: llama_config(rotary_scaling="llama3", rotary_slow=4.0, rotary_fast=1.0),
        lambda: llama_config(rotary_scaling="linear", rotary_factor=0.5),
        lambda: llama_config(rotary_scaling="yarn", rotary_base=1.0),
        lambda: llama_config(windowed=[0]),
        lambda: llama_config(window=4, layers=3, windowed=[]),
        lambda: llama_config(window=4, layers=3, windowed=[0, 1, 2]),
        lambda: llama_config(window=4, layers=3, windowed=[3]),
        lambda: llama_config(window=4, layers=3, windowed=[1, 0]),
        lambda: llama_config(window=4, layers=3, windowed=[1, 1]),
    ],
)
def test_invalid_scalings_are_refused(build: Any) -> None:
    with pytest.raises(ArgumentError, match=r"must be|needs|can be scaled|must list|window is None"):
        build()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}},
            "'longrope'; supported: default, linear, llama3",
        ),
        ({"rope_scaling": {"rope_type": "mrope", "mrope_section": [1, 1, 2]}}, "rope_type 'mrope'"),
        ({"rope_scaling": {**YARN, "truncate": False}}, "truncate = false"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}, "partial_rotary_factor = 0.25"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "per layer type"),
        ({"rope_scaling": {"rope_type": "linear"}}, "has no field 'factor'"),
        (
            {"rope_scaling": {key: setting for key, setting in LLAMA3.items() if "low" not in key}},
            "no field 'low_freq_factor'",
        ),
    ],
)
def test_unsupported_configs_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(tmp_path / "made")
    file = tmp_path / "made" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(CheckpointError, match=message):
        jumok.load(tmp_path / "made")


def test_model_without_an_equivalent_saves_only_in_our_format(tmp_path: Path) -> None:
    sizes = {"vocabulary": 50, "length": 20, "width": 24, "layers": 3, "heads": 4, "hidden": 40}
    model = GPT(llama_config(**sizes, window=3, windowed=[0, 2])).eval()
    with pytest.raises(CheckpointError, match='the format "jumok" can store it'):
        jumok.save(model, tmp_path / "theirs", format="huggingface")
    jumok.save(model, tmp_path / "own")
    tokens = torch.randint(50, (1, 9))
    with torch.no_grad():
        assert torch.equal(jumok.load(tmp_path / "own").model(tokens).logits, model(tokens).logits)
