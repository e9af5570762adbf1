"""The residual stream that enters each block: recorded by keep="input", and replaced by Patch(part="residual")."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import jumok
from huggingface_models import MODELS, build_model
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Edit, Lens, Patch, sweep_patches
from jumok.lens.effects.edit_runner import EditRunner
from jumok.lens.effects.metrics import LogProbability
from jumok.lens.effects.patch_sweep import measure_patches
from jumok.lens.huggingface.module_names import find_tap_points, register_taps
from jumok.models import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.registry import get_family
from jumok.tap import listen

#: by model: its blocks, and the field of its output with the hidden states at their inputs
HIDDEN_STATES = [
    ("gpt2", "transformer.h", "hidden_states"),
    ("llama", "model.layers", "hidden_states"),
    ("opt", "model.decoder.layers", "hidden_states"),
    ("gpt_neox", "gpt_neox.layers", "hidden_states"),
    ("bert", "bert.encoder.layer", "hidden_states"),
    ("t5", "encoder.block", "encoder_hidden_states"),
    ("t5", "decoder.block", "decoder_hidden_states"),
    ("bart", "model.encoder.layers", "encoder_hidden_states"),
    ("bart", "model.decoder.layers", "decoder_hidden_states"),
    ("vit", "vit.layers", "hidden_states"),
]


@pytest.mark.parametrize(("name", "blocks", "field"), HIDDEN_STATES)
def test_inputs_of_blocks_equal_the_hidden_states_of_transformers(name: str, blocks: str, field: str) -> None:
    model, inputs = build_model(name), MODELS[name][2]
    with Lens(model) as lens:
        capture = lens.run(**inputs, output_hidden_states=True, keep="input", logits=True)
    for layer in range(3):  # the last element, after the last block, may be normalised
        assert torch.equal(capture.activations[f"{blocks}.{layer}.input"], capture.output[field][layer])
    with torch.no_grad():
        plain: tuple[Tensor, ...] = model(**inputs, output_hidden_states=True)[field]
    assert torch.allclose(capture.activations[f"{blocks}.2.input"], plain[2], atol=1e-4)


def test_every_block_of_a_model_has_one_input() -> None:
    expected: dict[str, list[str]] = {
        "t5": [f"{side}.block.{layer}" for side in ("encoder", "decoder") for layer in range(3)],
        "swin": [f"swin.encoder.layers.{stage}.blocks.{block}" for stage in range(2) for block in range(2)],
    }
    for name, blocks in expected.items():
        model, inputs = build_model(name), MODELS[name][2]
        with Lens(model) as lens:
            activations: dict[str, Any] = lens.run(**inputs, keep=("input",)).activations
        assert list(activations) == [f"{block}.input" for block in blocks]


def test_sites_are_named_when_a_module_runs() -> None:
    """A module that runs twice in one forward pass can have two names."""
    model, sites = build_model("t5"), []
    runs: Counter[str] = Counter()

    def name_site(name: str) -> str:
        return f"{name}#{runs['forward']}"

    handles = register_taps(find_tap_points(model), name_site, name_site, lambda hook: hook)
    with listen(lambda site, value: (sites.append(site), value)[1]):
        for _ in range(2):
            model(**MODELS["t5"][2])
            runs["forward"] += 1
    for handle in handles:
        handle.remove()
    assert {"decoder.block.2#0.input", "decoder.block.2#1.input"} <= set(sites)
    assert "encoder.block.0.layer.0.SelfAttention#1.block_output" in sites
    assert "encoder.block.0.layer.1#1.feedforward_output" in sites


# replacing the residual stream

TEXT: dict[str, Any] = {"vocabulary": 37, "width": 12, "layers": 2, "heads": 3, "hidden": 17}
TEXTS = torch.randint(3, 37, (2, 1, 7), generator=torch.Generator().manual_seed(0)).unbind()
TARGETS = torch.randint(3, 37, (2, 1, 5), generator=torch.Generator().manual_seed(1)).unbind()
IMAGES = torch.randn(2, 1, 3, 16, 16, generator=torch.Generator().manual_seed(2)).unbind()
NUMBERS = torch.randn(2, 1, 5, generator=torch.Generator().manual_seed(3)).unbind()
REGIONS = torch.randn(2, 1, 5, 11, generator=torch.Generator().manual_seed(4)).unbind()
SPECTROGRAMS = torch.randn(2, 1, 5, 16, generator=torch.Generator().manual_seed(5)).unbind()
ENDS = {"start": 1, "end": 2, "pad": 0}
#: by family: the fields of a small config, and two inputs of each argument
FAMILIES: dict[str, tuple[dict[str, Any], list[tuple[Tensor, ...]]]] = {
    "gpt": ({**TEXT, "length": 19}, [TEXTS]),
    "bert": ({**TEXT, "length": 19, "head": "mlm"}, [TEXTS]),
    "long": ({**TEXT, "length": 19, "window": 3}, [TEXTS]),
    "classifier": ({"encoder": {"family": "bert", **TEXT, "length": 19}, "classes": 3}, [TEXTS]),
    "t5": ({**TEXT, "head_width": 5, "decoder_layers": 2}, [TEXTS, TARGETS]),
    "fusion": ({**TEXT, "length": 19, "separator": 9}, [TEXTS, TARGETS]),
    "transformer": ({**TEXT, "length": 19}, [TEXTS, TARGETS]),
    "vit": ({"image": [16, 16], "patch": [4, 4], "width": 12, "layers": 2, "heads": 3, "hidden": 17}, [IMAGES]),
    "swin": (
        {"image": [16, 16], "patch": [2, 2], "width": 6, "depths": [2, 1], "heads": [2, 3], "window": 3},
        [IMAGES],
    ),
    "captioner": ({**TEXT, "regions": 5, "features": 11, "length": 19, "decoder_layers": 2}, [REGIONS, TARGETS]),
    "speech": (
        {
            **TEXT,
            "mel_bins": 5,
            "source_length": 8,
            "target_length": 19,
            "decoder_layers": 2,
            "decoder_heads": 3,
            **ENDS,
        },
        [SPECTROGRAMS, TARGETS],
    ),
    "numeric": ({"width": 6, "heads": 3, "layers": 2, "hidden": 11, "scale": 1.0}, [NUMBERS, NUMBERS]),
}


def build_family(name: str) -> tuple[Any, list[Tensor], list[Tensor]]:
    """A small model, and two inputs for it."""
    torch.manual_seed(7)
    fields, inputs = FAMILIES[name]
    model = get_family(name)(get_family(name).config_class.from_json(fields)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8)
    return model, [pair[0] for pair in inputs], [pair[1] for pair in inputs]


def read_answer(output: Any) -> Tensor:
    answer: Tensor = output.hidden if output.logits is None else output.logits
    return answer


def test_a_patch_at_every_position_gives_the_logits_of_the_other_text() -> None:
    """Everything after a block's input depends only on it, in a model with one sequence and no padding."""
    for name in ("gpt2", "llama", "opt", "gpt_neox", "bert", "vit", "swin"):
        model, (key, inputs) = build_model(name), next(iter(MODELS[name][2].items()))
        with Lens(model) as lens:
            other = lens.run(**{key: inputs[1:]}, keep="input", logits=True)
            clean = lens.run(**{key: inputs[:1]}, logits=True)
            for layer in (0, 1):
                edit = Patch(layer=layer, part="residual", source=other)
                patched = lens.run(**{key: inputs[:1]}, edits=edit, logits=True)
                assert torch.equal(patched.logits, other.logits), (name, layer)
        assert not torch.allclose(clean.logits, other.logits, atol=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_patch_reaches_every_block_of_every_family(family: str) -> None:
    model, first, second = build_family(family)
    with Lens(model) as lens:
        clean = lens.run(*first, keep="input", logits=True)
        other = lens.run(*second, keep="input", logits=True)
        repatched = lens.run(*first, edits=Patch(part="residual", source=clean), logits=True)
        assert torch.equal(read_answer(repatched.output), read_answer(clean.output)), "its own residual stream"
        for site in clean.sites.names:
            patch = Patch(layer=site, part="residual", source=other)
            patched = lens.run(*first, edits=patch, keep="input", logits=True)
            block = site.rpartition(".")[0]
            assert torch.equal(patched.activations[f"{block}.input"], other.activations[f"{block}.input"])
            assert not torch.allclose(read_answer(patched.output), read_answer(clean.output), atol=1e-4), site
            if not clean.sites.has_target:
                assert torch.equal(read_answer(patched.output), read_answer(other.output))


def test_a_patch_of_some_positions_equals_a_hook_on_the_block_of_transformers() -> None:
    """TransformerLens' patching of resid_pre: the input of a block is replaced at one position."""
    model, tokens = build_model("gpt2"), MODELS["gpt2"][2]["input_ids"]
    with torch.no_grad():
        hidden = model(input_ids=tokens[1:], output_hidden_states=True).hidden_states[1]

    def replace_position(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        patched = inputs[0].clone()
        patched[:, 4] = hidden[:, 4]
        return (patched, *inputs[1:])

    handle = model.transformer.h[1].register_forward_pre_hook(replace_position)
    with torch.no_grad():
        expected = model(input_ids=tokens[:1]).logits
    handle.remove()
    with Lens(model) as lens:
        other = lens.run(input_ids=tokens[1:], keep="input", name="other")
        patch = Patch(layer=1, positions=4, part="residual", source=other)
        patched = lens.run(input_ids=tokens[:1], edits=patch, logits=True).logits
        clean = lens.run(input_ids=tokens[:1], logits=True).logits
    assert (patched - expected).abs().max() < 1e-5
    assert (patched - clean)[:, 4:].abs().amax(-1).min() > 1e-2
    assert torch.equal(patched[:, :4], clean[:, :4]), "a causal model's earlier positions do not change"
    fields = patch.to_json()
    assert fields["part"] == "residual" and Edit.from_json(fields, {"other": other}) == patch


def test_a_decoder_layer_may_be_named_by_its_block_or_by_an_attention() -> None:
    model, inputs = build_model("bart"), MODELS["bart"][2]
    with Lens(model) as lens:
        other = lens.run(**{key: tensor.flip(0) for key, tensor in inputs.items()}, keep="input")
        logits = [
            lens.run(**inputs, edits=Patch(layer=layer, positions=2, part="residual", source=other), logits=True).logits
            for layer in ("decoder.layers.1", "decoder.1.encoder_attn", "model.decoder.layers.1.self_attn")
        ]
        assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])
        for layer, message in ((1, "3 stacks of attentions"), ("decoder", "ambiguous"), ("decoder.7", "no attention")):
            with pytest.raises(ArgumentError, match=message):
                lens.run(**inputs, edits=Patch(layer=layer, part="residual", source=other))


