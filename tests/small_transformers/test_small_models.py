"""The small models of transformers: sizes that agree, inputs that run, and comparisons that notice a difference."""

from __future__ import annotations

import re

import pytest
import torch

from small_transformers.census_record import BOUND, examine_class, list_untested_media
from small_transformers.model_classes import ModelClass, list_model_classes
from small_transformers.model_inputs import find_inputs
from small_transformers.outputs import compare_outputs
from small_transformers.small_model import OVERRIDES, build_small_model, read_overrides

CLASSES = {model_class.name: model_class for model_class in list_model_classes()}
LARGEST_MODEL = 2_000_000


def test_the_list_covers_all_mappings_and_names_each_class_once() -> None:
    assert len(CLASSES) == len(list_model_classes()) > 1000
    assert {"GPT2LMHeadModel", "ViTForImageClassification", "WhisperModel", "Qwen2VLModel"} <= CLASSES.keys()
    assert "FOR_CAUSAL_LM" in CLASSES["GPT2LMHeadModel"].mappings and CLASSES["GPT2LMHeadModel"].model_type == "gpt2"


def test_overrides_are_sorted_and_name_classes_or_model_types() -> None:
    headings = re.findall(r"^\[([^\]]+)\]", OVERRIDES.read_text(), re.MULTILINE)
    assert headings == sorted(headings) and set(headings) == read_overrides().keys()
    assert set(headings) <= CLASSES.keys() | {model_class.model_type for model_class in CLASSES.values()}


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Gemma2Model", "DeepseekV3Model"])
def test_sizes_of_a_small_config_agree(name: str) -> None:
    model = build_small_model(CLASSES[name])
    config = model.config
    assert sum(parameter.numel() for parameter in model.parameters()) < LARGEST_MODEL
    assert config.num_attention_heads % config.num_key_value_heads == 0 and config.num_attention_heads > 1
    assert config.head_dim % 2 == 0 and config.pad_token_id < config.vocab_size
    if name == "Gemma2Model":  # one layer of each kind remains
        assert config.layer_types == ["sliding_attention", "full_attention"]
        assert config.sliding_window < 7  # the window must matter at seven tokens


def test_padding_and_heads_matter_to_the_outputs() -> None:
    """A lens that ignored the mask, or heads that attended uniformly, would go unnoticed otherwise."""
    model = build_small_model(CLASSES["BertModel"])
    inputs = find_inputs(model, 7)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(**inputs, output_attentions=True)
        unmasked = model(**{**inputs, "attention_mask": torch.ones_like(inputs["attention_mask"])})
    assert inputs["attention_mask"].sum(1).tolist() == [7, 5]
    difference = compare_outputs(
        expected.last_hidden_state, unmasked.last_hidden_state, inputs["attention_mask"].bool()
    )
    assert difference.size > 1000 * BOUND
    assert float(expected.attentions[0][0].max()) > 2 / 7  # uniform weights are 1/7


def test_outputs_are_compared_at_real_tokens_only() -> None:
    expected, output = {"hidden": torch.zeros(2, 3, 5)}, {"hidden": torch.zeros(2, 3, 5)}
    output["hidden"][1, 2] = 4.0
    token_mask = torch.tensor([[True, True, True], [True, True, False]])
    assert compare_outputs(expected, output, token_mask).size == 0
    assert compare_outputs(expected, output, None).size == 4
    output["hidden"][0, 0, 0] = float("nan")
    assert compare_outputs(expected, output, token_mask).size == float("inf")
    assert compare_outputs(expected, {"other": expected["hidden"]}, None).size == float("inf")


@pytest.mark.parametrize(
    "name",
    ["CLIPModel", "GPT2LMHeadModel", "Qwen3VLModel", "T5Model", "ViTModel", "WhisperModel", "BertForMultipleChoice"],
)
def test_models_of_every_modality_are_equal_under_the_lens(name: str) -> None:
    record = examine_class(CLASSES[name])
    assert record.status == "editable" and record.reason == "" and record.attentions >= 2, record
    assert record.eager_equal == record.eager_tables, record
    media = {"CLIPModel", "Qwen3VLModel", "ViTModel"}
    assert ("pixel_values" in record.inputs) == (name in media)


def test_a_model_that_was_run_without_its_images_is_marked() -> None:
    model = build_small_model(CLASSES["Qwen3VLModel"])
    inputs = find_inputs(model, 7)
    assert list_untested_media(model, inputs) == ()
    text = {name: tensor for name, tensor in inputs.items() if name not in ("pixel_values", "image_grid_thw")}
    assert list_untested_media(model, text) == ("pixel_values", "pixel_values_videos")


def test_what_cannot_be_examined_is_explained() -> None:
    assert examine_class(CLASSES["ResNetModel"]).status == "no attention"
    record = examine_class(CLASSES["YosoModel"])
    assert record.status == "refused" and "no attention was found" in record.reason
    record = examine_class(ModelClass("NoSuchModel", "none", ()))
    assert record.status == "not built" and "NoSuchModel" in record.reason
