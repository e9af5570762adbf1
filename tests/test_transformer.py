"""The Transformer of 2017 against torch's own, and as Marian against transformers."""

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
APART = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 101}


def made(**fields: Any) -> Any:
    """Theirs, with a bias on the logits that is not zero: a buffer, which ``perturb_parameters`` does not reach."""
    theirs = MarianMTModel(MarianConfig(**{**MARIAN, **fields}))
    theirs.final_logits_bias.normal_()
    return with_still_sinusoids(theirs)


def with_still_sinusoids(theirs: Any) -> Any:
    """Their sinusoids are frozen parameters, which ``perturb_parameters`` would shake: plain tensors are let be."""
    for module in theirs.modules():
        if isinstance(module, MarianSinusoidalPositionalEmbedding | PegasusSinusoidalPositionalEmbedding):
            sinusoids = module.weight.detach()
            del module.weight
            module.weight = sinusoids
    return theirs


def pegasus(**fields: Any) -> Any:
    """The same with norms in front, and one behind each stack."""
    known = {name: value for name, value in MARIAN.items() if name in PegasusConfig().to_dict()}
    theirs = PegasusForConditionalGeneration(PegasusConfig(**{**known, "activation_function": "relu", **fields}))
    theirs.final_logits_bias.normal_()
    return with_still_sinusoids(theirs)


CASES: dict[str, Any] = {
    "pegasus": pegasus,
    "pegasus, uneven, unscaled": lambda: pegasus(decoder_layers=2, scale_embedding=False),
    "shared": made,
    "two vocabularies": lambda: made(**APART),
    "two vocabularies, untied": lambda: made(**APART, tie_word_embeddings=False),
    "three embeddings of one size": lambda: made(tie_word_embeddings=False),
    "odd width, uneven, relu, unscaled": lambda: made(
        d_model=35, decoder_layers=2, activation_function="relu", scale_embedding=False
    ),
}

SOURCE, TARGET = 25, 20