def test_mistakes_in_a_residual_patch_raise() -> None:
    model, tokens = build_model("gpt2"), MODELS["gpt2"][2]["input_ids"]
    with Lens(model) as lens:
        other = lens.run(input_ids=tokens[:1, :7], keep="input")
        two_texts = lens.run(input_ids=tokens, keep="input")
        without_inputs = lens.run(input_ids=tokens)
        longer = lens.run(input_ids=torch.cat([tokens[:1], tokens[:1, :2]], 1), keep="input")
        lens.run(input_ids=tokens[:1], edits=Patch(layer=1, positions=[0, 5], part="residual", source=longer))
        for source, positions, message in (
            (without_inputs, None, r"did not record transformer.h.1.input; .*keep='input'"),
            (other, None, "the source capture has 7 positions"),
            (other, (0, 99), "transformer.h.1.input has 11 positions, counted from 0; 99 is not"),
            (two_texts, None, "has 2 texts, but this forward pass has 1"),
            (longer, None, r"has 13 positions at transformer\.h\.1\.input, but this text has 11"),
        ):
            with pytest.raises(ArgumentError, match=message):
                lens.run(
                    input_ids=tokens[:1], edits=Patch(layer=1, positions=positions, part="residual", source=source)
                )
    for build_edit, message in (
        (lambda: Patch(layer=0, part="residual"), "keep='input'"),
        (lambda: Patch(layer=0, head=1, part="residual", source=other), "a residual stream has no heads"),
        (lambda: Patch(layer=0, head=1, part="mlp", source=other), "an MLP has no heads"),
        (lambda: Ablate(layer=0, part="residual"), "can only be replaced, by Patch"),
    ):
        with pytest.raises(ArgumentError, match=message):
            build_edit()


