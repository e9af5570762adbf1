"""TransformerLens, in its own environment, which has nothing of ours (make transformerlens). What it says of our model
`tiny`, as JSON; or what its cache costs beside a plain forward of the same model.

    python bench/transformerlens.py FOLDER            the folder that jumok.save(..., "huggingface") wrote
    python bench/transformerlens.py FOLDER --speed    GPT-2 small, 1,024 tokens: bench/lens.py has ours
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

HALF = 40
TEXTS = ("the cat sat; the cat", "Mary gave John a book; Mary", "주목은 주의다. 주목은")


def model_of(folder: Path) -> TransformerBridge:
    model = TransformerBridge.boot_transformers(str(folder), device="cpu", dtype=torch.float32)
    return model.eval()


def told(model: TransformerBridge, tokens: torch.Tensor) -> dict[str, Any]:
    logits, cache = model.run_with_cache(tokens[None])
    model.to_tokens = lambda *_, **__: tokens[None]
    found = {
        name: detect_head(model, "any", name).tolist()
        for name in ("previous_token_head", "duplicate_token_head", "induction_head")
    }
    patterns = [cache["pattern", layer][0] for layer in range(model.cfg.n_layers)]
    return {
        "tokens": tokens.tolist(),
        "likeliest": int(logits[0, -1].argmax()),
        "logit": float(logits[0, -1].max()),
        "last_rows": [[head[-1].tolist() for head in pattern] for pattern in patterns],
        "detected": found,
    }


def induction_scores(model: TransformerBridge) -> dict[str, Any]:
    """As its main demo has it: the mean of the diagonal that lies one less than the period behind."""
    once = torch.randint(model.cfg.d_vocab, (HALF,), generator=torch.Generator().manual_seed(0))
    tokens = torch.cat([once, once])
    _, cache = model.run_with_cache(tokens[None])
    scores = [
        cache["pattern", layer][0].diagonal(dim1=-2, dim2=-1, offset=1 - HALF).mean(-1).tolist()
        for layer in range(model.cfg.n_layers)
    ]
    return {"tokens": tokens.tolist(), "scores": scores}


def speed(tokenizer: Path, rounds: int = 7) -> str:
    """Interleaved: its run_with_cache beside a plain forward of the same model in transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    inner = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")).eval()
    with tempfile.TemporaryDirectory() as folder:
        inner.save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            shutil.copy(tokenizer / name, folder)  # it wants one; nothing is written here
        model = model_of(Path(folder))
    tokens, ratios = torch.randint(50000, (1, 1024)), []
    for turn in range(rounds + 1):
        times = []
        for work in (lambda: inner(tokens, logits_to_keep=1), lambda: model.run_with_cache(tokens)):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        if turn:
            ratios.append(times[1] / times[0])
    return f"run_with_cache / plain forward: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    if "--speed" in sys.argv:
        with torch.inference_mode():
            print(speed(Path(sys.argv[1])))
        return
    model = model_of(Path(sys.argv[1]))
    with torch.no_grad():
        texts = [told(model, torch.tensor(list(text.encode()))) for text in TEXTS]
        repeated = induction_scores(model)
    print(json.dumps({"version": importlib.metadata.version("transformer_lens"), "texts": texts, "repeated": repeated}))


if __name__ == "__main__":
    main()
