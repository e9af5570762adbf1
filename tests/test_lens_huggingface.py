"""The lens on models of transformers: the same logits as without it, weights as their eager attention gives them, edits
as on our own models, and nothing left behind."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import jumok
from jumok.errors import ArgumentError
from jumok.lens import Ablate, KnockOut, Lens, Remask, Scale
from jumok.lens.capture import recorder
from jumok.tap import listen

IDS = torch.randint(3, 90, (2, 13), generator=torch.Generator().manual_seed(0))
RIGHT = torch.arange(13) < torch.tensor([[13], [9]])
LEFT = RIGHT.flip(1)
IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
LLAMA: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
BERT: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
PICTURE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16,
    "patch_size": 4,
}  # fmt: skip
ENDS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
WORDS = {"input_ids": IDS, "attention_mask": LEFT.long()}
PAIR = {"input_ids": IDS, "attention_mask": RIGHT.long(), "decoder_input_ids": IDS[:, :7]}

MODELS: dict[str, tuple[Any, Any, dict[str, Tensor]]] = {
    "gpt2": (
        hf.GPT2LMHeadModel,
        lambda: hf.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64, **ENDS),
        WORDS,
    ),
    "llama": (hf.LlamaForCausalLM, lambda: hf.LlamaConfig(**LLAMA), WORDS),
    "mistral": (hf.MistralForCausalLM, lambda: hf.MistralConfig(**LLAMA, sliding_window=5), WORDS),
    "qwen2": (hf.Qwen2ForCausalLM, lambda: hf.Qwen2Config(**LLAMA), WORDS),
    "gemma2": (
        hf.Gemma2ForCausalLM,
        lambda: hf.Gemma2Config(**LLAMA, head_dim=8, sliding_window=5, attn_logit_softcapping=2.0),
        WORDS,
    ),
    "bert": (hf.BertForMaskedLM, lambda: hf.BertConfig(**BERT), {"input_ids": IDS, "attention_mask": RIGHT.long()}),
    "distilbert": (
        hf.DistilBertForMaskedLM,
        lambda: hf.DistilBertConfig(vocab_size=100, dim=32, hidden_dim=48, n_layers=2, n_heads=4),
        {"input_ids": IDS, "attention_mask": RIGHT.long()},
    ),
    "t5": (
        hf.T5ForConditionalGeneration,
        lambda: hf.T5Config(
            vocab_size=100, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
        ),
        PAIR,
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
        PAIR,
    ),
    "vit": (hf.ViTForImageClassification, lambda: hf.ViTConfig(**PICTURE), {"pixel_values": IMAGES}),
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
            text_config={**BERT, "max_position_embeddings": 64, **ENDS}, vision_config=PICTURE, projection_dim=16
        ),
        {"input_ids": IDS, "attention_mask": RIGHT.long(), "pixel_values": IMAGES},
    ),
}


def made(name: str) -> Any:
    """Parameters large enough for heads to look somewhere."""
    torch.manual_seed(5)
    kind, config, _ = MODELS[name]
    model = kind(config()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3)
    return model


def answer(output: Any) -> Tensor:
    found: Tensor = output.logits_per_image if "logits_per_image" in output else output.logits
    return found


def on_real(found: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    padded = "attention_mask" in inputs and found.dim() == 3 and found.shape[1] == 13
    return found[inputs["attention_mask"].bool()] if padded else found


@pytest.mark.parametrize("name", MODELS)
def test_an_open_lens_changes_nothing(name: str) -> None:
    model, inputs = made(name), MODELS[name][2]
    implementation = model.config._attn_implementation
    with torch.no_grad():
        wanted = answer(model(**inputs))
        with Lens(model) as lens:
            found = answer(lens.run(**inputs, logits=True).output)
            assert model.config._attn_implementation != implementation
        again = answer(model(**inputs))
    assert (on_real(found, inputs) - on_real(wanted, inputs)).abs().max() < 1e-6 * max(1, float(wanted.abs().max()))
    assert torch.equal(again, wanted) and model.config._attn_implementation == implementation


EAGER = {
    "t5": ("encoder_attentions", "decoder_attentions", "cross_attentions"),
    "bart": ("encoder_attentions", "decoder_attentions", "cross_attentions"),
}
STACKS = {
    "t5": ("encoder.SelfAttention", "decoder.SelfAttention", "EncDecAttention"),
    "bart": ("encoder.self_attn", "decoder.self_attn", "encoder_attn"),
}


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("swin", "clip")])
def test_weights_are_those_of_their_eager_attention(name: str) -> None:
    model, inputs = made(name), MODELS[name][2]
    with Lens(model) as lens:
        run = lens.run(**inputs)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(**inputs, output_attentions=True)
    for field, words in zip(EAGER.get(name, ("attentions",)), STACKS.get(name, ("",)), strict=True):
        wanted = words.split(".") if words else []
        sites = [one for one in run.sites.names if all(word in one.split(".") for word in wanted)]
        assert len(sites) == 2
        for site, table in zip(sites, eager[field], strict=True):
            for head in range(4):
                # the first text is not padded: what padding looks at is nobody's business
                bound = 1e-5 if name == "t5" else 1e-6  # its scores are not scaled, and as large as float32 is felt
                assert (run.weights(site, head) - table[0, head]).abs().max() < bound


def test_swins_shifted_windows_are_a_bias() -> None:
    model, inputs = made("swin"), MODELS["swin"][2]
    with Lens(model) as lens:
        run = lens.run(**inputs)
    assert len(run.sites.names) == 4
    for site in run.sites.names:
        for window in range(run.attention(site).batch):
            assert torch.allclose(run.weights(site, 0, window).sum(-1), torch.ones(16), atol=1e-5)


def test_masks_are_expressions_not_tables() -> None:
    for name, words in (("gpt2", "causal"), ("mistral", "window(5)")):
        model = made(name)
        with Lens(model) as lens:
            run = lens.run(input_ids=IDS)
        assert words in repr(run.attention(0).calls[0].mask)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "gemma2", "t5", "bart"])
def test_generation_is_the_same_under_the_lens(name: str, cache: str) -> None:
    model = made(name)
    inputs = {word: given for word, given in MODELS[name][2].items() if word != "decoder_input_ids"}
    settings: dict[str, Any] = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    if cache == "static":
        settings |= {"cache_implementation": "static", "disable_compile": True}
    wanted = model.generate(**inputs, **settings)
    heard = recorder.Recorder()
    with Lens(model), listen(heard):
        found = model.generate(**inputs, **settings)
    assert torch.equal(found, wanted)
    if name == "mistral":  # a window of 5: the whole text at once gives the same rows as step by step
        whole = wanted[:1, :-1]
        with Lens(model) as lens:
            once = lens.run(input_ids=whole)
        steps = heard.attentions[once.sites.names[1]]
        rows = steps.tile(0, 2, slice(13, None), slice(0, whole.shape[1]))
        assert (rows - once.weights(1, 2)[13:]).abs().max() < 1e-5


# edits


def zeroed(model: Any, name: str, columns: slice) -> None:
    with torch.no_grad():
        model.get_submodule(name).weight[:, columns] = 0


def test_an_ablated_head_has_no_part_in_the_output_map() -> None:
    model, inputs = made("llama"), MODELS["llama"][2]
    with Lens(model) as lens:
        found = lens.run(**inputs, edits=[Ablate(layer=1, head=2)], logits=True).logits
    zeroed(model, "model.layers.1.self_attn.o_proj", slice(16, 24))
    with torch.no_grad():
        wanted = model(**inputs).logits
    assert (found - wanted)[LEFT].abs().max() < 1e-5


def test_a_whole_attention_and_an_mlp_are_ablated() -> None:
    for edit, maps in (
        (Ablate(layer=0), ("model.layers.0.self_attn.o_proj",)),
        (Ablate(layer=0, part="mlp"), ("model.layers.0.mlp.down_proj",)),
    ):
        model = made("llama")
        with Lens(model) as lens:
            found = lens.run(input_ids=IDS, edits=[edit], logits=True).logits
        for one in maps:
            zeroed(model, one, slice(None))
        with torch.no_grad():
            assert (found - model(input_ids=IDS).logits).abs().max() < 1e-5


def test_edges_masks_and_temperatures_are_edited() -> None:
    model = made("gpt2")
    with Lens(model) as lens:
        clean = lens.run(input_ids=IDS)
        cut = lens.run(input_ids=IDS, edits=[KnockOut(layer=0, head=1, query=9, key=2)])
        warm = lens.run(input_ids=IDS, edits=[Scale(layer=0, head=3, temperature=1e6)])
        free = lens.run(input_ids=IDS, edits=[Remask(layer=0)])
    wanted = clean.weights(0, 1).clone()
    wanted[9, 2] = 0
    wanted[9] /= wanted[9].sum()
    assert torch.allclose(cut.weights(0, 1), wanted, atol=1e-6)
    assert torch.allclose(warm.weights(0, 3)[7], torch.arange(13).lt(8) / 8, atol=1e-4)
    assert free.weights(0, 0).triu(1).any()


def test_our_own_model_and_theirs_see_the_same(tmp_path: Any) -> None:
    theirs = made("llama")
    theirs.save_pretrained(tmp_path)
    ours = jumok.load(tmp_path)
    with Lens(theirs) as one, Lens(ours) as other:
        left, right = one.run(input_ids=IDS), other.run(IDS)
        edits = [KnockOut(layer=0, query=8, key=3), Ablate(layer=1, head=1, by="mean")]
        cut, also = one.run(input_ids=IDS, edits=edits, logits=True), other.run(IDS, edits=edits, logits=True)
    for layer in range(2):
        for head in range(4):
            assert torch.allclose(left.weights(layer, head), right.weights(layer, head), atol=1e-5)
    assert torch.allclose(cut.logits, also.logits, atol=1e-4)


# refusals


def test_a_model_that_passes_by_the_registry_is_refused() -> None:
    config = hf.BloomConfig(vocab_size=100, hidden_size=32, n_layer=2, n_head=4)
    with (
        pytest.raises(ArgumentError, match=r"does not use the (attention )?registry|passed the door"),
        Lens(hf.BloomForCausalLM(config)) as lens,
    ):
        lens.run(input_ids=IDS)
    with pytest.raises(ArgumentError, match="Linear is none of them"), Lens(nn.Linear(2, 2)):
        pass


def test_what_the_lens_does_not_know_is_refused_by_name() -> None:
    model = made("llama")
    attention = model.model.layers[0].self_attn
    forward = attention.forward
    attention.forward = lambda *given, **more: forward(*given, **more, strange_bias=torch.ones(1))
    with pytest.raises(ArgumentError, match="passes strange_bias, which the lens does not know"), Lens(model) as lens:
        lens.run(input_ids=IDS)


def test_nothing_remains() -> None:
    from transformers.masking_utils import AttentionMaskInterface

    model = made("gpt2")
    before = [set(one._global_mapping) for one in (hf.AttentionInterface, AttentionMaskInterface)]
    for turn in range(40):
        with Lens(model) as lens:
            lens.run(input_ids=IDS)
        if turn == 19:
            gc.collect()
            count = sum(type(one) is Tensor for one in gc.get_objects())
    gc.collect()
    assert sum(type(one) is Tensor for one in gc.get_objects()) == count
    assert [set(one._global_mapping) for one in (hf.AttentionInterface, AttentionMaskInterface)] == before
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"clip"}))
@pytest.mark.parametrize("part", ["attention", "mlp"])
def test_what_is_ablated_adds_nothing(name: str, part: str) -> None:
    """As if its last map were 0: for every family, whatever it calls its parts."""
    from jumok.lens.effects.direct_effects import find_output_projection
    from jumok.lens.huggingface.attention_interface import find_feedforwards

    model, inputs = made(name), MODELS[name][2]
    with torch.no_grad(), Lens(model) as lens:
        sites = lens.run(**inputs).sites.names
        site = sites[0]
        found = answer(lens.run(**inputs, edits=Ablate(layer=site, part=part), logits=True).output)
        clean = answer(lens.run(**inputs, logits=True).output)
        if part == "attention":
            tensors = list(find_output_projection(model, site))
        else:
            block = lens._mlp_of(site)
            assert block.split(".")[:3] == site.split(".")[:3], "of the same layer"
            module = next(module for name, module in find_feedforwards(model) if name == block)
            last = [
                one for one in module.modules() if getattr(one, "weight", None) is not None and one.weight.dim() == 2
            ][-1]
            tensors = [last.weight, getattr(last, "bias", None)]
        for tensor in tensors:
            if tensor is not None:
                tensor.data.zero_()
        wanted = answer(lens.run(**inputs, logits=True).output)
    assert torch.allclose(on_real(found, inputs), on_real(wanted, inputs), atol=1e-5)
    assert not torch.allclose(on_real(found, inputs), on_real(clean, inputs), atol=1e-3)