def test_a_recurrent_model_has_no_residual_stream() -> None:
    model = RNNSeq2Seq(RNNSeq2SeqConfig(vocabulary=40, embedding_width=8, width=12)).eval()
    tokens = torch.tensor([[1, 5, 7]])
    with Lens(model) as lens:
        capture = lens.run(tokens, tokens, keep="input")
        with pytest.raises(ArgumentError, match="cross of RNNSeq2Seq is not part of a block"):
            lens.run(tokens, tokens, edits=Patch(part="residual", source=capture))


# sweeps over layers and positions


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_a_sweep_equals_one_patch_at_a_time(name: str) -> None:
    model, inputs = build_model(name), MODELS[name][2]
    clean = {key: tensor[:1] for key, tensor in inputs.items()}
    corrupted = {key: torch.cat([tensor[1:, :2], tensor[:1, 2:]], 1) for key, tensor in inputs.items()}
    metric = LogProbability(7)
    sweep = sweep_patches(model, clean, corrupted, metric=metric)

    def measure(edits: Any, settings: Any) -> float:
        logits = lens.run(**settings, edits=edits, logits=True).logits
        return float(logits[0, -1].log_softmax(-1)[7])

    with Lens(model) as lens:
        source = lens.run(**clean, keep="input")
        assert sweep.clean == pytest.approx(measure([], clean), abs=1e-5)
        assert sweep.corrupted == pytest.approx(measure([], corrupted), abs=1e-5)
        for row, block in enumerate(sweep.blocks):
            length = source.activations[f"{block}.input"].shape[1]
            assert sweep.effects[row, length:].isnan().all() and not sweep.effects[row, :length].isnan().any()
            for position in range(length):
                patch = Patch(layer=block, positions=position, part="residual", source=source)
                expected = measure(patch, corrupted) - sweep.corrupted
                assert float(sweep.effects[row, position]) == pytest.approx(expected, abs=2e-5)
    assert sweep.effects.nan_to_num().abs().max() > 0.01
    first_block = sweep.effects[0]
    assert first_block[2:].nan_to_num().abs().max() < 1e-5, "the texts have the same tokens from position 2"


