"""Lens.generate: the tokens of the model's own decoding, one row for every token that is read, edits at every step."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jumok
from huggingface_models import TOKENS as HUGGINGFACE_TOKENS
from huggingface_models import build_model as build_huggingface_model
from jumok.errors import ArgumentError, ContextWarning
from jumok.generate import Sampling, generate
from jumok.lens import Ablate, Generation, KnockOut, Lens, Patch, Remask, Scale
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.models.gpt import GPT, GPTConfig, llama_config
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.t5 import T5, T5Config
from jumok.models.transformer import Transformer, TransformerConfig

SMALL: dict[str, Any] = {"width": 24, "layers": 2, "heads": 4, "hidden": 32}
PROMPT = [5, 3, 17, 22, 9, 30, 8]
LIMIT = 6
# an untrained model repeats one token; with a penalty every step has another one
PENALTY = {"repetition": 5.0}
HUGGINGFACE_PENALTY = {"repetition_penalty": 5.0}


def build_model(family: Any, config: Any) -> Any:
    """A model with larger parameters than a new one, so that its heads attend to some keys more than to others."""
    torch.manual_seed(3)
    model = family(config).eval()
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2 and id(parameter) not in embeddings:
                parameter.mul_(4)
    return model


MODELS: dict[str, Any] = {
    "gpt": lambda: build_model(GPT, GPTConfig(vocabulary=40, length=16, **SMALL)),
    "llama": lambda: build_model(GPT, llama_config(vocabulary=40, length=16, groups=2, window=4, **SMALL)),
    "t5": lambda: build_model(T5, T5Config(vocabulary=40, decoder_layers=2, end=39, **SMALL)),
    "transformer": lambda: build_model(Transformer, TransformerConfig(vocabulary=40, length=16, end=39, **SMALL)),
    "bahdanau": lambda: build_model(
        RNNSeq2Seq, RNNSeq2SeqConfig(vocabulary=40, embedding_width=8, width=12, end=39)
    ),
    "luong": lambda: build_model(
        RNNSeq2Seq, RNNSeq2SeqConfig(vocabulary=40, embedding_width=8, width=12, attention="luong_general", end=39)
    ),
}  # fmt: skip
HUGGINGFACE_MODELS = ("gpt2", "llama", "t5", "bart")


def generate_with_transformers(model: Any, prompt: Tensor, limit: int = LIMIT, **settings: Any) -> list[int]:
    """The new tokens of transformers' own generate."""
    tokens = model.generate(prompt, max_new_tokens=limit, do_sample=False, **settings)[0].tolist()
    return tokens[1 if model.config.is_encoder_decoder else prompt.shape[1] :]


def generate_with_penalty(model: Any, prompt: list[int]) -> list[int]:
    """The new tokens of Jumok's own decoding."""
    ends = () if model.end_token is None else (model.end_token,)
    return generate(model, [prompt], limit=LIMIT, sampling=Sampling(temperature=0.0, **PENALTY), ends=ends)[0]


def capture_in_one_pass(lens: Lens, prompt: list[int], generation: Generation, edits: Any = ()) -> Any:
    """The capture of one forward pass over all tokens that the generation read."""
    model: Any = lens.model
    read = generation.token_ids[:-1]
    if isinstance(model, jumok.models.Model):
        inputs = [[*prompt, *read]] if not model.is_encoder_decoder else [prompt, [model.start_token, *read]]
        return lens.run(*inputs, edits=edits, keep=("input", "output"))
    if not model.config.is_encoder_decoder:
        return lens.run(input_ids=torch.tensor([[*prompt, *read]]), edits=edits, keep=("input", "output"))
    start = model.generation_config.decoder_start_token_id
    decoder_input_ids = torch.tensor([[start, *read]])
    return lens.run(
        input_ids=torch.tensor([prompt]), decoder_input_ids=decoder_input_ids, edits=edits, keep=("input", "output")
    )


