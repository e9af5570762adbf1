"""Generation against transformers' generate on the same parameters. Run: python bench/generate.py

GPT-2-small shape, drawn parameters (speed does not depend on them), compare_interleaved, ratios of new tokens a second.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import jumok
from jumok.generate import PromptLookup, generate, quantize, speculate
from jumok.models import Model
from measure import compare_interleaved


def row(what: str, found: dict[str, float], tokens: int) -> None:
    print(
        f"{what}: {found['ratio']:.2f}x [{found['low']:.2f}, {found['high']:.2f}]  "
        f"ours {tokens / found['ours']:.1f} tokens/s, theirs {tokens / found['theirs']:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new", type=int, default=64, help="new tokens (default 64)")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0)).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = jumok.load(Path(folder)).model
    small = quantize(ours)
    prompt = torch.randint(1, 50257, (8, 16))

    def their_tokens(batch: int, given: torch.Tensor = prompt) -> object:
        return theirs.generate(
            given[:batch],
            attention_mask=torch.ones_like(given[:batch]),
            max_new_tokens=chosen.new,
            min_new_tokens=chosen.new,
            do_sample=False,
            pad_token_id=0,
        )

    def our_tokens(batch: int, model: Model = ours) -> object:
        return generate(model, prompt[:batch].tolist(), limit=chosen.new)

    row(
        "float32, batch 1",
        compare_interleaved(lambda: our_tokens(1), lambda: their_tokens(1), chosen.rounds),
        chosen.new,
    )
    row(
        "int8, batch 1",
        compare_interleaved(lambda: our_tokens(1, small), lambda: their_tokens(1), chosen.rounds),
        chosen.new,
    )
    row(
        "float32, batch 8",
        compare_interleaved(lambda: our_tokens(8), lambda: their_tokens(8), chosen.rounds),
        8 * chosen.new,
    )

    # repetitive text: what the model itself goes on with after a few hundred greedy tokens of a drawn model repeats
    start = prompt[0].tolist()
    loop = start + generate(ours, [start], limit=400)[0]
    looked = speculate(ours, loop, PromptLookup(), limit=chosen.new)
    assert looked.tokens == generate(ours, [loop], limit=chosen.new)[0]
    kept, guesses = f"{looked.accepted} of {looked.proposed} proposals accepted", PromptLookup()
    whole = torch.tensor([loop])
    found = compare_interleaved(
        lambda: speculate(ours, loop, guesses, limit=chosen.new), lambda: their_tokens(1, whole), chosen.rounds
    )
    row(f"lookup, batch 1 ({kept})", found, chosen.new)
    found = compare_interleaved(
        lambda: speculate(ours, loop, guesses, limit=chosen.new),
        lambda: generate(ours, [loop], limit=chosen.new),
        chosen.rounds,
    )
    row(f"lookup against our own plain decoding ({kept})", found, chosen.new)


if __name__ == "__main__":
    main()
