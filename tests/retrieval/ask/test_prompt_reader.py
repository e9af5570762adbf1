"""The prompt reader against transformers: log-probabilities with and without a passage, and the attention on it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import jumok
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.models import GPT, GPTConfig, Model, llama_config
from jumok.tasks.ask import PromptReader
from jumok.tasks.ask.readers import build_prompt

PASSAGES = ("The baby turned into a pig.", "A cat grins.", "Seven maids with seven mops swept for half a year.")
QUESTION = "What did the baby become?"


def load_in_memory(model: Model) -> Loaded:
    """A model with a tokenizer of bytes, and with parameters large enough that its attention depends on the text."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter *= 10.0
    return Loaded(model.eval(), Tokenizer.for_bytes())


def create_reader(**fields: object) -> PromptReader:
    """A small random language model that reads bytes."""
    torch.manual_seed(7)
    sizes = {"vocabulary": 256, "length": 512, "width": 24, "layers": 3, "heads": 3}
    config = GPTConfig(**{**sizes, **fields})  # type: ignore[arg-type]
    return PromptReader(load_in_memory(GPT(config)))


def create_transformers_llama(model: GPT):
    """The same model in transformers."""
    import tempfile

    from transformers import LlamaForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        jumok.save(model, folder, format="huggingface")
        return LlamaForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def compute_reference(
    llama: torch.nn.Module, tokens: Sequence[int], answer: Sequence[int], cut: range
) -> tuple[list[float], torch.Tensor]:
    """Log-probabilities and attention weights by transformers, with a mask that hides the keys of a passage."""
    ids = torch.tensor([[*tokens, *answer[:-1]]])
    length = ids.shape[1]
    allowed = torch.ones(length, length).tril().bool()
    for row in range(length):
        if row not in cut:
            allowed[row, list(cut)] = False
    mask = torch.zeros(length, length).masked_fill(~allowed, torch.finfo(torch.float32).min)[None, None]
    with torch.no_grad():
        output = llama(ids, attention_mask=mask, position_ids=torch.arange(length)[None], output_attentions=True)
    logits = output.logits[0, -len(answer) :].double().log_softmax(-1)
    return [float(logits[row, token]) for row, token in enumerate(answer)], torch.stack(output.attentions)


def test_a_prompt_names_the_positions_of_its_passages() -> None:
    tokenizer = Tokenizer.for_bytes()
    prompt = build_prompt(tokenizer, QUESTION, PASSAGES)
    texts = [tokenizer.decode(prompt.token_ids[passage.start : passage.stop]).strip() for passage in prompt.passages]
    assert texts == list(PASSAGES)
    question = prompt.token_ids[prompt.question.start : prompt.question.stop]
    assert tokenizer.decode(question) == QUESTION
    starts = [passage.start for passage in prompt.passages]
    assert starts == sorted(starts, reverse=True), "the best passage stands last, next to the question"
    assert prompt.passages[0].stop < prompt.question.start


def test_cuts_and_attention_equal_those_of_transformers() -> None:
    torch.manual_seed(3)
    sizes = {"vocabulary": 256, "length": 512, "width": 24, "layers": 3, "heads": 3, "groups": 1, "hidden": 40}
    reader = PromptReader(load_in_memory(GPT(llama_config(**sizes))))
    reading = reader.read(QUESTION, PASSAGES, 7)
    prompt = reader.build_prompt(QUESTION, PASSAGES)
    llama = create_transformers_llama(reader.model)

    clean, weights = compute_reference(llama, prompt.token_ids, reading.token_ids, range(0))
    assert reading.log_probabilities == pytest.approx(clean, abs=1e-5)
    scores = reader.score_cuts(reading)
    for passage, score in zip(prompt.passages, scores, strict=True):
        expected, _ = compute_reference(llama, prompt.token_ids, reading.token_ids, passage)
        assert score == pytest.approx(expected, abs=1e-5)
        assert max(abs(a - b) for a, b in zip(score, clean, strict=True)) > 1e-3, "a cut changes something"

    rows = weights[:, 0, :, len(prompt.token_ids) - 1 :].double().mean((0, 1, 2))
    expected_attention = [float(rows[passage.start : passage.stop].sum()) for passage in prompt.passages]
    assert reader.measure_attention(reading) == pytest.approx(expected_attention, abs=1e-6)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "alibi"])
