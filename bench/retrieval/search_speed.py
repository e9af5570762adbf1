"""Measure the speed of searching and embedding as ratios to plain peers. Run: python bench/retrieval/search_speed.py

Embedding: our minilm in batches sorted by length, against transformers in batches of 32 in the order of the texts.
Products: our search (products, the five best, exact ties) against numpy's product and argsort, on 50,000 and 500,000
random vectors in float32, and on the same vectors in float16 (half the file). minilm and gutenberg come from the
catalogue: jumok data get minilm gutenberg.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

import jumok
from jumok.data.catalogue import download_entry
from jumok.retrieval.search.embedding import embed_passages
from jumok.retrieval.search.vectors import VectorIndex
from measure import compare_interleaved

WIDTH = 384
BATCH = 32


def main() -> None:
    """Print all ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passages", type=int, default=256, help="passages that are embedded in a round")
    arguments = parser.parse_args()
    measure_embedding(arguments.rounds, arguments.passages)
    for number in (50_000, 500_000):
        measure_products(number, arguments.rounds)


def measure_embedding(rounds: int, number: int) -> None:
    """Print passages per second, and the ratio to transformers.

    Args:
        rounds: Rounds of the comparison.
        number: Passages of a round.
    """
    folder = download_entry("minilm")
    book = download_entry("gutenberg") / "carroll-alice.txt"
    words = book.read_text(encoding="utf-8", errors="replace").split()
    lengths = np.random.default_rng(0).integers(30, 100, number)  # words, as the passages of files have
    ends = np.cumsum(lengths) % (len(words) - 100)
    passages = [" ".join(words[end : end + length]) for end, length in zip(ends, lengths, strict=True)]
    loaded = jumok.load(folder)
    tokenizer, reference = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def embed_with_transformers() -> np.ndarray:
        vectors = []
        for start in range(0, number, BATCH):
            batch = tokenizer(passages[start : start + BATCH], padding=True, return_tensors="pt")
            with torch.inference_mode():
                hidden = reference(**batch).last_hidden_state
            mask = batch["attention_mask"][..., None]
            means = (hidden * mask).sum(1) / mask.sum(1)
            vectors.append(torch.nn.functional.normalize(means, dim=-1))
        return torch.cat(vectors).numpy()

    ours = np.stack(list(embed_passages(loaded, passages)))
    print(f"embedding: largest difference to transformers {np.abs(ours - embed_with_transformers()).max():.1e}")
    times = compare_interleaved(lambda: list(embed_passages(loaded, passages)), embed_with_transformers, rounds)
    print(
        f"embedding {number} passages: {times['ratio']:.2f}x [{times['low']:.2f}, {times['high']:.2f}] of transformers "
        f"in batches of {BATCH}; {number / times['ours']:.0f} against {number / times['theirs']:.0f} passages a second"
    )


def measure_products(number: int, rounds: int) -> None:
    """Print the time of a search, and the ratio to numpy, for float32 and float16.

    Args:
        number: The number of vectors.
        rounds: Rounds of the comparison.
    """
    generator = np.random.default_rng(0)
    matrix = generator.standard_normal((number, WIDTH), dtype=np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    question = matrix[7]
    with tempfile.TemporaryDirectory() as folder:
        for dtype in (np.float32, np.float16):
            np.save(Path(folder, "vectors.npy"), matrix.astype(dtype))
            index = VectorIndex.open(Path(folder, "vectors.npy"))
            times = compare_interleaved(
                lambda index=index: index.search(question, 5), lambda: np.argsort(-(matrix @ question))[:5], rounds, 3
            )
            print(
                f"{number:,} vectors in {np.dtype(dtype).name}: {times['ratio']:.2f}x [{times['low']:.2f}, "
                f"{times['high']:.2f}] of numpy in float32; {1000 * times['ours']:.0f} ms against "
                f"{1000 * times['theirs']:.0f} ms"
            )


if __name__ == "__main__":
    main()
