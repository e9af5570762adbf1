"""Compare real models with transformers: SmolLM2 from GGUF and MiniLM from safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from catalogue_cache import download_or_skip, use_cached
from jumok.checkpoint import Loaded
from jumok.generate import PromptLookup, Sampling, beam_search, generate, quantize, speculate
from parity import assert_parity

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real")]


# the published config.json: with it, transformers parses the GGUF file once (for the tensors) instead of twice
SMOLLM2 = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    "rope_theta": 100_000.0, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def smollm2() -> tuple[Loaded, Any]:
    """Load SmolLM2 once for all tests of this file: ours, and transformers'."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = download_or_skip("smollm2")
    file = next(folder.glob("*.gguf"))
    config = LlamaConfig(**SMOLLM2)
    reference = LlamaForCausalLM.from_pretrained(folder, gguf_file=file.name, config=config, dtype=torch.float32)
    return jumok.load(file), reference.eval()


def test_gemma_continues_korean_as_llama_cpp_does() -> None:
    """A download of 238 MB that the tests do not make by themselves; transformers needs minutes to convert the file,
    and its logits differ by at most 7e-5 of 33."""
    with use_cached("gemma3-270m"):
        loaded = jumok.load("gemma3-270m")
    prompt = loaded.tokenizer.encode("나는 오늘 아침에 학교에")
    assert loaded.tokenizer.decode(generate(loaded.model, [prompt], limit=5)[0]) == " 다녀왔습니다."


def test_smollm2_logits_equal_transformers(smollm2: tuple[Loaded, Any]) -> None:
    loaded, reference = smollm2
    tokens = torch.tensor([loaded.tokenizer.encode("When Mary and John went to the store, 나는 학교에 갔다.")])
    with torch.no_grad():
        assert_parity(loaded.model(tokens).logits, reference(tokens).logits)


def test_smollm2_generates_the_same_text_as_transformers(smollm2: tuple[Loaded, Any]) -> None:
    loaded, reference = smollm2
    prompt = loaded.tokenizer.encode("The three largest cities of South Korea are")
    settings = {
        "attention_mask": torch.ones(1, len(prompt)).long(),
        "do_sample": False,
        "max_new_tokens": 24,
        "pad_token_id": 0,
    }
    expected = reference.generate(torch.tensor([prompt]), **settings)[0, len(prompt) :].tolist()
    assert generate(loaded.model, [prompt], limit=24, ends=(loaded.tokenizer.end,))[0] == expected
    assert speculate(loaded.model, prompt, PromptLookup(), limit=24, ends=(loaded.tokenizer.end,)).tokens == expected
    beams = reference.generate(torch.tensor([prompt]), **settings, num_beams=3, early_stopping=False)[
        0, len(prompt) :
    ].tolist()
    assert beam_search(loaded.model, [prompt], beams=3, limit=24, ends=(loaded.tokenizer.end,))[0] == beams


def test_smollm2_answers_a_chat_message(smollm2: tuple[Loaded, Any]) -> None:
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


def test_smollm2_in_8_bits_has_nearly_the_same_distribution(smollm2: tuple[Loaded, Any]) -> None:
    loaded, _ = smollm2
    tokens = torch.tensor([loaded.tokenizer.encode("The quick brown fox jumps over the lazy dog. " * 3)])
    small = quantize(loaded.model)
    with torch.inference_mode():
        exact, quantized = (model(tokens).logits.log_softmax(-1) for model in (loaded.model, small))
    gap = (exact.exp() * (exact - quantized)).sum(-1).mean()
    assert gap < 0.02  # mean KL divergence of the next token, in nats


def test_smollm2_saved_and_loaded_again_is_the_same(smollm2: tuple[Loaded, Any], tmp_path: Path) -> None:
    loaded, reference = smollm2
    jumok.save(loaded.model, tmp_path / "saved", format="huggingface", tokenizer=loaded.tokenizer)
    again = jumok.load(tmp_path / "saved")
    tokens = torch.tensor([again.tokenizer.encode("Hello, world")])
    with torch.no_grad():
        assert_parity(again.model(tokens).logits, reference(tokens).logits)
    assert again.tokenizer.encode("나는 12 cats") == loaded.tokenizer.encode("나는 12 cats")


def test_sampling_is_determined_by_the_seed(smollm2: tuple[Loaded, Any]) -> None:
    loaded, _ = smollm2
    prompt = loaded.tokenizer.encode("Once upon a time")
    first, second, other = (
        generate(loaded.model, [prompt], limit=8, sampling=Sampling(temperature=0.9, top_p=0.9, seed=seed))
        for seed in (1, 1, 2)
    )
    assert first == second != other


def test_minilm_vectors_equal_transformers() -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = download_or_skip("minilm")
    loaded, reference = jumok.load(folder), AutoModel.from_pretrained(folder).eval()
    texts = ["A man is eating food.", "나는 학교에 간다", "The quick brown fox jumps over the lazy dog"]
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    token_mask = batch["attention_mask"].bool()
    with torch.no_grad():
        assert_parity(
            loaded.model(batch["input_ids"], token_mask=token_mask).hidden,
            reference(**batch).last_hidden_state,
            token_mask,
        )
    for text, row, row_mask in zip(texts, batch["input_ids"], token_mask, strict=True):
        assert loaded.tokenizer.encode(text) == row[row_mask].tolist()


def test_minilm_recognises_a_paraphrase() -> None:
    loaded = jumok.load(download_or_skip("minilm"))
    first, same, other = jumok.run(
        loaded, ["A man is eating a meal.", "Someone is having lunch.", "The stock market fell sharply on Monday."]
    )
    assert first @ same > 0.4 and abs(first @ other) < 0.15 and first @ same > 4 * abs(first @ other)