def assert_equal_captures(generated: Any, expected: Any, bound: float = 1e-5) -> None:
    assert generated.sites.names == expected.sites.names
    for site in expected.sites.names:
        for head in range(expected.heads(site)):
            difference = generated.weights(site, head) - expected.weights(site, head)
            assert difference.abs().max() < bound, (site, head)
    assert list(generated.activations) == list(expected.activations)
    for site, activation in expected.activations.items():
        scale = max(1.0, float(activation.abs().max()))
        assert (generated.activations[site] - activation).abs().max() < bound * scale, site


@pytest.mark.parametrize("name", MODELS)
def test_tokens_and_weights_equal_those_of_the_models_own_decoding(name: str) -> None:
    model = MODELS[name]()
    expected = generate_with_penalty(model, PROMPT)
    with Lens(model) as lens:
        generation = lens.generate(PROMPT, limit=LIMIT, keep=("input", "output"), **PENALTY)
        assert generation.token_ids == expected and generation.text is None
        assert len(set(expected)) == len(expected) > 2, "otherwise a wrong row could look like a right one"
        assert [lens.generate(PROMPT, limit=LIMIT).token_ids] == generate(model, [PROMPT], limit=LIMIT)
        assert_equal_captures(generation.capture, capture_in_one_pass(lens, PROMPT, generation))


@pytest.mark.parametrize("name", HUGGINGFACE_MODELS)
def test_tokens_and_weights_equal_those_of_transformers(name: str) -> None:
    model, prompt = build_huggingface_model(name), HUGGINGFACE_TOKENS[:1]
    expected = generate_with_transformers(model, prompt, **HUGGINGFACE_PENALTY)
    with Lens(model) as lens:
        generation = lens.generate(prompt, limit=LIMIT, keep=("input", "output"), **HUGGINGFACE_PENALTY)
        assert generation.token_ids == expected and len(set(expected)) == len(expected) > 3
        assert_equal_captures(generation.capture, capture_in_one_pass(lens, prompt[0].tolist(), generation), 2e-5)
        by_name = lens.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), limit=LIMIT)
        assert by_name.token_ids == generate_with_transformers(model, prompt)


def test_a_caption_is_generated_from_regions() -> None:
    config = CaptionerConfig(
        vocabulary=40, regions=5, features=11, length=19, decoder_layers=2, start=1, end=39, **SMALL
    )
    model, regions = build_model(Captioner, config), torch.randn(1, 5, 11, generator=torch.Generator().manual_seed(0))
    with Lens(model) as lens:
        generation = lens.generate(regions, limit=LIMIT)
        target = [1, *generation.token_ids[:-1]]
        logits = lens.run(regions, target, logits=True).logits
    assert generation.token_ids == logits[0].argmax(-1).tolist()
    assert generation.capture.weights("decoder.1.cross", 0).shape == (LIMIT, 5)


# edits


@pytest.mark.parametrize("name", ["gpt", "t5", "transformer"])
def test_a_knock_out_holds_at_every_step(name: str) -> None:
    model = MODELS[name]()
    layer = "decoder.1.attention" if model.is_encoder_decoder else 1
    edits = [KnockOut(layer=layer, key=2)]
    with Lens(model) as lens:
        edited = lens.generate(PROMPT, limit=LIMIT, edits=edits, keep=("input", "output"), **PENALTY)
        weights = edited.capture.weights(layer)
        assert not weights[:, :, 2].any() and weights[:, 1:, 1].all()
        assert torch.allclose(weights[:, 0].sum(-1), torch.ones(4))
        one_pass = capture_in_one_pass(lens, PROMPT, edited, edits)
        assert_equal_captures(edited.capture, one_pass)


