"""Compare the Transformer of 2017 with torch's, and Marian and Pegasus with transformers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import MarianConfig, MarianModel, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.pegasus.modeling_pegasus import PegasusSinusoidalPositionalEmbedding

import jumok
from jumok.attention import Cache
from jumok.errors import ArgumentError, CheckpointError, ShapeError
from jumok.layers import SinusoidalPositions
from jumok.models import Model
from jumok.models.transformer import Transformer, TransformerConfig
from parity import assert_parity, check_round_trip, perturb_parameters

MARIAN = {
    "vocab_size": 97, "d_model": 30, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 5,
    "decoder_attention_heads": 5, "encoder_ffn_dim": 41, "decoder_ffn_dim": 41, "max_position_embeddings": 29,
    "pad_token_id": 96, "decoder_start_token_id": 96, "eos_token_id": 0, "forced_eos_token_id": 0,
    "activation_function": "swish", "scale_embedding": True, "static_position_embeddings": True,
    "normalize_before": False,
}  # fmt: skip
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 101}


def build_reference(**fields: Any) -> Any:
    """Build a Marian of transformers; its logit bias is a buffer, which ``perturb_parameters`` does not change."""
    reference = MarianMTModel(MarianConfig(**{**MARIAN, **fields}))
    reference.final_logits_bias.normal_()
    return freeze_sinusoids(reference)


def freeze_sinusoids(reference: Any) -> Any:
    """Replace the sinusoids, which are frozen parameters, by tensors, so that ``perturb_parameters`` skips them."""
    for module in reference.modules():
        if isinstance(module, MarianSinusoidalPositionalEmbedding | PegasusSinusoidalPositionalEmbedding):
            sinusoids = module.weight.detach()
            del module.weight
            module.weight = sinusoids
    return reference


def build_pegasus(**fields: Any) -> Any:
    """Build a Pegasus of transformers: pre-norm, with a norm after each stack."""
    shared = {name: MARIAN[name] for name in MARIAN if name in PegasusConfig().to_dict()}
    reference = PegasusForConditionalGeneration(PegasusConfig(**{**shared, "activation_function": "relu", **fields}))
    reference.final_logits_bias.normal_()
    return freeze_sinusoids(reference)


CASES: dict[str, Any] = {
    "pegasus": build_pegasus,
    "pegasus, uneven, unscaled": lambda: build_pegasus(decoder_layers=2, scale_embedding=False),
    "shared": build_reference,
    "two vocabularies": lambda: build_reference(**SEPARATE),
    "two vocabularies, untied": lambda: build_reference(**SEPARATE, tie_word_embeddings=False),
    "three embeddings of one size": lambda: build_reference(tie_word_embeddings=False),
    "odd width, uneven, relu, unscaled": lambda: build_reference(
        d_model=35, decoder_layers=2, activation_function="relu", scale_embedding=False
    ),
}

SOURCE, TARGET = 25, 20


def build_token_masks(side: str) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return masks of source and target; the second row is shorter in both, by different lengths."""
    if side == "none":
        return None, None
    source, target = torch.ones(2, SOURCE).bool(), torch.ones(2, TARGET).bool()
    source[1, 16:], target[1, 7:] = False, False
    return (source, target) if side == "right" else (source.flip(1), target.flip(1))