@pytest.mark.parametrize("part", ["attention", "mlp"])
def test_a_sweep_over_heads_or_mlps_equals_hooks_of_torch(part: str) -> None:
    model, clean, corrupted = build_model("gpt2"), torch.tensor([[3, 5, 7, 11]]), torch.tensor([[3, 13, 7, 11]])
    sweep = sweep_patches(model, clean, corrupted, part=part, metric=LogProbability(7))
    width = model.config.n_embd // model.config.n_head

    def run(tokens: Tensor, edited: Tensor | None = None, layer: int = 0, column: int = 0) -> tuple[float, Tensor]:
        """Return the metric, and what the layer computed; a head or a position of it is replaced."""
        values: list[Tensor] = []

        def replace(value: Tensor) -> Tensor:
            values.append(value)
            value = value.clone()
            selected = (slice(None), slice(column * width, (column + 1) * width)) if part == "attention" else column
            if edited is not None:
                value[0][selected] = edited[0][selected]
            return value

        block = model.transformer.h[layer]
        if part == "attention":
            hook = block.attn.c_proj.register_forward_pre_hook(lambda module, inputs: (replace(inputs[0]),))
        else:
            hook = block.mlp.register_forward_hook(lambda module, inputs, output: replace(output))
        with hook, torch.no_grad():
            logits = model(tokens).logits
        return float(logits[0, -1].log_softmax(-1)[7]), values[0]

    for layer in range(len(model.transformer.h)):
        source = run(clean, layer=layer)[1]
        for column in range(sweep.effects.shape[1]):
            expected = run(corrupted, source, layer, column)[0] - run(corrupted)[0]
            assert float(sweep.effects[layer, column]) == pytest.approx(expected, abs=2e-5)
    assert sweep.effects.shape[1] == (model.config.n_head if part == "attention" else 4)
    assert sweep.effects.abs().max() > 0.001