@pytest.mark.parametrize("name", HUGGINGFACE_MODELS)
def test_a_knock_out_holds_at_every_step_of_transformers(name: str) -> None:
    model, prompt = build_huggingface_model(name), HUGGINGFACE_TOKENS[:1]
    with Lens(model) as lens:
        sites = [site for site in lens.generate(prompt, limit=1).capture.sites.names if ".1." in site]
        for layer in sites:
            edits = [KnockOut(layer=layer, key=2)]
            settings = {"keep": ("input", "output"), **HUGGINGFACE_PENALTY}
            edited = lens.generate(prompt, limit=LIMIT, edits=edits, **settings)
            assert not edited.capture.weights(layer)[:, :, 2].any()
            one_pass = capture_in_one_pass(lens, prompt[0].tolist(), edited, edits)
            assert_equal_captures(edited.capture, one_pass, 2e-5)


def zero_head(projection: nn.Linear, head: int, width: int) -> None:
    with torch.no_grad():
        projection.weight[:, head * width : (head + 1) * width] = 0


def test_ablating_a_head_equals_generating_without_its_output_projection() -> None:
    model = MODELS["gpt"]()
    plain = generate_with_penalty(model, PROMPT)
    with Lens(model) as lens:
        edited = lens.generate(PROMPT, limit=LIMIT, edits=Ablate(layer=1, head=2), **PENALTY)
    zero_head(model.blocks[1].attention.output, 2, 6)
    assert edited.token_ids == generate_with_penalty(model, PROMPT) != plain


@pytest.mark.parametrize(
    ("name", "layer", "projection", "width"),
    [
        ("llama", 1, "model.layers.1.self_attn.o_proj", 8),
        ("t5", "decoder.0.EncDecAttention", "decoder.block.0.layer.1.EncDecAttention.o", 8),
        ("bart", "decoder.1.encoder_attn", "model.decoder.layers.1.encoder_attn.out_proj", 8),
    ],
)
def test_ablating_a_head_of_transformers(name: str, layer: int | str, projection: str, width: int) -> None:
    prompt = HUGGINGFACE_TOKENS[:1]
    model = build_huggingface_model(name)
    settings = {"limit": LIMIT, "keep": "input", **HUGGINGFACE_PENALTY}
    with Lens(model) as lens:
        plain = lens.generate(prompt, **settings)
        edited = lens.generate(prompt, edits=Ablate(layer=layer, head=2), **settings)
    zero_head(model.get_submodule(projection), 2, width)
    assert edited.token_ids == generate_with_transformers(model, prompt, **HUGGINGFACE_PENALTY)
    with Lens(model) as lens:
        expected = lens.generate(prompt, **settings)
    last_block = list(expected.capture.activations)[-1]
    rows = [generation.capture.activations[last_block] for generation in (edited, expected, plain)]
    assert torch.allclose(rows[0], rows[1], atol=1e-4)
    count = min(len(rows[0][0]), len(rows[2][0]))  # the texts may end after different numbers of tokens
    difference = rows[0][0, count - 2 : count] - rows[2][0, count - 2 : count]
    assert difference.abs().amax(-1).min() > 1e-2, "also in the rows of generated tokens"


def test_patches_scales_and_masks_hold_at_every_step() -> None:
    model = MODELS["gpt"]()
    with Lens(model) as lens:
        other = lens.run([*PROMPT[::-1], 4, 4, 4, 4, 4], keep=("input", "output"))
        for edit in (
            Patch(layer=1, part="residual", positions=(2, 9), source=other),
            Patch(layer=1, head=1, source=other),
            Scale(layer=0, temperature=3.0),
            Remask(layer=1, head=2, mask=jumok.attention.mask.causal & jumok.attention.mask.window(2)),
        ):
            edited = lens.generate(PROMPT, limit=LIMIT, edits=edit, keep=("input", "output"), **PENALTY)
            one_pass = capture_in_one_pass(lens, PROMPT, edited, edit)
            assert_equal_captures(edited.capture, one_pass)
            assert edited.capture.edits == (edit,)


