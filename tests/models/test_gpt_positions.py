"""The position encodings of GPT: what they compute, and that everything around a GPT works with each of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

import jumok
from jumok.errors import ArgumentError, CheckpointError, ContextWarning, ShapeError
from jumok.generate import DraftModel, beam_search, generate, quantize, speculate
from jumok.models import GPT, GPTConfig
from jumok.models.gpt import POSITIONS

SIZES: dict[str, Any] = {"vocabulary": 47, "length": 23, "width": 24, "layers": 2, "heads": 3, "hidden": 29}
TOKENS = torch.randint(47, (2, 11), generator=torch.Generator().manual_seed(0))
PROMPTS = [[3, 5, 7, 11, 13], [2, 4]]

every_encoding = pytest.mark.parametrize("positions", POSITIONS)


def build_gpt(positions: str, **fields: Any) -> GPT:
    """A model with larger parameters than a new one, so that its text depends on where its heads attend."""
    torch.manual_seed(1)
    model = GPT(GPTConfig(**{**SIZES, **fields}, positions=positions, tied=False)).eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def continue_without_cache(model: GPT, prompt: list[int], limit: int) -> list[int]:
    text = list(prompt)
    with torch.no_grad():
        for _ in range(limit):
            text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(prompt) :]


def compute_first_weights(model: GPT, tables: Tensor, tokens: Tensor) -> Tensor:
    """The weights of the first layer in float64, by the formula, with a table of biases [head, query, key]."""
    block = model.blocks[0].double()
    hidden = block.attention_norm(model.embedding(tokens).double())
    query, key, _ = block.attention.projection(hidden)
    scores = query @ key.mT / math.sqrt(query.shape[-1]) + tables.double()
    length = tokens.shape[1]
    return scores.masked_fill(~torch.ones(length, length).tril().bool(), -math.inf).softmax(-1)


def test_alibi_equals_bloom() -> None:
    model = build_gpt("alibi")
    returned = model(TOKENS, weights=True).weights[0]
    # one row per head: the softmax is the same whether distances count from the query or from the first key
    slopes = build_alibi_tensor(torch.ones(1, 11), 3, torch.float64)
    assert (returned - compute_first_weights(model, slopes, TOKENS)).abs().max() < 1e-6
    assert (returned - compute_first_weights(model, 0 * slopes, TOKENS)).abs().max() > 1e-3


def test_t5_bias_equals_that_of_a_t5_decoder() -> None:
    model = build_gpt("t5", buckets=7, max_distance=9)
    returned = model(TOKENS, weights=True).weights[0]
    reference = T5Attention(
        T5Config(num_heads=3, relative_attention_num_buckets=7, relative_attention_max_distance=9, is_decoder=True),
        has_relative_attention_bias=True,
    )
    reference.relative_attention_bias.weight.data = model.position_bias.weight.data
    assert (returned - compute_first_weights(model, reference.compute_bias(11, 11), TOKENS)).abs().max() < 1e-6


def test_sinusoids_are_added_to_scaled_embeddings() -> None:
    """Vaswani et al. 2017, sections 3.4 and 3.5, written as loops."""
    model = build_gpt("sinusoidal", layers=1)
    expected = torch.zeros(11, 24, dtype=torch.float64)
    for position in range(11):
        for pair in range(12):
            angle = position / 10_000 ** (2 * pair / 24)
            expected[position, 2 * pair : 2 * pair + 2] = torch.tensor([math.sin(angle), math.cos(angle)])
    expected = expected + model.embedding(TOKENS).double() * math.sqrt(24)
    inputs: list[Tensor] = []
    model.blocks[0].register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    with torch.no_grad():
        model(TOKENS)
    assert (inputs[0] - expected).abs().max() < 1e-5


def test_only_the_causal_mask_orders_tokens_without_positions() -> None:
    """Without positions, the last token reads the same from any order of the tokens before it."""
    order = torch.tensor([4, 1, 9, 0, 7, 3, 8, 2, 6, 5, 10])
    for positions in POSITIONS:
        model = build_gpt(positions, layers=1)
        with torch.no_grad():
            difference = (model(TOKENS).logits[:, -1] - model(TOKENS[:, order]).logits[:, -1]).abs().max()
        assert difference < 1e-5 if positions == "none" else difference > 1e-3
    deep = build_gpt("none")  # from the second layer on, keys differ by what they could see
    with torch.no_grad():
        assert (deep(TOKENS).logits[:, -1] - deep(TOKENS[:, order]).logits[:, -1]).abs().max() > 1e-3


@every_encoding
def test_generation_with_the_cache_equals_generation_without(positions: str) -> None:
    model = build_gpt(positions)
    expected = [continue_without_cache(model, prompt, 12) for prompt in PROMPTS]
    assert generate(model, PROMPTS, limit=12) == expected, "padded on the left"
    assert [generate(model, [prompt], limit=12)[0] for prompt in PROMPTS] == expected
    assert min(len(set(text)) for text in expected) > 1, "not the same token all the time"
    singles = [beam_search(model, [prompt], beams=2, limit=4)[0] for prompt in PROMPTS]
    assert beam_search(model, PROMPTS, beams=2, limit=4) == singles


@every_encoding
def test_speculation_equals_greedy_decoding(positions: str) -> None:
    model, draft = build_gpt(positions), build_gpt(positions, layers=1)
    for prompt in PROMPTS:
        assert speculate(model, prompt, DraftModel(draft), limit=12).tokens == generate(model, [prompt], limit=12)[0]


@every_encoding
def test_text_beyond_the_length_is_read_through_a_window(positions: str) -> None:
    model = build_gpt(positions, length=8)
    with pytest.warns(ContextWarning, match="exceeds the 8 tokens"):
        generated = generate(model, [PROMPTS[0]], limit=6)[0]
    text = PROMPTS[0] + generated[:-1]  # ten tokens, of which the window drops the first two
    with torch.no_grad():
        assert generated[-1] == int(model(torch.tensor([text[2:]])).logits[0, -1].argmax())
    with pytest.raises(ShapeError, match="position 8 is outside" if positions == "learned" else "9 tokens exceed"):
        model(torch.zeros(1, 9, dtype=torch.long))


@every_encoding
def test_only_learned_positions_have_parameters_for_the_length(positions: str) -> None:
    model = build_gpt(positions)
    longer = GPT(model.config.replace(length=40)).eval()
    if positions == "learned":
        with pytest.raises(RuntimeError, match="size mismatch"):
            longer.load_state_dict(model.state_dict())
        return
    longer.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(longer(TOKENS).logits, model(TOKENS).logits)
        assert longer(torch.zeros(1, 40, dtype=torch.long)).logits.isfinite().all()


@every_encoding
def test_saved_model_computes_the_same_logits(positions: str, tmp_path: Path) -> None:
    model = build_gpt(positions, **({"buckets": 7, "max_distance": 9} if positions == "t5" else {}))
    loaded = jumok.load(jumok.save(model, tmp_path / "saved"))
    assert loaded.config == model.config and loaded.config.positions == positions
    with torch.no_grad():
        assert torch.equal(loaded.model(TOKENS).logits, model(TOKENS).logits)


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "alibi", "t5", "rotary"])
def test_what_hugging_face_cannot_store_is_refused(positions: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match='no model like this gpt; the format "jumok" can store it'):
        jumok.save(build_gpt(positions), tmp_path / "exported", format="huggingface")
    assert not (tmp_path / "exported").exists()


@every_encoding
@pytest.mark.parametrize("side", ["left", "right"])
def test_captured_weights_equal_the_returned_ones(positions: str, side: str) -> None:
    model = build_gpt(positions)
    token_mask = torch.ones(2, 11).bool()
    token_mask[1, : 4 if side == "left" else 11] = side == "right"
    if side == "right":
        token_mask[1, 7:] = False
    with torch.no_grad():
        expected = model(TOKENS, token_mask=token_mask, weights=True).weights
    with jumok.Lens(model) as lens:
        capture = lens.run(TOKENS, token_mask=token_mask)
    for layer, table in enumerate(expected):
        for head in range(3):
            for row in range(2):
                assert (capture.weights(layer, head, row) - table[row, head]).abs().max() < 1e-6


@every_encoding
def test_quantized_model_gives_nearly_the_same_logits(positions: str) -> None:
    model = build_gpt(positions)
    small = quantize(model)
    with torch.inference_mode():
        exact, rounded = model(TOKENS).logits, small(TOKENS).logits
    assert 0 < (exact - rounded).abs().max() / exact.abs().max() < 0.05
    assert len(generate(small, PROMPTS, limit=4)) == 2


@every_encoding
def test_backends_and_checkpointing_give_the_same_gradients(positions: str) -> None:
    def compute_gradients(backend: str, checkpointing: bool) -> list[Tensor]:
        model = build_gpt(positions).train()
        model.use_backend(backend)
        model.checkpointing = checkpointing
        model(TOKENS).logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    expected = compute_gradients("explicit", False)
    assert all(gradient.abs().sum() > 0 for gradient in expected[:2])
    for backend in ("auto", "sdpa", "blocked"):
        for first, second in zip(expected, compute_gradients(backend, True), strict=True):
            assert torch.allclose(first, second, atol=1e-5)


def test_half_precision_keeps_its_type() -> None:
    for positions in POSITIONS:
        assert build_gpt(positions).bfloat16()(TOKENS).logits.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"positions": "absolute"}, "positions of the gpt config must be one of none, sinusoidal, learned"),
        ({"positions": "alibi", "rotary_scaling": "linear"}, "rotary_scaling is 'linear', but positions is 'alibi'"),
        ({"rotary_scaling": "yarn"}, "but positions is 'learned'; it needs \"rotary\""),
        ({"positions": "alibi", "buckets": 16}, 'buckets and max_distance need positions="t5", but positions is'),
        ({"max_distance": 64}, 'need positions="t5"'),
        ({"positions": "t5", "max_distance": 16}, "max_distance must be above 16, the distances with a bucket each"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        GPTConfig.from_json({**SIZES, **fields})


@every_encoding
def test_positions_are_read_or_refused(positions: str) -> None:
    model = build_gpt(positions)
    with_gaps = torch.tensor([0, 1, 2, 3, 4, 7, 8, 9, 10, 12, 13])
    if positions in ("none", "alibi", "t5"):
        with pytest.raises(ArgumentError, match=f"has positions='{positions}', which reads no positions"):
            model(TOKENS, positions=with_gaps)
        return
    with torch.no_grad():
        assert (model(TOKENS, positions=with_gaps).logits - model(TOKENS).logits).abs().max() > 1e-3