def real_tokens(side: str) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The second row is shorter in both; the two lengths differ."""
    if side == "none":
        return None, None
    source, target = torch.ones(2, SOURCE).bool(), torch.ones(2, TARGET).bool()
    source[1, 16:], target[1, 7:] = False, False
    return (source, target) if side == "right" else (source.flip(1), target.flip(1))


@pytest.mark.parametrize("side", ["none", "right", "left"])
@pytest.mark.parametrize("name", CASES)
def test_logits_are_marians(name: str, side: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    source, target = torch.randint(97, (2, SOURCE)), torch.randint(97, (2, TARGET))
    source_real, target_real = real_tokens(side)

    def check(ours: Model, theirs: Any) -> None:
        found = ours(source, target, source_token_mask=source_real, target_token_mask=target_real)
        if source_real is None or target_real is None:
            assert_parity(found.logits, theirs(source, decoder_input_ids=target).logits)
        elif side == "right":
            settings = {"attention_mask": source_real.long(), "decoder_attention_mask": target_real.long()}
            assert_parity(found.logits, theirs(source, decoder_input_ids=target, **settings).logits, target_real)
        else:
            # theirs count padding on the left as positions, and take no others: row by row, without it
            for row in range(2):
                inputs, read = source[row, source_real[row]][None], target[row, target_real[row]][None]
                assert_parity(found.logits[row, target_real[row]][None], theirs(inputs, decoder_input_ids=read).logits)

    model = check_round_trip(CASES[name](), tmp_path, check)
    assert isinstance(model, Transformer)
    assert model.config.shared == (name in ("shared", "odd width, uneven, relu, unscaled") or "pegasus" in name)
    assert model.config.order == ("pre" if "pegasus" in name else "post")


def test_a_pickled_folder_with_every_name_loads(tmp_path: Path) -> None:
    # as OPUS-MT's are: the embedding four times, and the sinusoids
    theirs = MarianMTModel(MarianConfig(**MARIAN)).eval()
    theirs.save_pretrained(tmp_path / "old")
    (tmp_path / "old" / "model.safetensors").unlink()
    state = theirs.state_dict()
    assert "lm_head.weight" in state and "model.encoder.embed_positions.weight" in state
    torch.save(state, tmp_path / "old" / "pytorch_model.bin")
    source, target = torch.randint(97, (2, 6)), torch.randint(97, (2, 5))
    with torch.no_grad():
        ours = jumok.load(tmp_path / "old", pickled=True).model
        assert_parity(ours(source, target).logits, theirs(source, decoder_input_ids=target).logits)


def test_a_folder_without_a_head_loads(tmp_path: Path) -> None:
    theirs = MarianModel(MarianConfig(**MARIAN)).eval()
    theirs.save_pretrained(tmp_path / "bare")
    source, target = torch.randint(97, (2, 6)), torch.randint(97, (2, 5))
    with torch.no_grad():
        wanted = theirs(source, decoder_input_ids=target).last_hidden_state
        assert_parity(jumok.load(tmp_path / "bare").model(source, target).hidden, wanted)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("normalize_before", True, "normalize_before = 'True'; only False is supported"),
        ("static_position_embeddings", False, "only True is supported"),
        ("decoder_attention_heads", 6, "encoder_attention_heads 5 and decoder_attention_heads 6; they must be equal"),
    ],
)
def test_what_is_not_supported_is_refused(field: str, value: Any, sentence: str, tmp_path: Path) -> None:
    made().save_pretrained(tmp_path / "odd")
    told = json.loads((tmp_path / "odd" / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps({**told, field: value}))
    with pytest.raises(CheckpointError, match=sentence):
        jumok.load(tmp_path / "odd")


def test_marian_and_pegasus_are_the_only_transformers_that_are_written_as_theirs(tmp_path: Path) -> None:
    marian = {"layout": "halves", "activation": "silu"}
    for name, order in (("marian", "post"), ("pegasus", "pre")):
        jumok.save(Transformer(SMALL.replace(**marian, order=order)), tmp_path / name, format="huggingface")
        assert json.loads((tmp_path / name / "config.json").read_text())["model_type"] == name
    apart = {"order": "pre", "shared": False, "target_vocabulary": 53}
    early = {"order": "pre", "final_norm": False}
    for other in ({"layout": "interleaved"}, apart, early, {"positions": "learned"}, {"final_norm": True}):
        with pytest.raises(CheckpointError, match="Hugging Face has no model like this transformer"):
            jumok.save(Transformer(SMALL.replace(**{**marian, **other})), tmp_path / "other", format="huggingface")


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
def test_the_stacks_are_torchs(order: str, side: str) -> None:
    config = SMALL.replace(order=order, final_norm=True, decoder_layers=2)
    model = perturb_parameters(Transformer(config))
    torchs = nn.Transformer(24, 4, 2, 2, 40, dropout=0.0, batch_first=True, norm_first=order == "pre").eval()
    torchs.encoder.enable_nested_tensor = False
    with torch.no_grad():
        for stack, norm, theirs in (
            (model.encoder, model.encoder_norm, torchs.encoder),
            (model.decoder, model.decoder_norm, torchs.decoder),
        ):
            theirs.norm.load_state_dict(norm.state_dict())
            for block, layer in zip(stack, theirs.layers, strict=True):
                copied(block, layer)
    source, target = torch.randint(50, (2, SOURCE)), torch.randint(50, (2, TARGET))
    source_real, target_real = real_tokens(side)

    def embedded(tokens: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
        where = torch.arange(tokens.shape[1]).expand(2, -1) if real is None else (real.cumsum(-1) - 1).clamp_min(0)
        return model.embedding(tokens) * math.sqrt(24) + SinusoidalPositions(24)(where)

    # with them True = ignore
    ignored = {} if source_real is None or target_real is None else {
        "src_key_padding_mask": ~source_real, "memory_key_padding_mask": ~source_real,
        "tgt_key_padding_mask": ~target_real,
    }  # fmt: skip
    causal = torch.ones(TARGET, TARGET).bool().triu(1)
    wanted = torchs(embedded(source, source_real), embedded(target, target_real), tgt_mask=causal, **ignored)
    found = model(source, target, source_token_mask=source_real, target_token_mask=target_real)
    assert_parity(found.hidden.detach(), wanted.detach(), target_real)


def copied(block: nn.Module, layer: nn.Module) -> None:
    """The parameters of one of our blocks into one of torch's layers."""
    names = [("attention", "self_attn", "attention_norm", "norm1"), ("cross", "multihead_attn", "cross_norm", "norm2")]
    decodes = hasattr(block, "cross")
    for ours, theirs, our_norm, their_norm in names if decodes else names[:1]:
        one, two = getattr(block, ours), getattr(layer, theirs)
        two.in_proj_weight.copy_(one.projection.joined.weight)
        two.in_proj_bias.copy_(one.projection.joined.bias)
        two.out_proj.load_state_dict(one.output.state_dict())
        getattr(layer, their_norm).load_state_dict(getattr(block, our_norm).state_dict())
    layer.linear1.load_state_dict(block.feedforward.inner.state_dict())
    layer.linear2.load_state_dict(block.feedforward.outer.state_dict())
    (layer.norm3 if decodes else layer.norm2).load_state_dict(block.feedforward_norm.state_dict())


