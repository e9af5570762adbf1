"""Compare language models of Shakespeare, with tokens of any kind, with a 5-gram model: loss per character.

    jumok train gpt2 --data shakespeare --out runs/gpt2
    jumok train text --data shakespeare --out runs/characters
    python bench/language/shakespeare.py runs/gpt2 runs/characters [--text 200000]

All models learned from the first nine tenths of the text and are measured on the beginning of the rest. Each 5-gram
model (interpolated Kneser-Ney) learns from the same text as the run before it, in the tokens of that run.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from ngrams import ORDER, KneserNey

import jumok
from jumok.data.datasets.text_corpora import TEXTS
from jumok.recipes.language.language_model import HELD_OUT

PROMPT = "ROMEO.\nBut soft, what light through yonder window breaks?"


def compute_model_loss(model: torch.nn.Module, ids: list[int], length: int) -> float:
    """Return the loss in nats, summed over all tokens but the first; each sees half a window of context, or more."""
    total, step = 0.0, length // 2
    for begin in range(0, len(ids) - 1, step):
        window = torch.tensor(ids[max(0, begin + step - length) : begin + step + 1])
        targets = min(step, len(ids) - 1 - begin)
        with torch.inference_mode():
            logits = model(window[None, :-1]).logits[0, -targets:]
        total += torch.nn.functional.cross_entropy(logits, window[-targets:], reduction="sum").item()
    return total


def main() -> None:
    """Print one row for each model, and a continuation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--text", type=int, default=200_000, help="characters to measure on")
    options = parser.parse_args()
    pieces = [piece for side in ("train", "held-out") for piece in TEXTS["shakespeare"](side, print)]
    text = "".join(piece if piece.endswith("\n") else piece + "\n" for piece in pieces)
    # a tenth of the tokens is about a tenth of the characters: leave out what one of the runs could have seen
    held_out = text[int(len(text) * (1 - HELD_OUT)) :][len(text) // 100 :][: options.text]
    print(f"{len(held_out):,} characters of {len(text):,}")
    print("| model | parameters or n-grams | tokens | nats a token | nats a character | bits a byte |")
    print("|---|---|---|---|---|---|")
    for run in options.runs:
        loaded = jumok.load(run)
        tokenizer, ids = loaded.require_tokenizer(), loaded.require_tokenizer().encode(held_out)
        ngrams = KneserNey([tokenizer.encode(text[: int(len(text) * (1 - HELD_OUT))])], tokenizer.vocabulary)
        losses = {
            f"{run.name}, {loaded.model.parameter_count:,}": compute_model_loss(
                loaded.model, ids, loaded.config.length
            ),
            f"{ORDER}-gram of its tokens, {len(ngrams.counts[-1]):,}": ngrams.compute_loss(ids, 1),
        }
        for name, loss in losses.items():
            model, count = name.rsplit(", ", 1)
            bits = loss / math.log(2) / len(held_out.encode())
            print(
                f"| {model} | {count} | {len(ids):,} | {loss / (len(ids) - 1):.3f} | {loss / len(held_out):.3f} | "
                f"{bits:.3f} |"
            )
    for seed in range(2):
        print(PROMPT, "->", jumok.run(options.runs[0], PROMPT, limit=110, temperature=0.7, seed=seed))


if __name__ == "__main__":
    main()
