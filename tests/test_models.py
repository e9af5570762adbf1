"""What every family must do: read and write its config, be saved and loaded, be built empty, know its own names."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok import ArgumentError, BackendError
from jumok.fields import Fields
from jumok.models import Config, Model
from jumok.models.registry import FAMILIES, get_family

TEXT = {"vocabulary": 37, "width": 12, "layers": 2, "heads": 3, "hidden": 17}
SMALL: dict[str, dict[str, Any]] = {
    "gpt": {**TEXT, "length": 19},
    "bert": {**TEXT, "length": 19, "head": "mlm"},
    "t5": {**TEXT, "head_width": 5, "decoder_layers": 1, "buckets": 8, "max_distance": 20},
    "transformer": {**TEXT, "length": 19, "target_vocabulary": 23, "shared": False},
    "vit": {"image": [12, 8], "patch": [4, 4], "width": 12, "layers": 2, "heads": 3, "hidden": 17, "classes": 5},
    "swin": {"image": [16, 16], "patch": [2, 2], "width": 6, "depths": [2, 1], "heads": [2, 3], "window": 3},
    "long": {**TEXT, "length": 19, "window": 3, "features": 7},
    "rnn_seq2seq": {
        "vocabulary": 37, "target_vocabulary": 23, "embedding_width": 7, "width": 10, "encoder_width": 6, "layers": 2,
    },
    "classifier": {"encoder": {"family": "bert", **TEXT, "length": 19}, "classes": 3},
    "captioner": {**TEXT, "regions": 5, "features": 11, "length": 19, "decoder_layers": 1},
    "numeric": {"width": 6, "heads": 3, "layers": 1, "hidden": 11, "scale": 10.0},
}  # fmt: skip

every = pytest.mark.parametrize("name", FAMILIES)


def small(name: str) -> Config:
    """A config of this family that is built in no time; as a file would tell it."""
    return get_family(name).config_class.from_json(SMALL[name])


def built(name: str) -> Model:
    torch.manual_seed(7)
    return get_family(name)(small(name))


def test_every_family_has_a_small_config() -> None:
    assert SMALL.keys() == FAMILIES.keys()
    with pytest.raises(ArgumentError, match="unknown family 'gtp'; choose one of bert"):
        get_family("gtp")


@every
def test_a_family_says_who_it_is(name: str) -> None:
    model = get_family(name)
    assert model.family == model.config_class.family == name
    assert model.__doc__ and model.config_class.__doc__
    for field in dataclasses.fields(model.config_class):
        assert field.metadata.get("help"), f"{name}: no help for {field.name}"


@every
def test_a_config_goes_through_json(name: str) -> None:
    made = get_family(name).config_class
    for config in (small(name), made()):
        told = json.loads(json.dumps(config.to_json()))
        assert told["family"] == name
        assert made.from_json(told) == config
        assert hash(made.from_json(told)) == hash(config)
    assert made() != small(name)
    changed = small(name).replace(dropout=0.25)
    assert changed.dropout == 0.25 and changed != small(name)
    assert changed.replace(dropout=small(name).dropout) == small(name)


@every
def test_an_unknown_field_is_refused_with_a_suggestion(name: str) -> None:
    made = get_family(name).config_class
    with pytest.raises(ArgumentError, match=f"the {name} config has no field 'dropuot'; did you mean 'dropout'"):
        made.from_json({**SMALL[name], "dropuot": 0.1})
    with pytest.raises(ArgumentError, match=f"the {name} config has no field 'zzz'; choose one of "):
        made.from_json({"zzz": 1})


WRONG: dict[type, tuple[Any, ...]] = {
    int: ("12", 1.5, True, [3], None, {}),
    float: ("0.5", True, [0.5], None, {}),
    bool: ("yes", 1, 0, None, []),
    str: (3, True, None, ["gelu"]),
    tuple: (3, "12", None, [1.5], ["a"], [True]),
    Fields: (3, None, [], {}, {"family": "numeric"}),
}


@every
def test_what_is_no_such_value_is_refused(name: str) -> None:
    # from_json is how files come in: whatever a file holds, the answer is a sentence
    made = get_family(name).config_class
    for field in dataclasses.fields(made):
        for wrong in WRONG[field.metadata["kind"]]:
            if wrong is None and field.metadata.get("optional"):
                continue
            with pytest.raises(ArgumentError, match=f"{field.name} of the {name} config must be"):
                made.from_json({**SMALL[name], field.name: wrong})
        if "least" in field.metadata:
            for far in (field.metadata["least"] - 1, field.metadata["most"] * 2):
                told = [far] if field.metadata["kind"] is tuple else far
                with pytest.raises(ArgumentError, match=f"{field.name} of the {name} config must be from"):
                    made.from_json({**SMALL[name], field.name: told})
        if "options" in field.metadata:
            with pytest.raises(ArgumentError, match=f"{field.name} of the {name} config must be one of"):
                made.from_json({**SMALL[name], field.name: "nonsense"})


@every
def test_a_number_that_is_no_number_is_refused(name: str) -> None:
    for wrong in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ArgumentError, match=f"dropout of the {name} config must be from"):
            small(name).replace(dropout=wrong)


@every
def test_save_and_load_give_the_same_bits(name: str, tmp_path: Path) -> None:
    model = built(name)
    with torch.no_grad():  # what starts at zero or one could be made anew and look loaded
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    jumok.save(model, tmp_path / "saved")
    loaded = jumok.load(tmp_path / "saved")
    assert loaded.family == name and loaded.config == model.config and type(loaded.model) is type(model)
    assert not loaded.model.training
    before, after = dict(model.named_parameters()), dict(loaded.model.named_parameters())
    assert list(before) == list(after)
    for place, parameter in before.items():
        assert after[place].dtype == torch.float32 and torch.equal(parameter, after[place]), place
        assert after[place].requires_grad == parameter.requires_grad, place
    for place, buffer in loaded.model.named_buffers():
        assert not buffer.is_meta, f"{place} was left without numbers"


@every
def test_a_loaded_model_can_go_on_learning(name: str, tmp_path: Path) -> None:
    # a part that keeps a second list of its parameters (torch's LSTM does) must have the loaded ones in it
    jumok.save(built(name), tmp_path / "saved")
    model = jumok.load(tmp_path / "saved").model
    for place, parameter in model.named_parameters():
        assert parameter.is_leaf, place
    for place, module in model.named_modules():
        for twin in getattr(module, "_flat_weights", ()):
            assert any(twin is parameter for parameter in module.parameters()), place


@every
def test_parameters_are_counted_once(name: str) -> None:
    model = built(name)
    assert model.parameter_count > 0
    names = [place for place, _ in model.named_parameters(remove_duplicate=False)]
    assert len(names) == len(list(model.parameters())), "a parameter stands at two places"
    storages = [parameter.data_ptr() for parameter in model.parameters()]
    assert len(set(storages)) == len(storages)
    # a state dict is the parameters, and nothing else
    assert set(model.state_dict()) == set(names)
    assert model.device == torch.device("cpu")


@every
def test_the_default_model_is_built_without_memory(name: str) -> None:
    with torch.device("meta"):
        model = get_family(name)(get_family(name).config_class())
    assert model.parameter_count > 0
    assert all(parameter.is_meta for parameter in model.parameters())
    with torch.device("meta"):
        twin = get_family(name)(small(name))
    real = built(name)
    assert {place: one.shape for place, one in twin.named_parameters()} == {
        place: one.shape for place, one in real.named_parameters()
    }


@every
def test_every_part_knows_its_own_name(name: str) -> None:
    model = built(name)
    sites = {place: module.site for place, module in model.named_modules() if place and hasattr(module, "site")}
    assert sites, "nothing of this model can be watched"
    for place, site in sites.items():
        assert site == place
    assert len(set(sites.values())) == len(sites)


@every
def test_the_same_seed_draws_the_same_model(name: str) -> None:
    one, two = built(name), built(name)
    for (place, first), second in zip(one.named_parameters(), two.parameters(), strict=True):
        assert torch.equal(first, second), place
        assert torch.isfinite(first).all(), place
    torch.manual_seed(8)
    other = get_family(name)(small(name))
    assert any(
        not torch.equal(first, second) for first, second in zip(one.parameters(), other.parameters(), strict=True)
    )


@every
def test_a_backend_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(BackendError, match="unknown backend 'fastest'; choose one of auto, explicit"):
        built(name).use_backend("fastest")
