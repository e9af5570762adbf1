"""Real parameters: SmolLM2 from GGUF and MiniLM from safetensors, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from catalogue_cache import download_or_skip
from jumok.checkpoint import Loaded
from jumok.generate import PromptLookup, Sampling, beam_search, generate, quantize, speculate
from parity import assert_parity

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real")]


@pytest.fixture(scope="module")
def smollm2() -> tuple[Loaded, Any]:
    from transformers import AutoModelForCausalLM

    folder = download_or_skip("smollm2")
    file = next(folder.glob("*.gguf"))
    theirs = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name, dtype=torch.float32).eval()
    return jumok.load(file), theirs


def test_smollm2_has_transformers_logits(smollm2: tuple[Loaded, Any]) -> None:
    loaded, theirs = smollm2
    tokens = torch.tensor([loaded.tokenizer.encode("When Mary and John went to the store, 나는 학교에 갔다.")])
    with torch.no_grad():
        assert_parity(loaded.model(tokens).logits, theirs(tokens).logits)


def test_smollm2_writes_what_transformers_write(smollm2: tuple[Loaded, Any]) -> None:
    loaded, theirs = smollm2
    prompt = loaded.tokenizer.encode("The three largest cities of South Korea are")
    settings = {
        "attention_mask": torch.ones(1, len(prompt)).long(),
        "do_sample": False,
        "max_new_tokens": 24,
        "pad_token_id": 0,
    }
    wanted = theirs.generate(torch.tensor([prompt]), **settings)[0, len(prompt) :].tolist()
    assert generate(loaded.model, [prompt], limit=24, ends=(loaded.tokenizer.end,))[0] == wanted
    assert speculate(loaded.model, prompt, PromptLookup(), limit=24, ends=(loaded.tokenizer.end,)).tokens == wanted
    beams = theirs.generate(torch.tensor([prompt]), **settings, num_beams=3, early_stopping=False)[
        0, len(prompt) :
    ].tolist()
    assert beam_search(loaded.model, [prompt], beams=3, limit=24, ends=(loaded.tokenizer.end,))[0] == beams


def test_smollm2_answers_a_message(smollm2: tuple[Loaded, Any]) -> None:
    loaded, _ = smollm2
    text = loaded.tokenizer.apply_chat_template([{"role": "user", "content": "What is the capital of France?"}])
    assert (
        text.endswith("<|im_start|>assistant\n")
        and "<|im_start|>user\nWhat is the capital of France?<|im_end|>" in text
    )
    answer = jumok.run(loaded, "What is the capital of France? Answer in one word.", chat=True, limit=12)
    assert "Paris" in answer and "<|" not in answer
    stopped = jumok.run(loaded, "One, two, three,", limit=20, stops=("five",))
    assert "four" in stopped and "five" not in stopped


def test_smollm2_in_eight_bits_says_nearly_the_same(smollm2: tuple[Loaded, Any]) -> None:
    loaded, _ = smollm2
    tokens = torch.tensor([loaded.tokenizer.encode("The quick brown fox jumps over the lazy dog. " * 3)])
    small = quantize(loaded.model)
    with torch.inference_mode():
        one, two = (model(tokens).logits.log_softmax(-1) for model in (loaded.model, small))
    gap = (one.exp() * (one - two)).sum(-1).mean()
    assert gap < 0.02  # nats between the two distributions of the next token, on average


def test_smollm2_saved_and_loaded_again_is_the_same(smollm2: tuple[Loaded, Any], tmp_path: Path) -> None:
    loaded, theirs = smollm2
    jumok.save(loaded.model, tmp_path / "saved", format="huggingface", tokenizer=loaded.tokenizer)
    again = jumok.load(tmp_path / "saved")
    tokens = torch.tensor([again.tokenizer.encode("Hello, world")])
    with torch.no_grad():
        assert_parity(again.model(tokens).logits, theirs(tokens).logits)
    assert again.tokenizer.encode("나는 12 cats") == loaded.tokenizer.encode("나는 12 cats")


def test_drawing_is_by_the_seed(smollm2: tuple[Loaded, Any]) -> None:
    loaded, _ = smollm2
    prompt = loaded.tokenizer.encode("Once upon a time")
    one, two, three = (
        generate(loaded.model, [prompt], limit=8, sampling=Sampling(temperature=0.9, top_p=0.9, seed=seed))
        for seed in (1, 1, 2)
    )
    assert one == two != three


def test_minilm_has_transformers_vectors() -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = download_or_skip("minilm")
    loaded, theirs = jumok.load(folder), AutoModel.from_pretrained(folder).eval()
    texts = ["A man is eating food.", "나는 학교에 간다", "The quick brown fox jumps over the lazy dog"]
    told = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    real = told["attention_mask"].bool()
    with torch.no_grad():
        assert_parity(loaded.model(told["input_ids"], token_mask=real).hidden, theirs(**told).last_hidden_state, real)
    for text, row, kept in zip(texts, told["input_ids"], real, strict=True):
        assert loaded.tokenizer.encode(text) == row[kept].tolist()


def test_minilm_knows_a_paraphrase() -> None:
    loaded = jumok.load(download_or_skip("minilm"))
    one, same, other = jumok.run(
        loaded, ["A man is eating a meal.", "Someone is having lunch.", "The stock market fell sharply on Monday."]
    )
    assert one @ same > 0.4 and abs(one @ other) < 0.15 and one @ same > 4 * abs(one @ other)