@pytest.mark.parametrize("name", CONFIGS)
def test_nothing_moves_when_the_future_changes(name: str) -> None:
    model = Transformer(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, 8)), torch.randint(50, (2, 9))
    later, other = target.clone(), source.clone()
    later[:, 5:] = (later[:, 5:] + 7) % 50
    other[:, -1] = (other[:, -1] + 7) % 50
    with torch.no_grad():
        one, two, three = model(source, target).logits, model(source, later).logits, model(other, target).logits
    assert torch.equal(one[:, :5], two[:, :5]) and not torch.allclose(one[:, 5:], two[:, 5:])
    assert not torch.allclose(one[:, 0], three[:, 0])  # the source is read to its end


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_nothing_moves_when_the_padding_changes(name: str, side: str) -> None:
    model = Transformer(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, SOURCE)), torch.randint(50, (2, TARGET))
    source_real, target_real = real_tokens(side)
    assert source_real is not None and target_real is not None
    other_source = torch.where(source_real, source, (source + 11) % 50)
    other_target = torch.where(target_real, target, (target + 11) % 50)
    padding = {"source_token_mask": source_real, "target_token_mask": target_real}
    with torch.no_grad():
        one = model(source, target, **padding).logits
        two = model(other_source, other_target, **padding).logits
        alone = model(source[1:, source_real[1]], target[1:, target_real[1]]).logits
    assert torch.equal(one[target_real], two[target_real])
    assert torch.allclose(one[1, target_real[1]], alone[0], atol=1e-5)


@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("name", CONFIGS)
def test_step_by_step_with_a_cache_is_the_whole(name: str, side: str) -> None:
    # B4: decodes one token at a time
    model = Transformer(CONFIGS[name]).eval()
    source, target = torch.randint(50, (2, SOURCE)), torch.randint(50, (2, TARGET))
    source_real, target_real = real_tokens(side)
    with torch.no_grad():
        whole = model(source, target, source_token_mask=source_real, target_token_mask=target_real).logits
        encoded = model.encode(source, source_token_mask=source_real)
        for capacity in (None, TARGET):
            cache, parts = Cache(capacity), []
            for end in range(1, TARGET + 1):
                real = None if target_real is None else target_real[:, :end]
                part = target[:, end - 1 : end]
                step = model.decode(part, encoded, source_token_mask=source_real, target_token_mask=real, cache=cache)
                parts.append(step.logits)
            assert_parity(torch.cat(parts, 1), whole, target_real)
        last = model.decode(target, encoded, source_token_mask=source_real, target_token_mask=target_real, last=2)
        assert torch.allclose(last.logits, whole[:, -2:], atol=1e-5)


