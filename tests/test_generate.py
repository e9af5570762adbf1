"""Generation against transformers' generate, token for token."""

from __future__ import annotations

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
from jumok.models import GPT, GPTConfig, Model, llama_config
from parity import perturb_parameters

VOCABULARY = 61


def pair(name: str, folder: Path) -> tuple[Model, Any]:
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
    return {name: pair(name, folder) for name in ("gpt2", "llama")}


PROMPTS = [[5, 9, 11, 2, 40], [7, 8], [12, 30, 31]]


def theirs_generate(theirs: Any, prompts: list[list[int]], **settings: Any) -> list[list[int]]:
    longest = max(len(one) for one in prompts)
    tokens = torch.tensor([[0] * (longest - len(one)) + one for one in prompts])
    real = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts])
    found = theirs.generate(tokens, attention_mask=real, do_sample=False, pad_token_id=0, **settings)
    return found[:, longest:].tolist()


def cut(tokens: list[int], end: int | None) -> list[int]:
    """Their rows are padded behind the end token."""
    return tokens[: tokens.index(end) + 1] if end is not None and end in tokens else tokens


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("end", [None, 3, 17])
def test_greedy_is_theirs(pairs: Any, name: str, end: int | None) -> None:
    ours, theirs = pairs[name]
    wanted = theirs_generate(theirs, PROMPTS, max_new_tokens=25, eos_token_id=end)
    found = generate(ours, PROMPTS, limit=25, ends=() if end is None else (end,))
    assert found == [cut(one, end) for one in wanted]
    alone = [generate(ours, [one], limit=25, ends=() if end is None else (end,))[0] for one in PROMPTS]
    assert found == alone  # a batch of unequal prompts is each of them


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.0])
@pytest.mark.parametrize(("beams", "end"), [(1, 3), (3, 3), (4, 17), (3, None)])
def test_beam_search_is_theirs(pairs: Any, name: str, penalty: float, beams: int, end: int | None) -> None:
    ours, theirs = pairs[name]
    wanted = theirs_generate(
        theirs,
        PROMPTS,
        max_new_tokens=12,
        eos_token_id=end,
        num_beams=beams,
        length_penalty=penalty,
        early_stopping=False,
    )
    ends = () if end is None else (end,)
    found = beam_search(ours, PROMPTS, beams=beams, limit=12, length_penalty=penalty, ends=ends)
    if beams == 1:  # their one beam is greedy search
        found = generate(ours, PROMPTS, limit=12, ends=ends)
    assert found == [cut(one, end) for one in wanted]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0, 3.0])
def test_beams_that_end_early_are_scored_by_their_length(pairs: Any, name: str, penalty: float) -> None:
    ours, theirs = pairs[name]
    prompt = [PROMPTS[0]]
    lengths = set()
    for end in sorted(set(generate(ours, prompt, limit=12)[0])):  # tokens that this model really says
        wanted = theirs_generate(
            theirs,
            prompt,
            max_new_tokens=12,
            eos_token_id=end,
            num_beams=3,
            length_penalty=penalty,
            early_stopping=False,
        )
        found = beam_search(ours, prompt, beams=3, limit=12, length_penalty=penalty, ends=(end,))
        assert found == [cut(one, end) for one in wanted]
        lengths.add(len(found[0]))
    if penalty <= 0:  # a penalty above 0 favours length, and then the longest may win every time
        assert min(lengths) < 12


def test_sampling_filters_are_theirs() -> None:
    from transformers import MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

    logits = 3 * torch.randn(4, 50)
    seen = [[1, 2, 3], [4], [5, 5, 6], [7, 8]]
    for sampling, theirs in (
        (Sampling(top_k=7), TopKLogitsWarper(7)),
        (Sampling(top_p=0.8), TopPLogitsWarper(0.8)),
        (Sampling(min_p=0.1), MinPLogitsWarper(0.1)),
    ):
        assert torch.equal(sampling.filter_logits(logits, seen), theirs(None, logits.clone()))
    penalty = RepetitionPenaltyLogitsProcessor(1.7)
    for row, tokens in enumerate(seen):
        wanted = penalty(torch.tensor([tokens]), logits[row : row + 1].clone())
        found = Sampling(repetition=1.7).filter_logits(logits, seen)[row : row + 1]
        assert torch.allclose(found, wanted)