@pytest.mark.parametrize("side", ["none", "right", "left"])
@pytest.mark.parametrize("name", CASES)
def test_logits_equal_marian_and_pegasus(name: str, side: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    source, target = torch.randint(97, (2, SOURCE)), torch.randint(97, (2, TARGET))
    source_mask, target_mask = build_token_masks(side)

    def check(ours: Model, reference: Any) -> None:
        actual = ours(source, target, source_token_mask=source_mask, target_token_mask=target_mask)
        if source_mask is None or target_mask is None:
            assert_parity(actual.logits, reference(source, decoder_input_ids=target).logits)
        elif side == "right":
            settings = {"attention_mask": source_mask.long(), "decoder_attention_mask": target_mask.long()}
            assert_parity(actual.logits, reference(source, decoder_input_ids=target, **settings).logits, target_mask)
        else:
            # transformers counts padding on the left as positions: compare row by row, without it
            for row in range(2):
                inputs, decoder_input = source[row, source_mask[row]][None], target[row, target_mask[row]][None]
                assert_parity(
                    actual.logits[row, target_mask[row]][None],
                    reference(inputs, decoder_input_ids=decoder_input).logits,
                )

    model = check_round_trip(CASES[name](), tmp_path, check)
    assert isinstance(model, Transformer)
    assert model.config.shared == (name in ("shared", "odd width, uneven, relu, unscaled") or "pegasus" in name)
    assert model.config.order == ("pre" if "pegasus" in name else "post")


def test_pickled_folder_with_every_name_loads(tmp_path: Path) -> None:
    # like the OPUS-MT files: the embedding four times, and the sinusoids
    reference = MarianMTModel(MarianConfig(**MARIAN)).eval()
    reference.save_pretrained(tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").unlink()
    state = reference.state_dict()
    assert "lm_head.weight" in state and "model.encoder.embed_positions.weight" in state
    torch.save(state, tmp_path / "old" / "pytorch_model.bin")
    source, target = torch.randint(97, (2, 6)), torch.randint(97, (2, 5))
    with torch.no_grad():
        ours = jumok.load(tmp_path / "old", pickled=True).model
        assert_parity(ours(source, target).logits, reference(source, decoder_input_ids=target).logits)


def test_folder_without_a_head_loads(tmp_path: Path) -> None:
    reference = MarianModel(MarianConfig(**MARIAN)).eval()
    reference.save_pretrained(tmp_path / "bare")
    source, target = torch.randint(97, (2, 6)), torch.randint(97, (2, 5))
    with torch.no_grad():
        expected = reference(source, decoder_input_ids=target).last_hidden_state
        assert_parity(jumok.load(tmp_path / "bare").model(source, target).hidden, expected)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("normalize_before", True, "normalize_before = 'True'; only False is supported"),
        ("static_position_embeddings", False, "only True is supported"),
        ("decoder_attention_heads", 6, "encoder_attention_heads 5 and decoder_attention_heads 6; they must be equal"),
    ],
)
def test_unsupported_configs_are_refused(field: str, value: Any, message: str, tmp_path: Path) -> None:
    build_reference().save_pretrained(tmp_path / "odd")
    config_json = json.loads((tmp_path / "odd" / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps({**config_json, field: value}))
    with pytest.raises(CheckpointError, match=message):
        jumok.load(tmp_path / "odd")


def test_only_marian_and_pegasus_are_saved_for_hugging_face(tmp_path: Path) -> None:
    marian = {"layout": "halves", "activation": "silu"}
    for name, order in (("marian", "post"), ("pegasus", "pre")):
        jumok.save(Transformer(SMALL.replace(**marian, order=order)), tmp_path / name, format="huggingface")
        assert json.loads((tmp_path / name / "config.json").read_text())["model_type"] == name
    separate = {"order": "pre", "shared": False, "target_vocabulary": 53}
    early = {"order": "pre", "final_norm": False}
    for changed_source in ({"layout": "interleaved"}, separate, early, {"positions": "learned"}, {"final_norm": True}):
        with pytest.raises(CheckpointError, match="Hugging Face has no model like this transformer"):
            jumok.save(
                Transformer(SMALL.replace(**{**marian, **changed_source})), tmp_path / "other", format="huggingface"
            )


SMALL = TransformerConfig(vocabulary=50, length=30, width=24, layers=2, decoder_layers=3, heads=4, hidden=40)
CONFIGS = {
    "2017": SMALL,
    "pre, learned, apart": SMALL.replace(
        order="pre", positions="learned", target_vocabulary=53, shared=False, activation="gelu"
    ),
    "untied": SMALL.replace(tied=False, output_bias=True, layout="halves", activation="silu"),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("order", ["post", "pre"])
def test_stacks_equal_torch(order: str, side: str) -> None:
    config = SMALL.replace(order=order, final_norm=True, decoder_layers=2)
    model = perturb_parameters(Transformer(config))
    torch_model = nn.Transformer(24, 4, 2, 2, 40, dropout=0.0, batch_first=True, norm_first=order == "pre").eval()
    torch_model.encoder.enable_nested_tensor = False
    with torch.no_grad():
        for stack, norm, reference in (
            (model.encoder, model.encoder_norm, torch_model.encoder),
            (model.decoder, model.decoder_norm, torch_model.decoder),
        ):
            reference.norm.load_state_dict(norm.state_dict())
            for block, layer in zip(stack, reference.layers, strict=True):
                copy_parameters(block, layer)
    source, target = torch.randint(50, (2, SOURCE)), torch.randint(50, (2, TARGET))
    source_mask, target_mask = build_token_masks(side)

    def embed(tokens: torch.Tensor, step_mask: torch.Tensor | None) -> torch.Tensor:
        positions = (
            torch.arange(tokens.shape[1]).expand(2, -1)
            if step_mask is None
            else (step_mask.cumsum(-1) - 1).clamp_min(0)
        )
        return model.embedding(tokens) * math.sqrt(24) + SinusoidalPositions(24)(positions)

    # True = ignore in torch's masks
    ignored = {} if source_mask is None or target_mask is None else {
        "src_key_padding_mask": ~source_mask, "memory_key_padding_mask": ~source_mask,
        "tgt_key_padding_mask": ~target_mask,
    }  # fmt: skip
    causal = torch.ones(TARGET, TARGET).bool().triu(1)
    expected = torch_model(embed(source, source_mask), embed(target, target_mask), tgt_mask=causal, **ignored)
    actual = model(source, target, source_token_mask=source_mask, target_token_mask=target_mask)
    assert_parity(actual.hidden.detach(), expected.detach(), target_mask)


def copy_parameters(block: nn.Module, layer: nn.Module) -> None:
    """Copy the parameters of one of our blocks into one of torch's layers."""
    names = [("attention", "self_attn", "attention_norm", "norm1"), ("cross", "multihead_attn", "cross_norm", "norm2")]
    decodes = hasattr(block, "cross")
    for ours, reference, our_norm, reference_norm in names if decodes else names[:1]:
        first, second = getattr(block, ours), getattr(layer, reference)
        second.in_proj_weight.copy_(first.projection.joined.weight)
        second.in_proj_bias.copy_(first.projection.joined.bias)
        second.out_proj.load_state_dict(first.output.state_dict())
        getattr(layer, reference_norm).load_state_dict(getattr(block, our_norm).state_dict())
    layer.linear1.load_state_dict(block.feedforward.inner.state_dict())
    layer.linear2.load_state_dict(block.feedforward.outer.state_dict())
    (layer.norm3 if decodes else layer.norm2).load_state_dict(block.feedforward_norm.state_dict())


@pytest.mark.parametrize("name", CONFIGS)
def test_later_tokens_do_not_change_earlier_logits(name: str) -> None:
    model = Transformer(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, 8)), torch.randint(50, (2, 9))
    changed_target, changed_source = target.clone(), source.clone()
    changed_target[:, 5:] = (changed_target[:, 5:] + 7) % 50
    changed_source[:, -1] = (changed_source[:, -1] + 7) % 50
    with torch.no_grad():
        first, second, third = (
            model(source, target).logits,
            model(source, changed_target).logits,
            model(changed_source, target).logits,
        )
    assert torch.equal(first[:, :5], second[:, :5]) and not torch.allclose(first[:, 5:], second[:, 5:])
    assert not torch.allclose(first[:, 0], third[:, 0])  # the whole source is read


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_the_output(name: str, side: str) -> None:
    model = Transformer(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, SOURCE)), torch.randint(50, (2, TARGET))
    source_mask, target_mask = build_token_masks(side)
    assert source_mask is not None and target_mask is not None
    other_source = torch.where(source_mask, source, (source + 11) % 50)
    other_target = torch.where(target_mask, target, (target + 11) % 50)
    masks = {"source_token_mask": source_mask, "target_token_mask": target_mask}
    with torch.no_grad():
        first = model(source, target, **masks).logits
        second = model(other_source, other_target, **masks).logits
        unpadded = model(source[1:, source_mask[1]], target[1:, target_mask[1]]).logits
    assert torch.equal(first[target_mask], second[target_mask])
    assert torch.allclose(first[1, target_mask[1]], unpadded[0], atol=1e-5)