def test_positions_of_a_cross_attention_advance_with_the_decoder() -> None:
    """The cross-attentions of transformers pass no positions; the lens counts them on from the cache."""
    model, prompt = build_huggingface_model("bart"), HUGGINGFACE_TOKENS[:1]
    with Lens(model) as lens:
        capture = lens.generate(prompt, limit=4, **HUGGINGFACE_PENALTY).capture
        site = "model.decoder.layers.1.encoder_attn"
        edit = KnockOut(layer=site, query=0, key=2)
        assert capture.attention(site).query_positions == [0, 1, 2, 3]
        weights = lens.generate(prompt, limit=4, edits=edit, **HUGGINGFACE_PENALTY).capture.weights(site)
        assert not weights[:, 0, 2].any() and weights[:, 1:, 2].all()


# text, labels, settings


def test_texts_have_labels_for_every_token_that_was_read() -> None:
    with Lens("tiny") as lens:
        generation = lens.generate("the cat sat; the cat", limit=4)
        assert generation.text == " sat" == jumok.run("tiny", "the cat sat; the cat", limit=4)
        assert generation.capture.labels == list("the␣cat␣sat;␣the␣cat␣sa")
        queries, keys = generation.capture.label_axes(1)
        assert queries == keys == generation.capture.labels


def test_sampling_settings_are_those_of_generate() -> None:
    model, sampling = MODELS["gpt"](), Sampling(temperature=1.5, top_k=9, seed=4)
    (expected,) = generate(model, [PROMPT], limit=LIMIT, sampling=sampling)
    with Lens(model) as lens:
        assert lens.generate(PROMPT, limit=LIMIT, temperature=1.5, top_k=9, seed=4).token_ids == expected
        assert lens.generate(PROMPT, limit=LIMIT).token_ids != expected
        with pytest.raises(ArgumentError, match="unknown setting 'num_beams'; choose from temperature"):
            lens.generate(PROMPT, num_beams=2)


def test_settings_of_transformers_are_passed_on() -> None:
    model, prompt = build_huggingface_model("gpt2"), HUGGINGFACE_TOKENS[:1]
    torch.manual_seed(4)
    expected = model.generate(prompt, max_new_tokens=LIMIT, do_sample=True, temperature=1.5, top_k=9)
    state = torch.get_rng_state()
    with Lens(model) as lens:
        sampled = lens.generate(prompt, limit=LIMIT, temperature=1.5, top_k=9, seed=4)
        assert sampled.token_ids == expected[0, 11:].tolist()
        assert torch.equal(torch.get_rng_state(), state), "the caller's random numbers do not change"
        static = {"cache_implementation": "static", "disable_compile": True, "repetition_penalty": 3.0}
        penalised = lens.generate(prompt, limit=LIMIT, **static)
        assert penalised.token_ids == generate_with_transformers(model, prompt, repetition_penalty=3.0)
        assert lens.generate(prompt, limit=LIMIT, temperature=0).token_ids == generate_with_transformers(model, prompt)
        for settings, message in (
            ({"num_beams": 3}, "num_beams reads more than one text"),
            ({"max_new_tokens": 3}, "set the number of new tokens by limit"),
            ({"custom_generate": "x/y"}, "custom_generate"),
            ({"no_such_setting": 3}, "no_such_setting"),
        ):
            with pytest.raises(ArgumentError, match=message):
                lens.generate(prompt, **settings)


# the context length, mistakes


@pytest.mark.parametrize("kind", ["own", "huggingface"])
def test_a_text_stops_at_the_context_length(kind: str) -> None:
    model = MODELS["gpt"]() if kind == "own" else build_huggingface_model("gpt2")
    context = 16 if kind == "own" else 32
    prompt = HUGGINGFACE_TOKENS[:1] % 40
    fitting = context - 11 + 1  # the last token is not read
    with Lens(model) as lens:
        settings = {} if kind == "own" else {"eos_token_id": 99}
        with pytest.warns(
            ContextWarning, match=f"stops after {fitting} new tokens: this model reads at most {context}"
        ):
            generation = lens.generate(prompt, limit=40, **settings)
        assert len(generation.token_ids) == fitting
        assert generation.capture.weights(1, 0).shape == (context, context)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lens.generate(prompt, limit=fitting, **settings)
        with pytest.raises(ArgumentError, match=f"the prompt has 33 tokens, but this model reads at most {context}"):
            lens.generate(torch.full((1, 33), 7), limit=2)