def test_a_cut_equals_a_knock_out_of_the_lens(positions: str) -> None:
    reader = create_reader(positions=positions)
    reading = reader.read(QUESTION, PASSAGES, 5)
    prompt = reader.build_prompt(QUESTION, PASSAGES)
    knocked_out = reader._score_knocked_out(prompt, reading.token_ids)
    for score, expected in zip(reader.score_cuts(reading), knocked_out, strict=True):
        assert score == pytest.approx(expected, abs=1e-5)


def test_a_cut_in_a_model_with_a_window_equals_a_knock_out() -> None:
    """The keys between a query and a key count in a window, so a passage may not simply be left out."""
    reader = create_reader(positions="rotary", window=60)
    reading = reader.read(QUESTION, PASSAGES, 5)
    prompt = reader.build_prompt(QUESTION, PASSAGES)
    expected = reader._score_knocked_out(prompt, reading.token_ids)
    assert reader.score_cuts(reading) == [pytest.approx(score, abs=1e-6) for score in expected]


def test_reading_without_passages_equals_generation_under_knock_outs() -> None:
    reader = create_reader(positions="rotary")
    prompt = reader.build_prompt(QUESTION, PASSAGES)
    for cut in ((0,), (1, 2), (0, 1, 2)):
        reading = reader.read(QUESTION, PASSAGES, 6, cut)
        with jumok.Lens(reader.loaded) as lens:
            edits = [jumok.KnockOut(key=prompt.passages[index]) for index in cut]
            expected = lens.generate(torch.tensor([prompt.token_ids]), edits=edits, limit=6)
        assert list(reading.token_ids) == expected.token_ids
    with pytest.raises(ArgumentError, match="needs a model without a window"):
        create_reader(positions="alibi").read(QUESTION, PASSAGES, 3, [0])


def test_cuts_do_not_depend_on_what_was_read_before() -> None:
    reader = create_reader(positions="rotary")
    reading = reader.read(QUESTION, PASSAGES, 5)
    scores = reader.score_cuts(reading)
    reader.read("Who?", ["Another passage altogether."], 3)
    again = reader.score_cuts(reading)  # the cache belongs to another prompt now
    assert [pytest.approx(score, abs=1e-5) for score in again] == scores
    assert reader.score(QUESTION, PASSAGES, reading.token_ids).log_probabilities == pytest.approx(
        reading.log_probabilities, abs=1e-5
    )


def test_a_text_ends_at_its_limit() -> None:
    reading = create_reader(positions="rotary").read(QUESTION, PASSAGES, 4)
    assert reading.reached_limit and len(reading.token_ids) == 4


def test_a_text_ends_at_the_end_of_a_line() -> None:
    reader = create_reader(positions="rotary", tied=False)
    assert reader.model.output is not None
    with torch.no_grad():  # after the last norm every vector is 1, and only the output of the newline reads it
        reader.model.norm.weight.zero_()
        reader.model.norm.bias.fill_(1.0)
        reader.model.output.weight.zero_()
        reader.model.output.weight[ord("\n")] = 1.0
    reading = reader.read(QUESTION, PASSAGES, 4)
    assert reading.text == "" and not reading.reached_limit


def test_a_prompt_that_is_too_long_is_refused_with_the_number_of_tokens() -> None:
    reader = create_reader(positions="rotary", length=128)
    with pytest.raises(ArgumentError, match=r"need \d+ tokens, but this model reads at most 128; ask for fewer"):
        reader.read(QUESTION, PASSAGES, 8)


def test_a_model_that_is_no_language_model_is_refused() -> None:
    from jumok.models import BERT, BERTConfig
    from jumok.tasks.ask import create_reader as choose_reader

    bert = BERT(BERTConfig(vocabulary=256, width=8, layers=1, heads=2, length=16))
    with pytest.raises(ArgumentError, match="a bert model cannot answer questions from passages"):
        choose_reader(load_in_memory(bert))
