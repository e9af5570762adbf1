"""Compare a forward pass of 512 tokens with transformers (SDPA). Run: python bench/forward.py"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import jumok
from measure import compare_interleaved


def main() -> None:
    torch.manual_seed(0)
    model_makers = {
        "GPT-2 small": lambda: GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")),
        "SmolLM2-135M": lambda: LlamaForCausalLM(
            LlamaConfig(
                vocab_size=49152,
                hidden_size=576,
                num_hidden_layers=30,
                num_attention_heads=9,
                num_key_value_heads=3,
                intermediate_size=1536,
                max_position_embeddings=2048,
                tie_word_embeddings=True,
                attn_implementation="sdpa",
            )
        ),
    }
    for name, make in model_makers.items():
        theirs = make().eval()
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            ours = jumok.load(Path(folder)).model
        tokens = torch.randint(40000, (1, 512))
        with torch.inference_mode():
            times = compare_interleaved(lambda m=ours, t=tokens: m(t), lambda m=theirs, t=tokens: m(t), 9)
        print(
            f"forward of 512 tokens, {name}: {times['ratio']:.3f}x [{times['low']:.3f}, {times['high']:.3f}]",
            flush=True,
        )


if __name__ == "__main__":
    main()
