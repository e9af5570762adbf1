"""Generation compared with transformers' generate, token for token."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import jumok
from jumok.errors import ArgumentError
from jumok.generate import (
    DraftModel,
    PromptLookup,
    Sampling,
    beam_search,
    generate,
    speculate,
    stream_text,
    stream_tokens,
)
from jumok.models import BERT, GPT, BERTConfig, GPTConfig, Model, llama_config
from parity import perturb_parameters

VOCABULARY = 61


def build_pair(name: str, folder: Path) -> tuple[Model, Any]:
    torch.manual_seed(5)
    if name == "gpt2":
        theirs: Any = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=VOCABULARY, n_positions=64, n_embd=24, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=3
            )
        )
    else:
        theirs = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=24,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=40,
                max_position_embeddings=64,
                bos_token_id=0,
                eos_token_id=3,
            )
        )
    perturb_parameters(theirs).save_pretrained(folder / name)
    return jumok.load(folder / name).model, theirs


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Model, Any]]:
    folder = tmp_path_factory.mktemp("pairs")
    return {name: build_pair(name, folder) for name in ("gpt2", "llama")}


PROMPTS = [[5, 9, 11, 2, 40], [7, 8], [12, 30, 31]]


def generate_theirs(theirs: Any, prompts: list[list[int]], **settings: Any) -> list[list[int]]:
    longest = max(len(prompt) for prompt in prompts)
    tokens = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    attention_mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    output = theirs.generate(tokens, attention_mask=attention_mask, do_sample=False, pad_token_id=0, **settings)
    return output[:, longest:].tolist()


def cut_after_end(tokens: list[int], end: int | None) -> list[int]:
    """Remove the padding behind the end token of a row from transformers."""
    return tokens[: tokens.index(end) + 1] if end is not None and end in tokens else tokens


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("end", [None, 3, 17])
def test_greedy_matches_transformers(pairs: Any, name: str, end: int | None) -> None:
    ours, theirs = pairs[name]
    expected = generate_theirs(theirs, PROMPTS, max_new_tokens=25, eos_token_id=end)
    generated = generate(ours, PROMPTS, limit=25, ends=() if end is None else (end,))
    assert generated == [cut_after_end(row, end) for row in expected]
    alone = [generate(ours, [prompt], limit=25, ends=() if end is None else (end,))[0] for prompt in PROMPTS]
    assert generated == alone  # a batch of unequal prompts equals separate runs


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.0])
@pytest.mark.parametrize(("beams", "end"), [(1, 3), (3, 3), (4, 17), (3, None)])
def test_beam_search_matches_transformers(pairs: Any, name: str, penalty: float, beams: int, end: int | None) -> None:
    ours, theirs = pairs[name]
    expected = generate_theirs(
        theirs,
        PROMPTS,
        max_new_tokens=12,
        eos_token_id=end,
        num_beams=beams,
        length_penalty=penalty,
        early_stopping=False,
    )
    ends = () if end is None else (end,)
    texts = beam_search(ours, PROMPTS, beams=beams, limit=12, length_penalty=penalty, ends=ends)
    if beams == 1:  # transformers runs greedy search for one beam
        texts = generate(ours, PROMPTS, limit=12, ends=ends)
    assert texts == [cut_after_end(row, end) for row in expected]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0, 3.0])
def test_beam_search_scores_early_ends_by_length(pairs: Any, name: str, penalty: float) -> None:
    ours, theirs = pairs[name]
    prompt = [PROMPTS[0]]
    lengths = set()
    for end in sorted(set(generate(ours, prompt, limit=12)[0])):  # tokens that this model generates
        expected = generate_theirs(
            theirs,
            prompt,
            max_new_tokens=12,
            eos_token_id=end,
            num_beams=3,
            length_penalty=penalty,
            early_stopping=False,
        )
        texts = beam_search(ours, prompt, beams=3, limit=12, length_penalty=penalty, ends=(end,))
        assert texts == [cut_after_end(row, end) for row in expected]
        lengths.add(len(texts[0]))
    if penalty <= 0:  # above 0, the longest text may win every time
        assert min(lengths) < 12


def test_sampling_filters_match_transformers() -> None:
    from transformers import MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

    logits = 3 * torch.randn(4, 50)
    texts = [[1, 2, 3], [4], [5, 5, 6], [7, 8]]
    for sampling, theirs in (
        (Sampling(top_k=7), TopKLogitsWarper(7)),
        (Sampling(top_p=0.8), TopPLogitsWarper(0.8)),
        (Sampling(min_p=0.1), MinPLogitsWarper(0.1)),
    ):
        assert torch.equal(sampling.filter_logits(logits, texts), theirs(None, logits.clone()))
    penalty = RepetitionPenaltyLogitsProcessor(1.7)
    for row, tokens in enumerate(texts):
        expected = penalty(torch.tensor([tokens]), logits[row : row + 1].clone())
        penalized = Sampling(repetition=1.7).filter_logits(logits, texts)[row : row + 1]
        assert torch.allclose(penalized, expected)


def test_sampling_follows_the_distribution_and_the_seed() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).expand(20000, -1)
    texts: list[list[int]] = [[] for _ in range(20000)]
    tokens = Sampling(seed=3).choose(logits, texts, Sampling(seed=3).create_generator(torch.device("cpu")))
    shares = tokens.bincount(minlength=4) / 20000
    assert torch.allclose(shares, logits[0].softmax(-1), atol=0.015)
    model = GPT(GPTConfig(vocabulary=50, length=40, width=16, layers=1, heads=2, hidden=16)).eval()
    first, repeated, other = (generate(model, [[1, 2]], limit=20, sampling=Sampling(seed=seed)) for seed in (1, 1, 2))
    assert first == repeated != other


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("kind", ["lookup", "draft", "itself"])
@pytest.mark.parametrize("end", [None, 3])
def test_speculation_equals_greedy_decoding(pairs: Any, name: str, kind: str, end: int | None) -> None:
    ours, _ = pairs[name]
    torch.manual_seed(1)
    small = GPT(llama_config(vocabulary=VOCABULARY, length=200, width=8, layers=1, heads=2, hidden=8)).eval()
    ends = () if end is None else (end,)
    for prompt in [*PROMPTS, [5, 6, 7, 5, 6, 7, 5, 6]]:
        if kind == "itself" and name == "gpt2":
            continue  # its position table is too short for the draft's lookahead
        proposer = {"lookup": PromptLookup, "draft": lambda: DraftModel(small), "itself": lambda: DraftModel(ours, 3)}[
            kind
        ]()
        report = speculate(ours, prompt, proposer, limit=30 if kind != "itself" else 20, ends=ends)
        expected = generate(ours, [prompt], limit=30 if kind != "itself" else 20, ends=ends)[0]
        assert report.tokens == expected
        if kind == "itself" and end is None:
            assert report.accepted == report.proposed and report.steps < 10  # a model agrees with itself


def test_prompt_lookup_copies_from_the_latest_match() -> None:
    assert PromptLookup(longest=2, count=3).propose([1, 2, 9, 9, 1, 2, 7, 8, 4, 1, 2], 10) == [7, 8, 4]
    assert PromptLookup(count=5).propose([4, 7, 7], 10) == [7, 7, 7, 7, 7]
    assert PromptLookup(count=9).propose([1, 2, 1, 2], 3) == [1, 2, 1]
    assert PromptLookup().propose([1, 2, 3], 10) == []


class ByteDecoder:
    """Decodes byte values, replacing incomplete characters."""

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")


def test_streamed_text_never_splits_a_character() -> None:
    text = "나는 🙂 학교에 café"
    pieces = list(stream_text(text.encode(), ByteDecoder()))
    assert "".join(pieces) == text and len(pieces) == len(text)
    assert all("\ufffd" not in piece for piece in pieces)
    assert "".join(stream_text("가나".encode()[:5], ByteDecoder())) == "가", "the limit cuts a character"
    assert "".join(stream_text(b"\xff!", ByteDecoder())) == "\ufffd!", "an invalid byte is shown"


def test_stop_string_ends_the_text_and_is_not_yielded() -> None:
    assert "".join(stream_text(b"one two END three", ByteDecoder(), ["END"])) == "one two "
    assert "".join(stream_text(b"one EN two", ByteDecoder(), ["END"])) == "one EN two"
    assert "".join(stream_text("가나다라".encode(), ByteDecoder(), ["다", "라"])) == "가나"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: generate(model, [[]]), "prompt is empty"),
        (lambda model: generate(model, []), "prompt is empty"),
        (lambda model: generate(model, [[99]], limit=5), "token 99 is out of range: this model has tokens 0 to 49"),
        (lambda model: generate(model, [[1]], limit=0), "limit must be at least 1 new token"),
        (lambda model: beam_search(model, [[1]], beams=0), "at least 1 beam"),
        (lambda model: Sampling(temperature=-1.0), "at least 0"),
        (lambda model: Sampling(temperature=math.nan), "temperature must be a finite number of at least 0, not nan"),
        (lambda model: Sampling(temperature=math.inf), "temperature must be a finite number"),
        (lambda model: Sampling(repetition=math.nan), "repetition must be a finite number above 0, not nan"),
        (lambda model: Sampling(seed=2**64), "seed must be an integer of at most 64 bits"),
        (lambda model: generate(BERT(BERTConfig(layers=1)), [[1]]), "bert model cannot continue a text.* embed"),
        (lambda model: Sampling(top_p=0.0), "above 0"),
        (lambda model: Sampling(top_k=0), "at least 1"),
        (lambda model: PromptLookup(count=0), "at least 1"),
    ],
)
def test_invalid_arguments_raise(call: Any, message: str) -> None:
    model = GPT(GPTConfig(vocabulary=50, length=40, width=16, layers=1, heads=2, hidden=16)).eval()
    with pytest.raises(ArgumentError, match=message):
        call(model)


@pytest.mark.parametrize(
    "call",
    [
        lambda model: generate(model, [[1, 2]], limit=2),
        lambda model: generate(model, [[1, 2]], limit=2, sampling=Sampling(top_p=0.5)),
        lambda model: beam_search(model, [[1, 2]], beams=2, limit=2),
        lambda model: speculate(model, [1, 2], PromptLookup(), limit=2),
    ],
    ids=["greedy", "sampled", "beams", "speculative"],
)
def test_logits_that_are_no_numbers_raise(call: Any) -> None:
    model = GPT(GPTConfig(vocabulary=50, length=40, width=16, layers=1, heads=2, hidden=16)).eval()
    torch.nn.init.constant_(model.norm.weight, math.nan)
    with pytest.raises(ArgumentError, match="no token can be chosen, because the model's logits contain NaN"):
        call(model)


def test_a_temperature_near_zero_is_greedy() -> None:
    model = GPT(GPTConfig(vocabulary=50, length=40, width=16, layers=1, heads=2, hidden=16)).eval()
    for temperature in (1e-20, 1e-40, 1e-300):
        sampled = generate(model, [[1, 2]], limit=5, sampling=Sampling(temperature=temperature, top_k=7, top_p=0.9))
        assert sampled == generate(model, [[1, 2]], limit=5)


def test_stream_tokens_yields_one_token_at_a_time() -> None:
    model = GPT(GPTConfig(vocabulary=50, length=40, width=16, layers=1, heads=2, hidden=16)).eval()
    steps = stream_tokens(model, [[1, 2], [3]], limit=5)
    first = next(steps)
    # between two steps, and after a stream that is broken off, the caller computes in its own mode
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    assert len(first) == 2 and [first, *steps] == [
        list(row) for row in zip(*generate(model, [[1, 2], [3]], limit=5), strict=True)
    ]