def test_a_patch_reads_other_positions_of_its_source() -> None:
    """Without its first character, the clean text is one position shorter; a sweep over these partners equals it."""
    clean, corrupted, partners = "at sat; the cat", "hat did; the cat", [None, *range(15)]
    with Lens("tiny") as lens:
        source = lens.run(clean, keep="input", logits=True)
        runner = EditRunner(lens, (corrupted,), {}, LogProbability(" "))
        layers = measure_patches(runner, source, "residual", partners={"source": partners})
        for position, other in [(4, 3), (15, 14)]:
            edit = Patch(layer=1, part="residual", positions=position, source_positions=other, source=source)
            edited = lens.run(corrupted, edits=edit, keep="input", logits=True)
            stream = edited.activations["blocks.1.input"]
            assert torch.equal(stream[0, position], source.activations["blocks.1.input"][0, other])
            effect = float(edited.logits[0, -1].log_softmax(-1)[ord(" ")]) - runner.clean_value
            assert float(layers[1].effects[position]) == pytest.approx(effect, abs=2e-5)
        assert layers[1].effects.isnan().tolist() == [True] + 15 * [False]
        with pytest.raises(ArgumentError, match=r"the source capture has 15 positions.*15 is not one of them"):
            lens.run(corrupted, edits=Patch(0, part="residual", positions=3, source_positions=15, source=source))
        with pytest.raises(ArgumentError, match="equally many, not 2 and 1"):
            Patch(0, positions=(1, 2), source_positions=3, source=source)


def test_a_sweep_of_tiny_finds_the_changed_character(tmp_path: Path) -> None:
    clean, corrupted = "the cat sat; the cat", "the dog sat; the cat"
    sweep = sweep_patches("tiny", clean, corrupted, metric=LogProbability(" "))
    assert sweep.labels == tuple("the␣dog␣sat;␣the␣cat") and sweep.blocks == ("blocks.0", "blocks.1")
    assert sweep.effects[0, 4:7].abs().max() == sweep.effects[0].abs().max() > 0.1
    assert torch.allclose(sweep.recovered * (sweep.clean - sweep.corrupted), sweep.effects)
    image = sweep.save(tmp_path / "sweep.svg")
    assert "position" in image.read_text() and "blocks.1" in image.read_text()
    tiny = jumok.load("tiny")
    named = sweep_patches(tiny.model, clean, corrupted, metric=LogProbability(" "), tokenizer=tiny.tokenizer)
    assert torch.equal(named.effects, sweep.effects) and named.labels == sweep.labels
    with pytest.raises(ArgumentError, match="19 positions for the clean input and 20 for the corrupted"):
        sweep_patches("tiny", clean[:-1], corrupted)
