"""Test what every family must do: serialise its config, save and load, build on the meta device, name its sites."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError

import jumok
from jumok import ArgumentError, BackendError, ShapeError
from jumok.fields import Fields
from jumok.models import BERT, BERTConfig, Captioner, CaptionerConfig, Config, Model, ViT, ViTConfig
from jumok.models.model import SOURCES, TASKS
from jumok.models.registry import FAMILIES, get_family

TEXT = {"vocabulary": 37, "width": 12, "layers": 2, "heads": 3, "hidden": 17}
SMALL: dict[str, dict[str, Any]] = {
    "gpt": {**TEXT, "length": 19},
    "bert": {**TEXT, "length": 19, "head": "mlm"},
    "t5": {**TEXT, "head_width": 5, "decoder_layers": 1, "buckets": 8, "max_distance": 20},
    "fusion": {**TEXT, "length": 19, "decoder_layers": 1, "separator": 7},
    "transformer": {**TEXT, "length": 19, "target_vocabulary": 23, "shared": False},
    "vit": {"image": [12, 8], "patch": [4, 4], "width": 12, "layers": 2, "heads": 3, "hidden": 17, "classes": 5},
    "swin": {"image": [16, 16], "patch": [2, 2], "width": 6, "depths": [2, 1], "heads": [2, 3], "window": 3},
    "long": {**TEXT, "length": 19, "window": 3, "features": 7},
    "rnn_seq2seq": {
        "vocabulary": 37, "target_vocabulary": 23, "embedding_width": 7, "width": 10, "encoder_width": 6, "layers": 2,
    },
    "classifier": {"encoder": {"family": "bert", **TEXT, "length": 19}, "classes": 3},
    "captioner": {**TEXT, "regions": 5, "features": 11, "length": 19, "decoder_layers": 1},
    "speech": {
        **TEXT, "mel_bins": 5, "source_length": 11, "target_length": 19, "decoder_layers": 1, "decoder_heads": 2,
        "decoder_hidden": 13, "start": 1, "end": 2, "pad": 0,
    },
    "numeric": {"width": 6, "heads": 3, "layers": 1, "hidden": 11, "scale": 10.0},
}  # fmt: skip

every_family = pytest.mark.parametrize("name", FAMILIES)


def build_small_config(name: str) -> Config:
    """Return a small config of a family, read as from a file."""
    return get_family(name).config_class.from_json(SMALL[name])


def build_model(name: str) -> Model:
    torch.manual_seed(7)
    return get_family(name)(build_small_config(name))


def test_every_family_has_a_small_config() -> None:
    assert SMALL.keys() == FAMILIES.keys()
    with pytest.raises(ArgumentError, match=r"unknown family 'gtp'; choose one of .*bert, captioner"):
        get_family("gtp")


@every_family
def test_family_is_named_and_documented(name: str) -> None:
    model = get_family(name)
    assert model.family == model.config_class.family == name
    assert model.__doc__ and model.config_class.__doc__
    for field in dataclasses.fields(model.config_class):
        assert field.metadata.get("help"), f"{name}: no help for {field.name}"


@every_family
def test_config_survives_json(name: str) -> None:
    config_class = get_family(name).config_class
    for config in (build_small_config(name), config_class()):
        config_json = json.loads(json.dumps(config.to_json()))
        assert config_json["family"] == name
        assert config_class.from_json(config_json) == config
        assert hash(config_class.from_json(config_json)) == hash(config)
    assert config_class() != build_small_config(name)
    changed = build_small_config(name).replace(dropout=0.25)
    assert changed.dropout == 0.25 and changed != build_small_config(name)
    assert changed.replace(dropout=build_small_config(name).dropout) == build_small_config(name)


@every_family
def test_unknown_field_is_refused_with_a_suggestion(name: str) -> None:
    config_class = get_family(name).config_class
    with pytest.raises(ArgumentError, match=f"the {name} config has no field 'dropuot'; did you mean 'dropout'"):
        config_class.from_json({**SMALL[name], "dropuot": 0.1})
    with pytest.raises(ArgumentError, match=f"the {name} config has no field 'zzz'; choose one of "):
        config_class.from_json({"zzz": 1})


INVALID: dict[type, tuple[Any, ...]] = {
    int: ("12", 1.5, True, [3], None, {}),
    float: ("0.5", True, [0.5], None, {}),
    bool: ("yes", 1, 0, None, []),
    str: (3, True, None, ["gelu"]),
    tuple: (3, "12", None, [1.5], ["a"], [True]),
    Fields: (3, None, [], {}, {"family": "numeric"}),
}


@every_family
def test_invalid_values_are_refused(name: str) -> None:
    # files are read with from_json: whatever a file holds, the error is an ArgumentError
    config_class = get_family(name).config_class
    for field in dataclasses.fields(config_class):
        for invalid in INVALID[field.metadata["kind"]]:
            if invalid is None and field.metadata.get("optional"):
                continue
            with pytest.raises(ArgumentError, match=f"{field.name} of the {name} config must be"):
                config_class.from_json({**SMALL[name], field.name: invalid})
        if "least" in field.metadata:
            for bound in (field.metadata["least"] - 1, field.metadata["most"] * 2):
                invalid = [bound] if field.metadata["kind"] is tuple else bound
                with pytest.raises(ArgumentError, match=f"{field.name} of the {name} config must be from"):
                    config_class.from_json({**SMALL[name], field.name: invalid})
        if "options" in field.metadata:
            with pytest.raises(ArgumentError, match=f"{field.name} of the {name} config must be one of"):
                config_class.from_json({**SMALL[name], field.name: "nonsense"})


@every_family
def test_nan_and_infinity_are_refused(name: str) -> None:
    for invalid in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ArgumentError, match=f"dropout of the {name} config must be from"):
            build_small_config(name).replace(dropout=invalid)


@every_family
def test_save_and_load_give_the_same_bits(name: str, tmp_path: Path) -> None:
    model = build_model(name)
    with torch.no_grad():  # parameters that start at 0 or 1 could look loaded without being so
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    jumok.save(model, tmp_path / "saved")
    loaded = jumok.load(tmp_path / "saved")
    assert loaded.family == name and loaded.config == model.config and type(loaded.model) is type(model)
    assert not loaded.model.training
    before, after = dict(model.named_parameters()), dict(loaded.model.named_parameters())
    assert list(before) == list(after)
    for key, parameter in before.items():
        assert after[key].dtype == torch.float32 and torch.equal(parameter, after[key]), key
        assert after[key].requires_grad == parameter.requires_grad, key
    for key, buffer in loaded.model.named_buffers():
        assert not buffer.is_meta, f"{key} has no memory"


@every_family
def test_loaded_model_can_be_trained_further(name: str, tmp_path: Path) -> None:
    # a module with a second list of its parameters (torch's LSTM) must hold the loaded ones in it
    jumok.save(build_model(name), tmp_path / "saved")
    model = jumok.load(tmp_path / "saved").model
    for key, parameter in model.named_parameters():
        assert parameter.is_leaf, key
    for key, module in model.named_modules():
        for empty in getattr(module, "_flat_weights", ()):
            assert any(empty is parameter for parameter in module.parameters()), key


@every_family
def test_parameters_are_counted_once(name: str) -> None:
    model = build_model(name)
    assert model.parameter_count > 0
    names = [key for key, _ in model.named_parameters(remove_duplicate=False)]
    assert len(names) == len(list(model.parameters())), "a parameter has two names"
    storages = [parameter.data_ptr() for parameter in model.parameters()]
    assert len(set(storages)) == len(storages)
    # the state dict holds the parameters and nothing else
    assert set(model.state_dict()) == set(names)
    assert model.device == torch.device("cpu")


@every_family
def test_default_model_can_be_built_on_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        model = get_family(name)(get_family(name).config_class())
    assert model.parameter_count > 0
    assert all(parameter.is_meta for parameter in model.parameters())
    with torch.device("meta"):
        empty = get_family(name)(build_small_config(name))
    real = build_model(name)
    assert {key: parameter.shape for key, parameter in empty.named_parameters()} == {
        key: parameter.shape for key, parameter in real.named_parameters()
    }


@every_family
def test_every_site_has_its_module_name(name: str) -> None:
    model = build_model(name)
    sites = {key: module.site for key, module in model.named_modules() if key and hasattr(module, "site")}
    assert sites, "the model has no sites"
    for key, site in sites.items():
        assert site == key
    assert len(set(sites.values())) == len(sites)


@every_family
def test_same_seed_draws_the_same_model(name: str) -> None:
    model, same = build_model(name), build_model(name)
    for (key, first), second in zip(model.named_parameters(), same.parameters(), strict=True):
        assert torch.equal(first, second), key
        assert torch.isfinite(first).all(), key
    torch.manual_seed(8)
    other = get_family(name)(build_small_config(name))
    assert any(
        not torch.equal(first, second) for first, second in zip(model.parameters(), other.parameters(), strict=True)
    )


@every_family
def test_unknown_backend_is_refused(name: str) -> None:
    with pytest.raises(BackendError, match="unknown backend 'fastest'; choose one of auto, explicit"):
        build_model(name).use_backend("fastest")


def make_source(model: Model, batch: int) -> torch.Tensor:
    """Return a source of a batch of inputs: tokens, numbers, regions, a spectrogram or images."""
    match model.reads:
        case "text":
            return torch.ones(batch, 5, dtype=torch.long)
        case "numbers":
            return torch.ones(batch, 5)
        case "regions":
            return torch.ones(batch, 5, 11)
        case "audio":
            return torch.ones(batch, 5, 22)
    rows, columns = model.image_size or (0, 0)
    return torch.ones(batch, model.image_channels or 0, rows, columns)


@every_family
def test_batches_may_be_empty_and_token_masks_must_fit(name: str) -> None:
    model = build_model(name).eval()
    target = torch.ones(2, 4) if name == "numeric" else torch.ones(2, 4, dtype=torch.long)
    targets = [target] if model.is_encoder_decoder else []
    output = model(make_source(model, 0), *(tensor[:0] for tensor in targets))
    assert len(output.hidden) == 0

    sizes = {"source_token_mask": 11 if model.reads == "audio" else 5, "target_token_mask": 4, "token_mask": 5}
    parameters = inspect.signature(model.forward).parameters
    for argument in sizes.keys() & parameters.keys():
        for wrong in (sizes[argument] - 1, sizes[argument] + 2):
            token_mask = torch.ones(2, wrong, dtype=torch.bool)
            # the runtime type checker of these tests raises first where a signature says so
            with pytest.raises(
                (ShapeError, TypeCheckError), match=rf"token.mask is \[2, {wrong}\], but |bool\[2,{wrong}\]"
            ):
                model(make_source(model, 2), *targets, **{argument: token_mask})


@every_family
def test_family_declares_its_task(name: str) -> None:
    model = build_model(name)
    assert model.reads in SOURCES and model.answers == TASKS[model.task]
    assert model.is_encoder_decoder == (hasattr(model, "encode") and hasattr(model, "decode"))
    writes_text = model.is_encoder_decoder and model.answers == "text"
    assert (model.start_token is not None) == (model.end_token is not None) == writes_text
    assert (model.class_count is not None) == (model.task in ("classify", "score"))
    assert (model.image_size is not None) == (model.reads == "image") == (model.patch_grid is not None)


def test_config_overrides_the_declared_task() -> None:
    sizes = SMALL["bert"]
    for fields, task, answers, classes in (
        ({"head": "none"}, "embed", "vector", None),
        ({"head": "mlm"}, "fill", "tokens", None),
        ({"head": "classes", "answer": "one", "classes": 5}, "classify", "classes", 5),
        ({"head": "classes", "answer": "several", "classes": 5}, "classify", "classes", 5),
        ({"head": "classes", "answer": "number", "classes": 1}, "score", "numbers", 1),
    ):
        model = BERT(BERTConfig.from_json({**sizes, **fields}))
        assert (model.task, model.answers, model.class_count) == (task, answers, classes)
        assert model.independent_classes == (fields.get("answer") == "several")
    bare = ViT(ViTConfig.from_json({**SMALL["vit"], "head": "none", "distilled": True}))
    assert (bare.task, bare.class_count, bare.prefix_tokens) == ("embed", None, ("[class]", "[distilled]"))
    assert (bare.patch_grid, bare.image_size, bare.image_channels) == ((3, 2), (12, 8), 3)
    patches = {"source": "patches", "image": [12, 8], "patch": [4, 4]}
    captioner = Captioner(CaptionerConfig.from_json({**SMALL["captioner"], **patches}))
    assert (captioner.reads, captioner.image_size, captioner.context_length) == ("image", (12, 8), 19)