def test_sampling_follows_the_distribution_and_its_seed() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).expand(20000, -1)
    seen: list[list[int]] = [[] for _ in range(20000)]
    drawn = Sampling(seed=3).choose(logits, seen, Sampling(seed=3).create_generator(torch.device("cpu")))
    shares = drawn.bincount(minlength=4) / 20000
    assert torch.allclose(shares, logits[0].softmax(-1), atol=0.015)
    model = GPT(GPTConfig(vocabulary=50, length=40, width=16, layers=1, heads=2, hidden=16)).eval()
    one, two, three = (generate(model, [[1, 2]], limit=20, sampling=Sampling(seed=seed)) for seed in (1, 1, 2))
    assert one == two != three


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("kind", ["lookup", "draft", "itself"])
@pytest.mark.parametrize("end", [None, 3])
def test_speculation_is_plain_greedy(pairs: Any, name: str, kind: str, end: int | None) -> None:
    ours, _ = pairs[name]
    torch.manual_seed(1)
    small = GPT(llama_config(vocabulary=VOCABULARY, length=200, width=8, layers=1, heads=2, hidden=8)).eval()
    ends = () if end is None else (end,)
    for prompt in [*PROMPTS, [5, 6, 7, 5, 6, 7, 5, 6]]:
        if kind == "itself" and name == "gpt2":
            continue  # its table of positions has no room for a second reading
        guesser = {"lookup": PromptLookup, "draft": lambda: DraftModel(small), "itself": lambda: DraftModel(ours, 3)}[
            kind
        ]()
        found = speculate(ours, prompt, guesser, limit=30 if kind != "itself" else 20, ends=ends)
        wanted = generate(ours, [prompt], limit=30 if kind != "itself" else 20, ends=ends)[0]
        assert found.tokens == wanted
        if kind == "itself" and end is None:
            assert found.accepted == found.proposed and found.steps < 10  # a model agrees with itself


def test_lookup_finds_the_latest_place() -> None:
    assert PromptLookup(longest=2, count=3).propose([1, 2, 9, 9, 1, 2, 7, 8, 4, 1, 2], 10) == [7, 8, 4]
    assert PromptLookup(count=5).propose([4, 7, 7], 10) == [7, 7, 7, 7, 7]
    assert PromptLookup(count=9).propose([1, 2, 1, 2], 3) == [1, 2, 1]
    assert PromptLookup().propose([1, 2, 3], 10) == []


class Bytes:
    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")


def test_streamed_text_is_whole_at_every_step() -> None:
    text = "나는 🙂 학교에 café"
    pieces = list(stream_text(text.encode(), Bytes()))
    assert "".join(pieces) == text and len(pieces) == len(text)
    assert all("\ufffd" not in piece for piece in pieces)
    assert "".join(stream_text("가나".encode()[:5], Bytes())) == "가", "a limit in the middle of a character"
    assert "".join(stream_text(b"\xff!", Bytes())) == "\ufffd!", "what is no character at all is not hidden"


def test_stop_strings_end_the_text_and_are_not_shown() -> None:
    assert "".join(stream_text(b"one two END three", Bytes(), ["END"])) == "one two "
    assert "".join(stream_text(b"one EN two", Bytes(), ["END"])) == "one EN two"
    assert "".join(stream_text("가나다라".encode(), Bytes(), ["다", "라"])) == "가나"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda model: generate(model, [[]]), "prompt is empty"),
        (lambda model: generate(model, []), "prompt is empty"),
        (lambda model: generate(model, [[1] * 40]), "40 tokens and this model reads at most 40; shorten"),
        (lambda model: generate(model, [[1] * 30], limit=20), "use a limit of at most 10"),
        (lambda model: generate(model, [[99]], limit=5), "token 99 is out of range: this model has tokens 0 to 49"),
        (lambda model: generate(model, [[1]], limit=0), "limit must be at least 1 new token"),
        (lambda model: beam_search(model, [[1]], beams=0), "at least 1 beam"),
        (lambda model: Sampling(temperature=-1.0), "at least 0"),
        (lambda model: Sampling(top_p=0.0), "above 0"),
        (lambda model: Sampling(top_k=0), "at least 1"),
        (lambda model: PromptLookup(count=0), "at least 1"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(make: Any, says: str) -> None:
    model = GPT(GPTConfig(vocabulary=50, length=40, width=16, layers=1, heads=2, hidden=16)).eval()
    with pytest.raises(ArgumentError, match=says):
        make(model)


def test_stream_gives_one_token_at_a_time() -> None:
    model = GPT(GPTConfig(vocabulary=50, length=40, width=16, layers=1, heads=2, hidden=16)).eval()
    walked = stream_tokens(model, [[1, 2], [3]], limit=5)
    first = next(walked)
    assert len(first) == 2 and [first, *walked] == [
        list(row) for row in zip(*generate(model, [[1, 2], [3]], limit=5), strict=True)
    ]
