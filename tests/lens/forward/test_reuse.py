"""A run with edits that reuses a clean capture equals a complete run, and computes only what an edit can change."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from huggingface_models import MODELS, SIZES
from huggingface_models import build_model as build_transformers_model
from jumok.attention import mask
from jumok.attention.cache import Cache
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Capture, Edit, KnockOut, Lens, Patch, Remask, Scale
from jumok.lens.capture.recorder import Recorder
from jumok.models import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.swin import Swin, SwinConfig
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.tap import listen

TOKENS = torch.randint(37, (2, 11), generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(37, (2, 7), generator=torch.Generator().manual_seed(1))
KEEP = ("output", "value", "block_output", "feedforward_output", "input")


def build_gpt() -> GPT:
    torch.manual_seed(3)
    return GPT(GPTConfig(vocabulary=37, length=19, width=12, layers=4, heads=3, hidden=17, dropout=0.5))


def build_translator() -> Transformer:
    torch.manual_seed(3)
    fields = {"vocabulary": 37, "length": 19, "width": 12, "layers": 3, "heads": 3, "hidden": 17}
    return Transformer(TransformerConfig(**fields))


def build_swin() -> Swin:
    torch.manual_seed(3)
    return Swin(SwinConfig(image=(16, 16), patch=(2, 2), width=6, depths=(2, 2), heads=(2, 3), window=3, classes=5))


def check_reuse(lens: Lens, inputs: dict[str, Any], edits: Edit | list[Edit]) -> Capture:
    """Compare a run that reuses a clean capture with a complete run; return the former."""
    positional = inputs.get("inputs", ())
    settings = {name: argument for name, argument in inputs.items() if name != "inputs"}
    clean = lens.run(*positional, keep=KEEP, reusable=True, **settings)
    reused = lens.run(*positional, edits=edits, keep=KEEP, logits=True, reuse=clean, **settings)
    complete = lens.run(*positional, edits=edits, keep=KEEP, logits=True, **settings)

    assert list(reused.attentions) == list(complete.attentions)
    assert set(reused.activations) == set(complete.activations)
    for name, activation in complete.activations.items():
        assert torch.equal(reused.activations[name], activation), name
    for site in complete.attentions:
        assert torch.equal(reused.weights(site), complete.weights(site)), site
    answer = complete.output.logits if getattr(complete.output, "logits", None) is not None else complete.output[0]
    same = reused.output.logits if getattr(reused.output, "logits", None) is not None else reused.output[0]
    assert torch.equal(same, answer)
    assert reused.edits == complete.edits and reused.reusable is None
    return reused


def find_computed_blocks(lens: Lens, *inputs: Any, edits: Any, reuse: Capture, **settings: Any) -> list[str]:
    """Return the attentions that a run computes."""
    recorder = Recorder()
    with listen(recorder):
        lens.run(*inputs, edits=edits, reuse=reuse, **settings)
    return list(recorder.attentions)


GPT_EDITS: dict[str, Any] = {
    "a head": Ablate(2, 1),
    "a complete attention": Ablate(2),
    "an MLP": Ablate(1, part="mlp"),
    "a mean of this pass": Ablate(3, 0, by="mean"),
    "an edge of the first layer": KnockOut(0, head=1, query=5, key=2),
    "an edge of the last layer": KnockOut(-1, query=5, key=2),
    "all layers": Scale(temperature=2.0),
    "a temperature": Scale(3, head=2, temperature=0.5),
    "no mask": Remask(2),
    "a window": Remask(1, mask=mask.causal & mask.window(2)),
    "two layers": [KnockOut(3, query=5, key=2), Ablate(1, 2)],
    "nothing": [],
}


@pytest.mark.parametrize("name", GPT_EDITS)
def test_a_run_that_reuses_a_capture_equals_a_complete_run(name: str) -> None:
    with Lens(build_gpt()) as lens:
        check_reuse(lens, {"inputs": (TOKENS,)}, GPT_EDITS[name])


@pytest.mark.parametrize("part", ["attention", "mlp", "residual"])
def test_patches_are_applied_to_a_reused_capture(part: str) -> None:
    with Lens(build_gpt()) as lens:
        source = lens.run(TOKENS.flip(1), keep=KEEP)
        check_reuse(lens, {"inputs": (TOKENS,)}, Patch(2, part=part, positions=[3, 4], source=source))


def test_only_blocks_from_the_first_edited_one_are_computed() -> None:
    with Lens(build_gpt()) as lens:
        clean = lens.run(TOKENS, reusable=True)
        edits = [Ablate(3, 0), Ablate(2, part="mlp")]
        assert find_computed_blocks(lens, TOKENS, edits=edits, reuse=clean) == [
            "blocks.2.attention",
            "blocks.3.attention",
        ]
        edited = lens.run(TOKENS, edits=edits, reuse=clean)
        assert edited.attentions["blocks.1.attention"] is clean.attentions["blocks.1.attention"]
        assert edited.attentions["blocks.2.attention"] is not clean.attentions["blocks.2.attention"]
        assert len(find_computed_blocks(lens, TOKENS, edits=Ablate(0, 0), reuse=clean)) == 4
        assert find_computed_blocks(lens, TOKENS, edits=[], reuse=clean) == []


@pytest.mark.parametrize("layer", ["encoder.1.attention", "decoder.0.cross", "decoder.2.attention"])
def test_encoder_and_decoder_can_be_edited(layer: str) -> None:
    with Lens(build_translator()) as lens:
        inputs = {"inputs": (TOKENS, TARGETS)}
        check_reuse(lens, inputs, Ablate(layer, 1))
        check_reuse(lens, inputs, KnockOut(layer, query=3, key=2))
        clean = lens.run(TOKENS, TARGETS, reusable=True)
        computed = find_computed_blocks(lens, TOKENS, TARGETS, edits=Ablate(layer, 1), reuse=clean)
    expected = {"encoder.1.attention": 2 + 6, "decoder.0.cross": 6, "decoder.2.attention": 2}
    assert len(computed) == expected[layer]


def test_windows_of_images_can_be_edited() -> None:
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    with Lens(build_swin()) as lens:
        site = lens.run(images).sites.names[2]
        check_reuse(lens, {"inputs": (images,)}, Ablate(site, 1))
        check_reuse(lens, {"inputs": (images,)}, Ablate(site, part="mlp"))
        clean = lens.run(images, reusable=True)
        assert len(find_computed_blocks(lens, images, edits=Ablate(site, 1), reuse=clean)) == 2


def test_a_decoder_that_runs_step_by_step_is_computed_again() -> None:
    torch.manual_seed(3)
    fields = {"vocabulary": 37, "embedding_width": 7, "width": 10, "encoder_width": 6, "layers": 2}
    with Lens(RNNSeq2Seq(RNNSeq2SeqConfig(**fields))) as lens:
        clean = lens.run(TOKENS, TARGETS, reusable=True)
        edits = KnockOut(0, query=3, key=2)
        reused = lens.run(TOKENS, TARGETS, edits=edits, reuse=clean)
        assert torch.equal(reused.weights(0), lens.run(TOKENS, TARGETS, edits=edits).weights(0))


TRANSFORMERS_EDITS = {
    "gpt2": ("transformer.h.1.attn", 2),
    "llama": ("model.layers.1.self_attn", 2),
    "bert": ("bert.encoder.layer.1.attention.self", 2),
    "t5": ("decoder.block.1.layer.1.EncDecAttention", 3),
    "bart": ("model.decoder.layers.1.self_attn", 4),
    "vit": ("vit.layers.2.attention", 1),
    "swin": ("swin.encoder.layers.0.blocks.1.attention", 3),
}


@pytest.mark.parametrize("name", TRANSFORMERS_EDITS)
def test_models_of_transformers_reuse_their_blocks(name: str) -> None:
    inputs = MODELS[name][2]
    layer, computed = TRANSFORMERS_EDITS[name]
    with Lens(build_transformers_model(name)) as lens:
        site = lens.run(**inputs).sites.find(layer)
        check_reuse(lens, inputs, Ablate(site, 1))
        check_reuse(lens, inputs, [Scale(site, temperature=3.0), Ablate(site, part="mlp")])
        source = lens.run(**{field: tensor.flip(1) for field, tensor in inputs.items()}, keep="input")
        check_reuse(lens, inputs, Patch(site, part="residual", positions=2, source=source))
        clean = lens.run(**inputs, reusable=True)
        assert len(find_computed_blocks(lens, **inputs, edits=Ablate(site, 1), reuse=clean)) == computed


def test_an_encoder_of_transformers_changes_the_whole_decoder() -> None:
    with Lens(build_transformers_model("t5")) as lens:
        reused = check_reuse(lens, MODELS["t5"][2], Ablate("encoder.block.1.layer.0.SelfAttention", 0))
    assert len(reused.attentions) == 9


def test_a_module_that_runs_several_times_is_computed_again() -> None:
    torch.manual_seed(5)
    model = hf.AlbertModel(hf.AlbertConfig(vocab_size=100, embedding_size=16, **SIZES)).eval()
    with Lens(model) as lens:
        sites = lens.run(input_ids=TOKENS).sites.names
        assert len(sites) == 3 and sites[2].endswith("#2")
        for site in sites:
            check_reuse(lens, {"input_ids": TOKENS}, Ablate(site, 1))


def test_stored_outputs_survive_a_model_that_changes_them_in_place() -> None:
    def add_in_place(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        inputs[0].add_(1)

    model = build_gpt()
    model.blocks[2].register_forward_pre_hook(add_in_place)
    with Lens(model) as lens:
        check_reuse(lens, {"inputs": (TOKENS,)}, Ablate(2, 1))
        clean = lens.run(TOKENS, reusable=True)
        first, second = (lens.run(TOKENS, edits=Ablate(2, 1), reuse=clean) for _ in range(2))
        assert torch.equal(first.weights(3), second.weights(3))


def double_first_block(site: str, value: Any) -> Any:
    return 2 * value if site == "blocks.0.attention.output" else value


def test_a_listener_that_changes_a_block_is_heard_although_the_block_is_known() -> None:
    with Lens(build_gpt()) as lens:
        clean = lens.run(TOKENS, reusable=True)
        with listen(double_first_block):
            reused, complete = (
                lens.run(TOKENS, edits=Ablate(2, 1), logits=True, reuse=stored).logits for stored in (clean, None)
            )
            with pytest.raises(ArgumentError, match="a listener is open that may change what the blocks compute"):
                lens.run(TOKENS, reusable=True)
        plain = lens.run(TOKENS, edits=Ablate(2, 1), logits=True, reuse=clean).logits
    assert torch.equal(reused, complete) and not torch.allclose(plain, complete, atol=1e-3)


def test_a_hook_on_a_block_runs_once_and_a_new_hook_is_noticed() -> None:
    model = build_gpt()
    model.blocks[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    with Lens(model) as lens:
        check_reuse(lens, {"inputs": (TOKENS,)}, Ablate(2, 1))
        clean = lens.run(TOKENS, reusable=True)
        model.blocks[0].attention.register_forward_hook(lambda *_: None)
        with pytest.raises(ArgumentError, match="hooks of the model have changed"):
            lens.run(TOKENS, edits=Ablate(2, 1), reuse=clean)


def test_a_forward_of_a_block_that_was_there_before_stays() -> None:
    model = build_gpt()
    block, compute = model.blocks[1], model.blocks[1].forward

    def forward(*arguments: Any, **settings: Any) -> Any:
        return 2 * compute(*arguments, **settings)

    block.forward = forward
    with Lens(model) as lens:
        check_reuse(lens, {"inputs": (TOKENS,)}, Ablate(2, 1))
    assert block.forward is forward


def test_a_run_with_edits_does_not_run_the_model_to_find_sites_it_knows() -> None:
    model = build_gpt()
    count = Counter[str]()
    model.register_forward_hook(lambda *_: count.update(["forward"]))
    with Lens(model) as lens:
        lens.run(TOKENS)
        lens.run(TOKENS, edits=Ablate(1, 0))
    assert count["forward"] == 2
    with Lens(model) as lens:
        lens.run(TOKENS, edits=Ablate(1, 0))
        lens.run(TOKENS, edits=Ablate(1, 1))
    assert count["forward"] == 2 + 3, "the first edit needs the sites"


def test_the_sites_depend_on_the_arguments_that_are_given() -> None:
    model, inputs = build_transformers_model("t5"), MODELS["t5"][2]
    with Lens(model) as lens:
        assert len(lens.run(**inputs).sites.names) == 9
        with torch.no_grad():
            encoded = model.encoder(inputs["input_ids"])
        targets = {"encoder_outputs": tuple(encoded.values()), "decoder_input_ids": inputs["decoder_input_ids"]}
        edited = lens.run(**targets, edits=Ablate(layer=None, head=1))
        assert len(edited.sites.names) == 6, "the encoder does not run"


def test_captures_that_do_not_fit_are_refused() -> None:
    model = build_gpt()
    with Lens(model) as lens:
        clean = lens.run(TOKENS, reusable=True, keep="value")
        edit = Ablate(1, 0)
        with pytest.raises(ArgumentError, match="of other inputs"):
            lens.run(TOKENS.flip(1), edits=edit, reuse=clean)
        with pytest.raises(ArgumentError, match="of other inputs"):
            lens.run(TOKENS[:1], edits=edit, reuse=clean)
        with pytest.raises(ArgumentError, match="with another token_mask"):
            lens.run(TOKENS, edits=edit, reuse=clean, token_mask=torch.ones(2, 11, dtype=torch.bool))
        with pytest.raises(ArgumentError, match=r"did not keep output; create it with keep=\('output', 'value'\)"):
            lens.run(TOKENS, edits=edit, reuse=clean, keep=("output", "value"))
        with pytest.raises(ArgumentError, match=r"has no outputs of blocks.*reusable=True"):
            lens.run(TOKENS, edits=edit, reuse=lens.run(TOKENS))
        with pytest.raises(ArgumentError, match="complete forward pass"):
            lens.run(TOKENS, edits=edit, reuse=clean, gradients=True)
        with pytest.raises(ArgumentError, match="has no edits"):
            lens.run(TOKENS, edits=edit, reusable=True)
        with pytest.raises(ArgumentError, match="can be compared"):
            lens.run(TOKENS, reusable=True, cache=Cache())
    with Lens(build_gpt()) as other, pytest.raises(ArgumentError, match="of another model"):
        other.run(TOKENS, edits=edit, reuse=clean)
    with torch.no_grad():
        model.blocks[0].attention.output.weight.mul_(2)
    with Lens(model) as lens, pytest.raises(ArgumentError, match="parameters or hooks of the model have changed"):
        lens.run(TOKENS, edits=edit, reuse=clean)


def test_the_input_of_a_reusable_run_may_be_changed_in_place() -> None:
    tokens = TOKENS.clone()
    with Lens(build_gpt()) as lens:
        clean = lens.run(tokens, reusable=True)
        tokens[0, 0] = (tokens[0, 0] + 1) % 37
        with pytest.raises(ArgumentError, match="of other inputs"):
            lens.run(tokens, edits=Ablate(1, 0), reuse=clean)
        lens.run(TOKENS, edits=Ablate(1, 0), reuse=clean)


def test_a_model_of_transformers_with_a_cache_is_refused() -> None:
    with Lens(build_transformers_model("gpt2")) as lens:
        with pytest.raises(ArgumentError, match="builds no key/value cache"):
            lens.run(input_ids=TOKENS, reusable=True, use_cache=True)
        with pytest.raises(ArgumentError, match="not a DynamicCache"):
            lens.run(input_ids=TOKENS, reusable=True, past_key_values=hf.DynamicCache())