def test_every_layers_weights() -> None:
    model = Transformer(CONFIGS["2017"]).eval()
    source, target = torch.randint(50, (2, 8)), torch.randint(50, (2, 9))
    weights = model(source, target, weights=True).weights
    assert {name: [list(one.shape) for one in stack] for name, stack in weights.items()} == {
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

    for one, two in zip(gradients("explicit", False), gradients(backend, True), strict=True):
        assert torch.allclose(one, two, atol=1e-5)


def test_dropout_drops_while_training_only() -> None:
    model = Transformer(SMALL.replace(dropout=0.5))
    tokens = torch.randint(50, (2, 8))
    assert not torch.equal(model(tokens, tokens).logits, model(tokens, tokens).logits)
    model.eval()
    assert torch.equal(model(tokens, tokens).logits, model(tokens, tokens).logits)


def test_the_base_model_has_the_papers_number_of_parameters() -> None:
    # 65 million (Vaswani et al. 2017, table 3), of which the embedding of 37,000 tokens is 19
    with torch.device("meta"):
        assert 62e6 < Transformer(TransformerConfig()).parameter_count < 66e6


def test_first_parameters_are_xaviers() -> None:
    model = Transformer(SMALL.replace(width=60, hidden=100))
    bound = math.sqrt(6 / (60 + 60))
    for third in model.encoder[0].attention.projection.joined.weight.detach().split(60):
        assert 0.98 * bound < float(third.abs().max()) <= bound
    inner = model.decoder[0].feedforward.inner
    assert 0.98 < float(inner.weight.detach().abs().max()) / math.sqrt(6 / 160) <= 1 and not inner.bias.any()
    assert float(model.embedding.weight.detach().std()) == pytest.approx(60**-0.5, rel=0.05)


def test_a_norm_ends_each_stack_where_norms_stand_in_front() -> None:
    for order, told, there in (("post", None, False), ("pre", None, True), ("post", True, True), ("pre", False, False)):
        model = Transformer(SMALL.replace(order=order, final_norm=told))
        assert (model.encoder_norm is not None, model.decoder_norm is not None) == (there, there)


def test_half_precision_stays_half() -> None:
    model = Transformer(SMALL).to(torch.bfloat16)
    assert model(torch.randint(50, (2, 8)), torch.randint(50, (2, 9))).logits.dtype == torch.bfloat16


def test_sinusoids_interleaved_and_in_halves() -> None:
    for width in (6, 7):
        turn, halves = SinusoidalPositions(width)(range(5)), SinusoidalPositions(width, layout="halves")(range(5))
        assert torch.equal(halves, torch.cat([turn[:, 0::2], turn[:, 1::2]], -1))
    places = torch.tensor([[0, 3]])
    assert torch.equal(
        SinusoidalPositions(4, layout="halves")(places)[0, 1], SinusoidalPositions(4, layout="halves")(range(4))[3]
    )
    # by hand: width 4, position 1: angles 1 and 1/100
    by_hand = torch.tensor([math.sin(1), math.sin(0.01), math.cos(1), math.cos(0.01)])
    assert torch.allclose(SinusoidalPositions(4, layout="halves")(range(1, 2))[0], by_hand)
    with pytest.raises(ArgumentError, match='layout must be "interleaved" or "halves", not \'thirds\''):
        SinusoidalPositions(4, layout="thirds")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"heads": 5}, "width 24 does not divide into 5 heads"),
        ({"target_vocabulary": 60}, "50 and 60 tokens cannot share one embedding; say shared=False"),
        ({"end": 50}, "end is token 50, but the vocabulary has 50 tokens"),
        ({"pad": 55, "target_vocabulary": 60, "shared": False}, "pad is token 55, but the vocabulary has 50 tokens"),
        ({"order": "middle"}, "order of the transformer config must be one of post, pre"),
    ],
)
def test_a_config_that_cannot_be_meant(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        SMALL.replace(**fields)


def test_tokens_that_are_not_there_and_texts_that_are_too_long() -> None:
    model = Transformer(CONFIGS["pre, learned, apart"]).eval()
    good, bad, long = torch.tensor([[1, 2]]), torch.tensor([[1, 52]]), torch.ones(1, 31).long()
    model(good, bad)  # a token of the target's own
    with pytest.raises(ArgumentError, match="token 52 is out of range: this model has tokens 0 to 49"):
        model(bad, good)
    for source, target in ((good, long), (long, good)):
        with pytest.raises(ShapeError, match="31 tokens are more than this model's 30"):
            model(source, target)
    cache = Cache()
    with torch.no_grad():
        encoded = model.encode(good)
        model.decode(long[:, :30], encoded, cache=cache)
        with pytest.raises(ShapeError, match="31 tokens are more than this model's 30"):
            model.decode(good[:, :1], encoded, cache=cache)
