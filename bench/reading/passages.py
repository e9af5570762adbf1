"""Time the encoder of a Fusion-in-Decoder against full attention. Run: python bench/reading/passages.py

Three ways to read the same passages with the same parameters, interleaved: as a batch of passages (Fusion without a
lens), as one sequence with the mask documents(passage ids) (Fusion under a lens), and as one text with full attention
(Transformer).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from jumok.models import Fusion, FusionConfig, Transformer, TransformerConfig
from jumok.tap import listen
from measure import compare_interleaved

SIZES = {"vocabulary": 512, "width": 128, "layers": 2, "heads": 4, "hidden": 256, "length": 100_000, "order": "pre"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, nargs="+", default=[5, 20, 80, 160])
    parser.add_argument("--tokens", type=int, default=100, help="tokens of a passage with its question (default 100)")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    fusion = Fusion(FusionConfig(**SIZES, separator=3)).eval()
    together = Transformer(TransformerConfig(**SIZES)).eval()
    together.load_state_dict(fusion.state_dict())

    for passages in options.passages:
        source = torch.randint(4, SIZES["vocabulary"], (1, passages, options.tokens))
        source[:, :, 0] = 3
        tokens = source.flatten(1)

        def observe(tokens: torch.Tensor = tokens) -> None:
            with listen(lambda site, tapped: tapped):
                fusion.encode(tokens)

        def encode(tokens: torch.Tensor = tokens) -> None:
            fusion.encode(tokens)

        with torch.no_grad():
            full = compare_interleaved(encode, lambda tokens=tokens: together.encode(tokens), options.rounds)
            masked = compare_interleaved(encode, observe, options.rounds)
        print(
            f"{passages} passages, {tokens.shape[1]:,} tokens: batch {full['ours'] * 1e3:.0f} ms; "
            f"one sequence with the mask {masked['ratio']:.2f}x [{masked['low']:.2f}, {masked['high']:.2f}]; "
            f"full attention {full['ratio']:.2f}x [{full['low']:.2f}, {full['high']:.2f}]"
        )


if __name__ == "__main__":
    main()