def test_an_end_token_ends_the_text() -> None:
    config = T5Config(vocabulary=40, decoder_layers=2, **SMALL)
    unlimited = MODELS["t5"]()
    with Lens(unlimited) as lens:
        tokens = lens.generate(PROMPT, limit=LIMIT).token_ids
    end = tokens[2]
    model = build_model(T5, config.replace(end=end))
    with Lens(model) as lens:
        generation = lens.generate(PROMPT, limit=LIMIT)
    assert generation.token_ids == tokens[: tokens.index(end) + 1]
    assert generation.capture.attention("decoder.0.cross").queries == len(generation.token_ids)


def test_mistakes_raise() -> None:
    model = MODELS["gpt"]()
    with pytest.raises(ArgumentError, match="the lens is closed"):
        Lens(model).generate(PROMPT)
    with Lens(model) as lens:
        for arguments, settings, message in (
            ((), {}, "needs an input"),
            ((PROMPT, PROMPT), {}, "one input"),
            ((torch.tensor([PROMPT, PROMPT]),), {}, "one text at a time, not 2"),
            ((PROMPT,), {"limit": 0}, "at least 1 new token"),
            ((PROMPT,), {"limit": 2, "edits": KnockOut(layer=1, query=9, key=0)}, "has no query at 9"),
            ((PROMPT,), {"limit": 2, "edits": Ablate(layer=1, head=0, by="mean")}, "one position at a time"),
        ):
            with pytest.raises(ArgumentError, match=message):
                lens.generate(*arguments, **settings)
        short = lens.run(PROMPT, keep="input")
        with pytest.raises(ArgumentError, match="the source capture has 7 positions"):
            lens.generate(PROMPT, edits=Patch(part="residual", source=short))
    for name, edits, message in (
        ("bert", (), "^BertForMaskedLM generates no text$"),
        ("gpt2", Ablate(layer=1, head=9), "^transformer.h.1.attn has 4 heads"),
    ):
        with Lens(build_huggingface_model(name)) as lens, pytest.raises(ArgumentError, match=message):
            lens.generate(HUGGINGFACE_TOKENS[:1], limit=2, edits=edits)


def test_memory_grows_with_the_length_of_the_text() -> None:
    """All steps share one tensor of keys; one tensor for each step would be forty times as large."""
    model = build_model(GPT, GPTConfig(vocabulary=40, length=128, **SMALL))
    with Lens(model) as lens:
        generation = lens.generate(PROMPT, limit=80)
        one_pass = lens.run([*PROMPT, *generation.token_ids[:-1]])
        assert generation.capture.bytes < 1.5 * one_pass.bytes


# positions of recurrent decoders


@pytest.mark.parametrize("attention", ["bahdanau", "luong_dot", "luong_general", "luong_concat"])
@pytest.mark.parametrize("input_feeding", [False, True])
def test_query_positions_of_a_recurrent_decoder_advance(attention: str, input_feeding: bool) -> None:
    if attention == "bahdanau" and input_feeding:
        return
    config = RNNSeq2SeqConfig(
        vocabulary=40, embedding_width=8, width=12, attention=attention, input_feeding=input_feeding, end=39
    )
    with Lens(build_model(RNNSeq2Seq, config)) as lens:
        for capture in (
            lens.run(PROMPT, [1, 5, 4, 7]),
            lens.generate(PROMPT, limit=4).capture,
        ):
            attended = capture.attention(0)
            assert attended.query_positions == [0, 1, 2, 3] and attended.key_positions == list(range(7))
