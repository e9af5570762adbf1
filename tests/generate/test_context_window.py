"""Texts that exceed the context length, compared with a loop that reads each window from the beginning."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor

import jumok
from jumok.cli import cli
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ContextWarning
from jumok.generate import DraftModel, PromptLookup, Sampling, beam_search, generate, speculate, stream_tokens
from jumok.generate.decoding import CausalDecoder
from jumok.models import GPT, GPTConfig, Model, llama_config
from jumok.models.transformer import Transformer, TransformerConfig
from parity import perturb_parameters

CONTEXT = 13
VOCABULARY = 31
SIZES = {"vocabulary": VOCABULARY, "length": CONTEXT, "width": 12, "layers": 2, "heads": 3, "hidden": 17}
PROMPT = [5, 9, 11, 2, 7]


def build_model(positions: str) -> Model:
    torch.manual_seed(2)
    config = GPTConfig.from_json(SIZES) if positions == "learned" else llama_config(**SIZES)
    if positions == "window":
        config = config.replace(window=4)
    return perturb_parameters(GPT(config)).double().eval()


def list_windows(length: int) -> tuple[int, int]:
    """Return the window of a text by counting: a full window drops 3 of its 13 tokens before the next one."""
    start = 0
    for end in range(1, length + 1):
        if end - start > CONTEXT:
            start += 3
    return start, length


def compute_next_logits(model: Model, text: list[int]) -> Tensor:
    """Return the logits after a text, from a fresh forward pass over its window, without a cache."""
    start, end = list_windows(len(text))
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([text[start:end]])).logits[0, -1]
    return logits


def continue_greedily(model: Model, prompt: list[int], limit: int) -> list[int]:
    text = list(prompt)
    for _ in range(limit):
        text.append(int(compute_next_logits(model, text).argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize("positions", ["learned", "rotary", "window"])
def test_logits_after_the_limit_equal_those_of_the_window_alone(positions: str) -> None:
    model = build_model(positions)
    messages: list[str] = []
    prompts = [PROMPT, [1], [3] * 12]
    decoder = CausalDecoder(model, prompts, 40, messages.append)
    texts = [list(prompt) for prompt in prompts]
    with torch.inference_mode():
        logits = decoder.prefill()[:, -1]
        for step in range(40):
            for row, text in enumerate(texts):
                torch.testing.assert_close(logits[row], compute_next_logits(model, text), atol=1e-10, rtol=0)
                text.append((7 * step + row) % VOCABULARY)
            logits = decoder.step(torch.tensor([[text[-1]] for text in texts]))[:, -1]
    assert len(messages) == 1 and "exceeds the 13 tokens that this model reads" in messages[0]
    assert "only the last 11 to 13 tokens" in messages[0]


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_generation_continues_beyond_the_context(positions: str) -> None:
    model = build_model(positions)
    prompts = [PROMPT, [1], list(range(13)), list(range(29))]
    with pytest.warns(ContextWarning, match="the prompt has 29 tokens, but this model reads at most 13"):
        texts = generate(model, prompts, limit=37)
    assert texts == [continue_greedily(model, prompt, 37) for prompt in prompts]
    with pytest.warns(ContextWarning, match="only the last 11 to 13 tokens"):
        first = generate(model, [PROMPT], limit=20)[0]
    with pytest.warns(ContextWarning):  # a text continues alike, generated or given
        assert texts[0] == first + generate(model, [PROMPT + first], limit=17)[0]


def test_nothing_is_reported_within_the_context() -> None:
    model = build_model("learned")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(generate(model, [PROMPT, [1]], limit=9)[0]) == 9  # the 14th token is written, but not read
    with pytest.warns(ContextWarning):
        generate(model, [PROMPT], limit=10)


def test_one_warning_for_each_generation() -> None:
    model = build_model("learned")
    with pytest.warns(ContextWarning) as caught:
        generate(model, [PROMPT, [1, 2]], limit=50)
    assert len(caught) == 1


@pytest.mark.parametrize("count", [1, 2, 6, 13, 30])
def test_several_tokens_at_once_cross_the_limit(count: int) -> None:
    model = build_model("learned")
    decoder = CausalDecoder(model, [[4]], 80, lambda _: None)
    text = [4]
    with torch.inference_mode():
        decoder.prefill()
        for step in range(4):
            new = [(3 * step + index) % VOCABULARY for index in range(count)]
            logits = decoder.step(torch.tensor([new]))[0]
            for index in range(count):
                expected = compute_next_logits(model, text + new[: index + 1])
                torch.testing.assert_close(logits[index], expected, atol=1e-10, rtol=0)
            removed = count // 2  # as after a rejected proposal, also back over a slide
            decoder.remove_last(removed)
            text += new[: count - removed]


def test_a_removed_token_that_moved_the_window_is_forgotten() -> None:
    model = build_model("learned")
    text = list(range(CONTEXT))
    decoder = CausalDecoder(model, [text], 9, lambda _: None)
    with torch.inference_mode():
        decoder.prefill()
        decoder.step(torch.tensor([[20]]))  # the window slides
        decoder.remove_last(1)  # and back
        logits = decoder.step(torch.tensor([[25]]))[0, -1]
    torch.testing.assert_close(logits, compute_next_logits(model, [*text, 25]), atol=1e-10, rtol=0)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_speculation_equals_greedy_decoding_beyond_the_context(positions: str) -> None:
    model = build_model(positions)
    expected = continue_greedily(model, PROMPT, 45)
    small = GPT(GPTConfig.from_json({**SIZES, "length": 7, "layers": 1})).double().eval()
    for proposer in (PromptLookup(), DraftModel(small), DraftModel(model, 5)):
        with pytest.warns(ContextWarning, match="exceeds the 13 tokens") as caught:
            assert speculate(model, PROMPT, proposer, limit=45).tokens == expected
        assert len(caught) == 1


def test_rejected_proposals_beyond_the_context_report_nothing() -> None:
    model = build_model("learned")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = speculate(model, PROMPT, DraftModel(model, 12), limit=9)
    assert report.tokens == continue_greedily(model, PROMPT, 9)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_beam_search_continues_beyond_the_context(positions: str) -> None:
    model = build_model(positions)
    with pytest.warns(ContextWarning):
        texts = beam_search(model, [PROMPT, [1]], beams=1, limit=30)
    assert texts == [continue_greedily(model, prompt, 30) for prompt in (PROMPT, [1])]

    with pytest.warns(ContextWarning):
        together = beam_search(model, [PROMPT, [1]], beams=3, limit=20)
    with pytest.warns(ContextWarning):
        alone = beam_search(model, [PROMPT], beams=3, limit=20)[0]
    assert together[0] == alone == search_naively(model, PROMPT, beams=3, limit=20)


def search_naively(model: Model, prompt: list[int], beams: int, limit: int) -> list[int]:
    """Return the most probable text of a beam search without end tokens, reading every text from its beginning."""
    running: list[tuple[float, list[int]]] = [(0.0, list(prompt))]
    for _ in range(limit):
        candidates = []
        for total, text in running:
            log_probabilities = compute_next_logits(model, text).float().log_softmax(-1)
            candidates += [(total + share, [*text, token]) for token, share in enumerate(log_probabilities.tolist())]
        running = sorted(candidates, key=lambda candidate: -candidate[0])[:beams]
    return running[0][1][len(prompt) :]


def test_encoder_decoder_stops_at_its_limit_and_says_so() -> None:
    sizes = {"vocabulary": 20, "length": 9, "width": 12, "layers": 1, "heads": 2, "hidden": 16, "end": 19}
    model = Transformer(TransformerConfig.from_json(sizes)).eval()
    assert len(generate(model, [[1, 2]], limit=9)[0]) == 9
    message = "stops unfinished at 9 tokens, the most that this model can write"
    with pytest.warns(ContextWarning, match=message):
        answer = generate(model, [[1, 2]], limit=10)[0]
    assert len(answer) == 9
    with pytest.warns(ContextWarning, match=message):
        assert len(beam_search(model, [[1, 2]], beams=2, limit=50)[0]) == 9
    with pytest.warns(ContextWarning, match=message):
        assert speculate(model, [1, 2], PromptLookup(), limit=50).tokens == answer
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate(model, [[1, 2]], limit=50, ends=[answer[5]])  # an end token before the limit


def test_end_tokens_and_sampling_work_beyond_the_context() -> None:
    model = build_model("learned")
    sampling = Sampling(temperature=2.0, seed=3)
    with pytest.warns(ContextWarning):
        text = generate(model, [PROMPT], limit=60, sampling=sampling)[0]
    end = next(token for token in text[15:] if token not in text[:15])
    with pytest.warns(ContextWarning):
        rows = list(stream_tokens(model, [PROMPT], limit=60, sampling=sampling, ends=[end]))
    assert [row[0] for row in rows] == text[: text.index(end) + 1] and len(rows) > 15


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    tokenizer = Tokenizer.for_characters("abcdefghij ")
    model = GPT(GPTConfig.from_json({**SIZES, "vocabulary": tokenizer.vocabulary}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    path = tmp_path_factory.mktemp("models") / "gpt"
    jumok.save(model, path, tokenizer=tokenizer)
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["run", *arguments], catch_exceptions=False)


def test_run_writes_beyond_the_context_and_says_so_once(folder: Path) -> None:
    loaded = jumok.load(folder)
    with pytest.warns(ContextWarning):
        text = jumok.run(loaded, "abc", limit=60)
    assert len(text) >= 60
    process = run(str(folder), "abc", "--limit", "60")
    assert process.exit_code == 0 and process.stdout == text + "\n"
    assert process.stderr.count("\n") == 1 and process.stderr.startswith("jumok: the text exceeds the 13 tokens")
    process = run(str(folder), "abc" * 10, "--limit", "3", "--json")
    assert "jumok: the prompt has 30 tokens, but this model reads at most 13" in process.stderr
    assert len(json.loads(process.stdout)["output"]) >= 3
    with pytest.warns(ContextWarning):
        assert jumok.run(loaded, "abc" * 10, limit=3) == json.loads(process.stdout)["output"]


def test_stop_string_works_beyond_the_context(folder: Path) -> None:
    loaded = jumok.load(folder)
    sampling = {"temperature": 2.0, "seed": 1}
    with pytest.warns(ContextWarning):
        text = jumok.run(loaded, "abc", limit=60, **sampling)
    stop = next(text[index : index + 2] for index in range(30, 58) if text.find(text[index : index + 2]) == index)
    with pytest.warns(ContextWarning):
        assert jumok.run(loaded, "abc", limit=60, stops=(stop,), **sampling) == text[: text.index(stop)]


def test_text_of_a_fixed_length_ends_at_the_context() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=11, length=7, width=8, layers=1, heads=2, hidden=8, fixed_length=True)).eval()
    assert [len(new) for new in generate(model, [[1, 2, 3], [4, 5, 6]], limit=20)] == [4, 4]  # no ContextWarning
    assert len(generate(model, [[1, 2, 3]], limit=2)[0]) == 2
