"""The lens on models of transformers: unchanged logits, the weights of their eager attention, edits as on Jumok's
models, and nothing left behind."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import jumok
from jumok.errors import ArgumentError, IncompleteWarning
from jumok.lens import Ablate, KnockOut, Lens, Remask, Scale
from jumok.lens.capture.recorder import Recorder
from jumok.lens.huggingface.module_names import MLPS_WITH_RESIDUAL, find_feedforwards
from jumok.lens.support_level import find_support_level
from jumok.tap import listen
from small_transformers.model_classes import list_model_classes
from small_transformers.small_model import build_small_model

TOKENS = torch.randint(3, 90, (2, 13), generator=torch.Generator().manual_seed(0))
RIGHT_PADDED = torch.arange(13) < torch.tensor([[13], [9]])
LEFT_PADDED = RIGHT_PADDED.flip(1)
IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
LLAMA: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
BERT: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
VIT: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16,
    "patch_size": 4,
}  # fmt: skip
SPECIAL_TOKENS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXTS = {"input_ids": TOKENS, "attention_mask": LEFT_PADDED.long()}
TEXT_PAIRS = {"input_ids": TOKENS, "attention_mask": RIGHT_PADDED.long(), "decoder_input_ids": TOKENS[:, :7]}

CLASSES_WITH_RESIDUAL_IN_MLP = [
    "BloomModel", "CpmAntModel", "DabDetrModel", "FunnelModel", "LwDetrModel", "MptModel",
    "Pix2StructForConditionalGeneration", "RfDetrModel", "TimesFmModel",
]  # fmt: skip

MODELS: dict[str, tuple[Any, Any, dict[str, Tensor]]] = {
    "gpt2": (
        hf.GPT2LMHeadModel,
        lambda: hf.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64, **SPECIAL_TOKENS),
        TEXTS,
    ),
    "llama": (hf.LlamaForCausalLM, lambda: hf.LlamaConfig(**LLAMA), TEXTS),
    "mistral": (hf.MistralForCausalLM, lambda: hf.MistralConfig(**LLAMA, sliding_window=5), TEXTS),
    "qwen2": (hf.Qwen2ForCausalLM, lambda: hf.Qwen2Config(**LLAMA), TEXTS),
    "gemma2": (
        hf.Gemma2ForCausalLM,
        lambda: hf.Gemma2Config(**LLAMA, head_dim=8, sliding_window=5, attn_logit_softcapping=2.0),
        TEXTS,
    ),
    "bert": (
        hf.BertForMaskedLM,
        lambda: hf.BertConfig(**BERT),
        {"input_ids": TOKENS, "attention_mask": RIGHT_PADDED.long()},
    ),
    "distilbert": (
        hf.DistilBertForMaskedLM,
        lambda: hf.DistilBertConfig(vocab_size=100, dim=32, hidden_dim=48, n_layers=2, n_heads=4),
        {"input_ids": TOKENS, "attention_mask": RIGHT_PADDED.long()},
    ),
    "t5": (
        hf.T5ForConditionalGeneration,
        lambda: hf.T5Config(
            vocab_size=100, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
        ),
        TEXT_PAIRS,
    ),
    "bart": (
        hf.BartForConditionalGeneration,
        lambda: hf.BartConfig(
            vocab_size=100,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            max_position_embeddings=64,
        ),
        TEXT_PAIRS,
    ),
    "vit": (hf.ViTForImageClassification, lambda: hf.ViTConfig(**VIT), {"pixel_values": IMAGES}),
    "swin": (
        hf.SwinForImageClassification,
        lambda: hf.SwinConfig(
            image_size=16, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
        ),
        {"pixel_values": IMAGES},
    ),
    "clip": (
        hf.CLIPModel,
        lambda: hf.CLIPConfig(
            text_config={**BERT, "max_position_embeddings": 64, **SPECIAL_TOKENS}, vision_config=VIT, projection_dim=16
        ),
        {"input_ids": TOKENS, "attention_mask": RIGHT_PADDED.long(), "pixel_values": IMAGES},
    ),
}


def build_model(name: str) -> Any:
    """A model with parameters large enough that heads attend to some keys more than to others."""
    torch.manual_seed(5)
    model_class, build_config, _ = MODELS[name]
    model = model_class(build_config()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3)
    return model


def get_logits(output: Any) -> Tensor:
    logits: Tensor = output.logits_per_image if "logits_per_image" in output else output.logits
    return logits


def select_real_tokens(logits: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    is_padded = "attention_mask" in inputs and logits.dim() == 3 and logits.shape[1] == 13
    return logits[inputs["attention_mask"].bool()] if is_padded else logits


@pytest.mark.parametrize("name", MODELS)
def test_an_open_lens_does_not_change_the_logits(name: str) -> None:
    model, inputs = build_model(name), MODELS[name][2]
    implementation = model.config._attn_implementation
    with torch.no_grad():
        expected = get_logits(model(**inputs))
        with Lens(model) as lens:
            logits = get_logits(lens.run(**inputs, logits=True).output)
            assert torch.equal(get_logits(model(**inputs)), expected), "a call without the lens is not routed"
        again = get_logits(model(**inputs))
    difference = select_real_tokens(logits, inputs) - select_real_tokens(expected, inputs)
    assert difference.abs().max() < 1e-6 * max(1, float(expected.abs().max()))
    assert torch.equal(again, expected) and model.config._attn_implementation == implementation


EAGER_FIELDS = {
    "t5": ("encoder_attentions", "decoder_attentions", "cross_attentions"),
    "bart": ("encoder_attentions", "decoder_attentions", "cross_attentions"),
}
STACK_NAMES = {
    "t5": ("encoder.SelfAttention", "decoder.SelfAttention", "EncDecAttention"),
    "bart": ("encoder.self_attn", "decoder.self_attn", "encoder_attn"),
}


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("swin", "clip")])
def test_weights_equal_those_of_eager_attention(name: str) -> None:
    model, inputs = build_model(name), MODELS[name][2]
    with Lens(model) as lens:
        capture = lens.run(**inputs)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(**inputs, output_attentions=True)
    for field, words in zip(EAGER_FIELDS.get(name, ("attentions",)), STACK_NAMES.get(name, ("",)), strict=True):
        required = words.split(".") if words else []
        sites = [site for site in capture.sites.names if all(word in site.split(".") for word in required)]
        assert len(sites) == 2
        for site, table in zip(sites, eager[field], strict=True):
            for head in range(4):
                # the first text is not padded; rows of padding may differ
                bound = 1e-5 if name == "t5" else 1e-6  # T5's scores are not scaled, so rounding errors are larger
                assert (capture.weights(site, head) - table[0, head]).abs().max() < bound


def test_rows_of_shifted_windows_sum_to_one() -> None:
    model, inputs = build_model("swin"), MODELS["swin"][2]
    with Lens(model) as lens:
        capture = lens.run(**inputs)
    assert len(capture.sites.names) == 4
    for site in capture.sites.names:
        for window in range(capture.attention(site).batch):
            assert torch.allclose(capture.weights(site, 0, window).sum(-1), torch.ones(16), atol=1e-5)


def test_masks_are_expressions_instead_of_tables() -> None:
    for name, expression in (("gpt2", "causal"), ("mistral", "window(5)")):
        model = build_model(name)
        with Lens(model) as lens:
            capture = lens.run(input_ids=TOKENS)
        assert expression in repr(capture.attention(0).calls[0].mask)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "gemma2", "t5", "bart"])
def test_generation_does_not_change_under_the_lens(name: str, cache: str) -> None:
    model = build_model(name)
    inputs = {key: tensor for key, tensor in MODELS[name][2].items() if key != "decoder_input_ids"}
    settings: dict[str, Any] = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    if cache == "static":
        settings |= {"cache_implementation": "static", "disable_compile": True}
    expected = model.generate(**inputs, **settings)
    recorder = Recorder()
    with Lens(model) as lens, lens.prepare_model(), listen(recorder):
        tokens = model.generate(**inputs, **settings)
    assert torch.equal(tokens, expected)
    if name == "mistral":  # a window of 5: one forward pass gives the same rows as decoding step by step
        text = expected[:1, :-1]
        with Lens(model) as lens:
            capture = lens.run(input_ids=text)
        steps = recorder.attentions[capture.sites.names[1]]
        rows = steps.tile(0, 2, slice(13, None), slice(0, text.shape[1]))
        assert (rows - capture.weights(1, 2)[13:]).abs().max() < 1e-5


# edits


def zero_columns(model: Any, name: str, columns: slice) -> None:
    with torch.no_grad():
        model.get_submodule(name).weight[:, columns] = 0


def test_ablating_a_head_equals_zeroing_its_output_projection() -> None:
    model, inputs = build_model("llama"), MODELS["llama"][2]
    with Lens(model) as lens:
        logits = lens.run(**inputs, edits=[Ablate(layer=1, head=2)], logits=True).logits
    zero_columns(model, "model.layers.1.self_attn.o_proj", slice(16, 24))
    with torch.no_grad():
        expected = model(**inputs).logits
    assert (logits - expected)[LEFT_PADDED].abs().max() < 1e-5


def test_ablating_an_attention_or_mlp_equals_zeroing_its_last_layer() -> None:
    for edit, projection in (
        (Ablate(layer=0), "model.layers.0.self_attn.o_proj"),
        (Ablate(layer=0, part="mlp"), "model.layers.0.mlp.down_proj"),
    ):
        model = build_model("llama")
        with Lens(model) as lens:
            logits = lens.run(input_ids=TOKENS, edits=[edit], logits=True).logits
        zero_columns(model, projection, slice(None))
        with torch.no_grad():
            assert (logits - model(input_ids=TOKENS).logits).abs().max() < 1e-5


def test_ablating_an_mlp_keeps_the_residual_stream_that_the_mlp_adds() -> None:
    """Both MLPs receive the residual stream as their second argument and return its sum with their result."""
    sizes = {"vocab_size": 97, "hidden_size": 24, "n_layer": 2, "n_head": 3}
    bloom = hf.BloomForCausalLM(hf.BloomConfig(**sizes)).eval()
    mpt = hf.MptForCausalLM(hf.MptConfig(vocab_size=97, d_model=24, n_layers=2, n_heads=3)).eval()
    for model, blocks in ((bloom, bloom.transformer.h), (mpt, mpt.transformer.blocks)):
        mlp = blocks[0].mlp if model is bloom else blocks[0].ffn
        parts: list[Any] = []
        subtract = lambda _, inputs, output, parts=parts: parts.append(output - inputs[1])  # noqa: E731
        with mlp.register_forward_hook(subtract), Lens(model) as lens:
            capture = lens.run(input_ids=TOKENS, keep="feedforward_output")
            logits = lens.run(input_ids=TOKENS, edits=Ablate(layer=0, part="mlp"), logits=True).logits
        added = next(value for name, value in capture.activations.items() if name.endswith("feedforward_output"))
        assert any(part.shape == added.shape and (part - added).abs().max() < 1e-5 for part in parts)
        with mlp.register_forward_hook(lambda _, inputs, output: inputs[1]), torch.no_grad():
            assert (logits - model(input_ids=TOKENS).logits).abs().max() < 1e-5


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", CLASSES_WITH_RESIDUAL_IN_MLP)
def test_the_part_of_an_mlp_before_its_residual_connection_is_found_once(name: str) -> None:
    model = build_small_model(next(entry for entry in list_model_classes() if entry.name == name))
    feedforwards = [feedforward.module for feedforward in find_feedforwards(model)]
    mlps = [module for module in model.modules() if type(module).__name__ in MLPS_WITH_RESIDUAL]
    assert mlps
    for mlp in mlps:
        parts = [module for module in mlp.modules() if module in feedforwards]
        assert parts == [mlp.get_submodule(MLPS_WITH_RESIDUAL[type(mlp).__name__])]


def test_edits_of_edges_masks_and_temperatures() -> None:
    model = build_model("gpt2")
    with Lens(model) as lens:
        clean = lens.run(input_ids=TOKENS)
        edited = lens.run(input_ids=TOKENS, edits=[KnockOut(layer=0, head=1, query=9, key=2)])
        scaled = lens.run(input_ids=TOKENS, edits=[Scale(layer=0, head=3, temperature=1e6)])
        unmasked = lens.run(input_ids=TOKENS, edits=[Remask(layer=0)])
    expected = clean.weights(0, 1).clone()
    expected[9, 2] = 0
    expected[9] /= expected[9].sum()
    assert torch.allclose(edited.weights(0, 1), expected, atol=1e-6)
    assert torch.allclose(scaled.weights(0, 3)[7], torch.arange(13).lt(8) / 8, atol=1e-4)
    assert unmasked.weights(0, 0).triu(1).any()


def test_the_same_model_in_jumok_and_transformers_gives_the_same_captures(tmp_path: Any) -> None:
    transformers_model = build_model("llama")
    transformers_model.save_pretrained(tmp_path)
    jumok_model = jumok.load(tmp_path)
    edits = [KnockOut(layer=0, query=8, key=3), Ablate(layer=1, head=1, by="mean")]
    with Lens(transformers_model) as transformers_lens, Lens(jumok_model) as jumok_lens:
        expected, capture = transformers_lens.run(input_ids=TOKENS), jumok_lens.run(TOKENS)
        expected_edited = transformers_lens.run(input_ids=TOKENS, edits=edits, logits=True)
        edited = jumok_lens.run(TOKENS, edits=edits, logits=True)
    for layer in range(2):
        for head in range(4):
            assert torch.allclose(capture.weights(layer, head), expected.weights(layer, head), atol=1e-5)
    assert torch.allclose(edited.logits, expected_edited.logits, atol=1e-4)


# one site for each attention

MLA: dict[str, Any] = {
    **LLAMA, "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8, "v_head_dim": 6, "n_routed_experts": 2, "num_experts_per_tok": 1, "n_group": 1,
    "topk_group": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 2,
}  # fmt: skip


def test_latent_attention_is_recorded_once() -> None:
    """Its values are narrower than its keys, so attend() calls a function of PyTorch that the recognizer knows."""
    torch.manual_seed(5)
    model = hf.DeepseekV3ForCausalLM(hf.DeepseekV3Config(**MLA)).eval()
    with Lens(model) as lens:
        assert lens.run(**TEXTS).sites.names == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
        logits = lens.run(**TEXTS, edits=Ablate(layer=1), logits=True).logits
    effects = jumok.effect(model, TOKENS[:1])
    assert sorted((row.layer, row.head) for row in effects.rows) == [
        (layer, head) for layer in (0, 1) for head in range(4)
    ]
    zero_columns(model, "model.layers.1.self_attn.o_proj", slice(None))
    with torch.no_grad():
        assert (logits - model(**TEXTS).logits)[LEFT_PADDED].abs().max() < 1e-5


def test_two_attentions_in_one_module_belong_to_one_layer() -> None:
    torch.manual_seed(5)
    model = hf.DiffLlamaForCausalLM(hf.DiffLlamaConfig(**LLAMA)).eval()
    with Lens(model) as lens:
        first, second, *_ = lens.run(**TEXTS).sites.names
        assert (first, second) == ("model.layers.0.self_attn", "model.layers.0.self_attn.call1")
        with pytest.raises(ArgumentError, match="2 stacks of attentions"):
            lens.run(**TEXTS, edits=Ablate(layer=1))
        logits = lens.run(**TEXTS, edits=Ablate(layer=first), logits=True).logits
    zero_columns(model, "model.layers.0.self_attn.o_proj", slice(None))
    with torch.no_grad():
        assert (logits - model(**TEXTS).logits)[LEFT_PADDED].abs().max() < 1e-5


def test_attentions_that_are_not_recorded_are_named_when_the_model_is_opened() -> None:
    torch.manual_seed(5)
    config = hf.MiniMaxConfig(
        **LLAMA, head_dim=8, layer_types=["full_attention", "linear_attention"], block_size=5, num_local_experts=2
    )
    model = hf.MiniMaxForCausalLM(config).eval()
    sentence = r"incomplete: MiniMaxLightningAttention computes .* not recorded, in model\.layers\.1\.self_attn"
    with Lens(model) as lens:
        with pytest.warns(IncompleteWarning, match=sentence):
            capture = lens.run(**TEXTS)
        lens.run(**TEXTS)  # the warning, which would be an error here, is given once
    assert capture.sites.names == ["model.layers.0.self_attn"]
    with pytest.warns(IncompleteWarning):
        assert "; incomplete: " in find_support_level(model).reason


# errors


def test_other_modules_raise() -> None:
    with pytest.raises(ArgumentError, match="does not support Linear"), Lens(nn.Linear(2, 2)):
        pass


def test_a_closed_lens_leaves_nothing_behind() -> None:
    from transformers.masking_utils import AttentionMaskInterface

    model = build_model("gpt2")
    registries = (hf.AttentionInterface, AttentionMaskInterface)
    for turn in range(40):
        with Lens(model) as lens:
            lens.run(input_ids=TOKENS)
        if turn == 19:
            gc.collect()
            count = sum(type(tracked) is Tensor for tracked in gc.get_objects())
    gc.collect()
    assert sum(type(tracked) is Tensor for tracked in gc.get_objects()) == count
    for registry in registries:
        names = [name for name in registry._global_mapping if name.startswith("jumok-")]
        assert set(names) <= {"jumok-sdpa", "jumok-eager"}, "one for each implementation, not for each lens"
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"clip"}))
@pytest.mark.parametrize("part", ["attention", "mlp"])
def test_ablation_equals_zeroing_the_last_layer_in_every_family(name: str, part: str) -> None:
    """Whatever names a family gives to its modules."""
    from jumok.lens.blocks import find_mlp
    from jumok.lens.effects.direct_effects import find_output_projection
    from jumok.lens.huggingface.module_names import find_feedforwards

    model, inputs = build_model(name), MODELS[name][2]
    with torch.no_grad(), Lens(model) as lens:
        sites = lens.run(**inputs).sites.names
        site = sites[0]
        ablated = get_logits(lens.run(**inputs, edits=Ablate(layer=site, part=part), logits=True).output)
        clean = get_logits(lens.run(**inputs, logits=True).output)
        if part == "attention":
            tensors = list(find_output_projection(model, site))
        else:
            block = find_mlp(model, site)
            assert block.split(".")[:3] == site.split(".")[:3], "of the same layer"
            module = next(module for name, module in find_feedforwards(model) if name == block)
            linears = [
                part
                for part in module.modules()
                if getattr(part, "weight", None) is not None and part.weight.dim() == 2
            ]
            last = linears[-1]
            tensors = [last.weight, getattr(last, "bias", None)]
        for tensor in tensors:
            if tensor is not None:
                tensor.data.zero_()
        expected = get_logits(lens.run(**inputs, logits=True).output)
    assert torch.allclose(select_real_tokens(ablated, inputs), select_real_tokens(expected, inputs), atol=1e-5)
    assert not torch.allclose(select_real_tokens(ablated, inputs), select_real_tokens(clean, inputs), atol=1e-3)
