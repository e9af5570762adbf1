"""Compare generation with transformers' generate on the same parameters. Run: python bench/generate.py

GPT-2-small shape with random parameters (speed does not depend on them), interleaved runs, ratios of new tokens per
second.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import jumok
from jumok.generate import PromptLookup, generate, quantize, speculate
from jumok.models import Model
from measure import compare_interleaved


def print_row(title: str, times: dict[str, float], tokens: int) -> None:
    print(
        f"{title}: {times['ratio']:.2f}x [{times['low']:.2f}, {times['high']:.2f}]  "
        f"ours {tokens / times['ours']:.1f} tokens/s, theirs {tokens / times['theirs']:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new", type=int, default=64, help="new tokens (default 64)")
    options = parser.parse_args()

    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0)).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = jumok.load(Path(folder)).model
    quantized = quantize(ours)
    prompts = torch.randint(1, 50257, (8, 16))

    def generate_theirs(batch: int, tokens: torch.Tensor = prompts) -> object:
        return theirs.generate(
            tokens[:batch],
            attention_mask=torch.ones_like(tokens[:batch]),
            max_new_tokens=options.new,
            min_new_tokens=options.new,
            do_sample=False,
            pad_token_id=0,
        )

    def generate_ours(batch: int, model: Model = ours) -> object:
        return generate(model, prompts[:batch].tolist(), limit=options.new)

    for title, model, batch in (
        ("float32, batch 1", ours, 1),
        ("int8, batch 1", quantized, 1),
        ("float32, batch 8", ours, 8),
    ):
        times = compare_interleaved(
            partial(generate_ours, batch, model), partial(generate_theirs, batch), options.rounds
        )
        print_row(title, times, batch * options.new)

    # Repetitive text: after a few hundred greedy tokens, a model with random parameters repeats itself.
    start = prompts[0].tolist()
    text = start + generate(ours, [start], limit=400)[0]
    report = speculate(ours, text, PromptLookup(), limit=options.new)
    assert report.tokens == generate(ours, [text], limit=options.new)[0]
    accepted = f"{report.accepted} of {report.proposed} proposals accepted"

    def look_up() -> object:
        return speculate(ours, text, PromptLookup(), limit=options.new)

    times = compare_interleaved(look_up, lambda: generate_theirs(1, torch.tensor([text])), options.rounds)
    print_row(f"lookup, batch 1 ({accepted})", times, options.new)
    times = compare_interleaved(look_up, lambda: generate(ours, [text], limit=options.new), options.rounds)
    print_row(f"lookup against our own plain decoding ({accepted})", times, options.new)


if __name__ == "__main__":
    main()