@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("name", CONFIGS)
def test_decoding_with_a_cache_equals_one_pass(name: str, side: str) -> None:
    model = Transformer(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, SOURCE)), torch.randint(50, (2, TARGET))
    source_mask, target_mask = build_token_masks(side)
    with torch.no_grad():
        full_logits = model(source, target, source_token_mask=source_mask, target_token_mask=target_mask).logits
        encoded = model.encode(source, source_token_mask=source_mask)
        for capacity in (None, TARGET):
            cache, parts = Cache(capacity), []
            for end in range(1, TARGET + 1):
                step_mask = None if target_mask is None else target_mask[:, :end]
                part = target[:, end - 1 : end]
                step = model.decode(
                    part, encoded, source_token_mask=source_mask, target_token_mask=step_mask, cache=cache
                )
                parts.append(step.logits)
            assert_parity(torch.cat(parts, 1), full_logits, target_mask)
        last = model.decode(target, encoded, source_token_mask=source_mask, target_token_mask=target_mask, last=2)
        assert torch.allclose(last.logits, full_logits[:, -2:], atol=1e-5)


def test_weights_of_every_layer_are_returned() -> None:
    model = Transformer(CONFIGS["2017"]).eval()
    source, target = torch.randint(50, (2, 8)), torch.randint(50, (2, 9))
    weights = model(source, target, weights=True).weights
    assert {name: [list(layer.shape) for layer in stack] for name, stack in weights.items()} == {
        "encoder": [[2, 4, 8, 8]] * 2,
        "decoder": [[2, 4, 9, 9]] * 3,
        "cross": [[2, 4, 9, 8]] * 3,
    }
    for stack in weights.values():
        assert torch.allclose(stack[1].sum(-1), torch.ones(()), atol=1e-5)
    assert model(source, target).weights is None


