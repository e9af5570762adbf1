"""Run TransformerLens in an environment of its own, without Jumok (make transformerlens): print its results for the
model `tiny` as JSON, or the overhead of its cache compared with a plain forward pass.

    python bench/references/transformerlens.py FOLDER          FOLDER: written by jumok.save(..., format="huggingface")
    python bench/references/transformerlens.py FOLDER --speed  GPT-2 small, 1,024 tokens; bench/lens.py measures Jumok
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformer_lens.head_detector import detect_head
from transformer_lens.model_bridge import TransformerBridge

PERIOD = 40  # random tokens, which are then repeated once
TEXTS = ("the cat sat; the cat", "Mary gave John a book; Mary", "주목은 주의다. 주목은")


def load_model(folder: Path) -> TransformerBridge:
    """Load a folder of transformers in TransformerLens."""
    model = TransformerBridge.boot_transformers(str(folder), device="cpu", dtype=torch.float32)
    return model.eval()


def describe_text(model: TransformerBridge, tokens: torch.Tensor) -> dict[str, Any]:
    """The prediction, the last rows of all weights, and the scores of detect_head on one text."""
    logits, cache = model.run_with_cache(tokens[None])
    model.to_tokens = lambda *_, **__: tokens[None]
    detected = {
        name: detect_head(model, "any", name).tolist()
        for name in ("previous_token_head", "duplicate_token_head", "induction_head")
    }
    patterns = [cache["pattern", layer][0] for layer in range(model.cfg.n_layers)]
    return {
        "tokens": tokens.tolist(),
        "likeliest": int(logits[0, -1].argmax()),
        "logit": float(logits[0, -1].max()),
        "last_rows": [[head[-1].tolist() for head in pattern] for pattern in patterns],
        "detected": detected,
    }


def compute_induction_scores(model: TransformerBridge) -> dict[str, Any]:
    """The mean weight on the key PERIOD - 1 positions back, as in the main demo of TransformerLens."""
    first_half = torch.randint(model.cfg.d_vocab, (PERIOD,), generator=torch.Generator().manual_seed(0))
    tokens = torch.cat([first_half, first_half])
    _, cache = model.run_with_cache(tokens[None])
    scores = [
        cache["pattern", layer][0].diagonal(dim1=-2, dim2=-1, offset=1 - PERIOD).mean(-1).tolist()
        for layer in range(model.cfg.n_layers)
    ]
    return {"tokens": tokens.tolist(), "scores": scores}


def measure_speed(tokenizer: Path, rounds: int = 7) -> str:
    """Compare run_with_cache with a plain forward pass of the same model in transformers, interleaved."""
    from transformers import GPT2Config, GPT2LMHeadModel

    transformers_model = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")).eval()
    with tempfile.TemporaryDirectory() as folder:
        transformers_model.save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            shutil.copy(tokenizer / name, folder)  # required for loading, but not used
        model = load_model(Path(folder))
    tokens, ratios = torch.randint(50000, (1, 1024)), []
    for round_number in range(rounds + 1):
        times = []
        for work in (
            lambda: transformers_model(tokens, logits_to_keep=1),
            lambda: model.run_with_cache(tokens),
        ):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        if round_number:  # the first round warms up
            ratios.append(times[1] / times[0])
    return f"run_with_cache / plain forward: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    if "--speed" in sys.argv:
        with torch.inference_mode():
            print(measure_speed(Path(sys.argv[1])))
        return
    model = load_model(Path(sys.argv[1]))
    with torch.no_grad():
        texts = [describe_text(model, torch.tensor(list(text.encode()))) for text in TEXTS]
        repeated = compute_induction_scores(model)
    print(json.dumps({"version": importlib.metadata.version("transformer_lens"), "texts": texts, "repeated": repeated}))


if __name__ == "__main__":
    main()