@pytest.mark.parametrize("backend", ["explicit", "sdpa", "blocked"])
@pytest.mark.parametrize("name", CONFIGS)
def test_backends_and_checkpointing_give_the_same_gradients(name: str, backend: str) -> None:
    def gradients(backend: str, checkpointing: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = Transformer(CONFIGS[name])
        model.use_backend(backend)
        model.checkpointing = checkpointing
        model(torch.arange(16).view(2, 8), torch.arange(18).view(2, 9)).logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    for first, second in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert torch.allclose(first, second, atol=1e-5)


def test_dropout_applies_only_in_training() -> None:
    model = Transformer(SMALL.replace(dropout=0.5))
    tokens = torch.randint(50, (2, 8))
    assert not torch.equal(model(tokens, tokens).logits, model(tokens, tokens).logits)
    model.eval()
    assert torch.equal(model(tokens, tokens).logits, model(tokens, tokens).logits)


def test_base_model_has_the_papers_number_of_parameters() -> None:
    # 65 million (Vaswani et al. 2017, table 3), of which the embedding of 37,000 tokens is 19
    with torch.device("meta"):
        assert 62e6 < Transformer(TransformerConfig()).parameter_count < 66e6


def test_initial_parameters_are_xavier_uniform() -> None:
    model = Transformer(SMALL.replace(width=60, hidden=100))
    bound = math.sqrt(6 / (60 + 60))
    for third in model.encoder[0].attention.projection.joined.weight.detach().split(60):
        assert 0.98 * bound < float(third.abs().max()) <= bound
    inner = model.decoder[0].feedforward.inner
    assert 0.98 < float(inner.weight.detach().abs().max()) / math.sqrt(6 / 160) <= 1 and not inner.bias.any()
    assert float(model.embedding.weight.detach().std()) == pytest.approx(60**-0.5, rel=0.05)


def test_pre_norm_stacks_end_with_a_norm() -> None:
    for order, config_json, has_norm in (
        ("post", None, False),
        ("pre", None, True),
        ("post", True, True),
        ("pre", False, False),
    ):
        model = Transformer(SMALL.replace(order=order, final_norm=config_json))
        assert (model.encoder_norm is not None, model.decoder_norm is not None) == (has_norm, has_norm)


def test_half_precision_stays_half() -> None:
    model = Transformer(SMALL).to(torch.bfloat16)
    assert model(torch.randint(50, (2, 8)), torch.randint(50, (2, 9))).logits.dtype == torch.bfloat16


def test_sinusoids_interleaved_and_in_halves() -> None:
    for width in (6, 7):
        interleaved, halves = (
            SinusoidalPositions(width)(range(5)),
            SinusoidalPositions(width, layout="halves")(range(5)),
        )
        assert torch.equal(halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], -1))
    positions = torch.tensor([[0, 3]])
    assert torch.equal(
        SinusoidalPositions(4, layout="halves")(positions)[0, 1], SinusoidalPositions(4, layout="halves")(range(4))[3]
    )
    # width 4, position 1: angles 1 and 1/100
    by_hand = torch.tensor([math.sin(1), math.sin(0.01), math.cos(1), math.cos(0.01)])
    assert torch.allclose(SinusoidalPositions(4, layout="halves")(range(1, 2))[0], by_hand)
    with pytest.raises(ArgumentError, match='layout must be "interleaved" or "halves", not \'thirds\''):
        SinusoidalPositions(4, layout="thirds")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 5}, "width 24 cannot be split evenly into 5 heads"),
        ({"target_vocabulary": 60}, "50 and 60 tokens cannot share one embedding; use shared=False"),
        ({"end": 50}, "end is token 50, but the vocabulary has 50 tokens"),
        ({"pad": 55, "target_vocabulary": 60, "shared": False}, "pad is token 55, but the vocabulary has 50 tokens"),
        ({"order": "middle"}, "order of the transformer config must be one of post, pre"),
    ],
)
def test_invalid_configs_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        SMALL.replace(**fields)


def test_invalid_tokens_and_long_texts_are_refused() -> None:
    model = Transformer(CONFIGS["pre, learned, apart"]).eval()
    good, bad, long = torch.tensor([[1, 2]]), torch.tensor([[1, 52]]), torch.ones(1, 31).long()
    model(good, bad)  # a token that only the target has
    with pytest.raises(ArgumentError, match="token 52 is out of range: this model has tokens 0 to 49"):
        model(bad, good)
    for source, target in ((good, long), (long, good)):
        with pytest.raises(ShapeError, match="31 tokens exceed the context length of 30"):
            model(source, target)
    cache = Cache()
    with torch.no_grad():
        encoded = model.encode(good)
        model.decode(long[:, :30], encoded, cache=cache)
        with pytest.raises(ShapeError, match="31 tokens exceed the context length of 30"):
            model.decode(good[:, :1], encoded, cache=cache)
