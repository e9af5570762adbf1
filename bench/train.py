"""Training steps a second against a plain GPT, and against transformers' GPT-2 in the same loop.

Run: python bench/train.py. Our own loop as people use it (its checks, metrics and clipping included) beside a loop as
it is usually written: AdamW, cosine, clipping. One process, compare_interleaved.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

from jumok.checkpoint import run_folder
from jumok.data.batches.batch_order import RandomWindows
from jumok.data.token_store import token_shards
from jumok.models.gpt import GPT, GPTConfig
from jumok.training import Batch, Settings, Task, fit, token_loss
from measure import compare_interleaved, measure_peak_memory

VOCABULARY = 65


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (one.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for one in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    """The usual small GPT: learned positions, norms in front, tied output."""

    def __init__(self, layers: int, heads: int, width: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(PlainBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, VOCABULARY, bias=False)
        self.tokens.weight = self.output.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.output(self.norm(hidden))
        return logits


def plain_loop(
    logits_of: Callable[[Tensor], Tensor], model: nn.Module, text: Tensor, length: int, batch: int, steps: int
) -> None:
    """AdamW in two groups, cosine, clipping: the loop as it is usually written."""
    groups = [
        {"params": [one for one in model.parameters() if one.dim() >= 2], "weight_decay": 0.1},
        {"params": [one for one in model.parameters() if one.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    for step in range(steps):
        starts = torch.randint(len(text) - length, (batch,))
        x = torch.stack([text[i : i + length] for i in starts])
        y = torch.stack([text[i + 1 : i + 1 + length] for i in starts])
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 100)
        logits = logits_of(x)
        loss = functional.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            loss.item()


def our_loop(model: GPT, text: Tensor, length: int, batch: int, steps: int, compiled: bool) -> None:
    settings = Settings(
        steps=steps,
        batch=batch,
        evaluate_every=steps,
        save_every=steps,
        learning_rate=1e-3,
        warmup=100,
        compiled=compiled,
    )

    def batches(step: int, part: int, parts: int) -> Batch:
        draw = torch.Generator().manual_seed(step)
        starts = torch.randint(len(text) - length, (batch,), generator=draw).tolist()
        rows = torch.stack([text[start : start + length + 1] for start in starts])
        return Batch({"tokens": rows[:, :-1]}, rows[:, 1:], rows[:, 1:].numel())

    task = Task(model, settings, batches, token_loss, lambda model: {"loss": 0.0})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / run_folder.CHECKPOINTS_FOLDER).mkdir()
        fit(task, Path(folder))


def compared(
    layers: int, heads: int, width: int, length: int, batch: int, steps: int, rounds: int, compiled: bool
) -> None:
    name = f"{layers} layers, {heads} heads, width {width}, {length} tokens, batch {batch}"
    text = torch.randint(0, VOCABULARY, (1_000_000,))
    torch.manual_seed(0)
    sizes = {"length": length, "width": width, "layers": layers, "heads": heads, "hidden": 4 * width}
    ours = GPT(GPTConfig.from_json({"vocabulary": VOCABULARY, "activation": "gelu", **sizes}))
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
    shape = {"n_positions": length, "n_embd": width, "n_layer": layers, "n_head": heads}
    theirs = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **shape, **none)).train()
    plain = PlainGPT(layers, heads, width, length)
    whole = torch.compile(theirs) if compiled else theirs
    peers: dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]] = {
        "plain": (plain, torch.compile(plain) if compiled else plain),
        "transformers": (theirs, lambda tokens: whole(input_ids=tokens).logits),
    }
    for peer, (model, function) in peers.items():
        found = compare_interleaved(
            lambda: our_loop(ours, text, length, batch, steps, compiled),
            lambda model=model, function=function: plain_loop(function, model, text, length, batch, steps),
            rounds,
        )
        tokens = steps * batch * length
        print(
            f"{name}, against {peer}: {found['ratio']:.2f}x [{found['low']:.2f}, {found['high']:.2f}]  "
            f"ours {tokens / found['ours']:,.0f} tokens/s, theirs {tokens / found['theirs']:,.0f}",
            flush=True,
        )
    with tempfile.TemporaryDirectory() as folder:  # how fast the data comes, against how fast it is needed
        kept = token_shards.write_shards(text[:200_000].split(1000), Path(folder) / "tokens", VOCABULARY)
        windows = RandomWindows(len(kept), length + 1, 0)
        start = time.perf_counter()
        for step in range(200):
            torch.stack([kept.read_tokens(one, length + 1) for one in windows.batch_indices(step, batch)])
        seconds = (time.perf_counter() - start) / 200
    print(f"{name}: batches come {found['ours'] / steps / seconds:.0f} times as fast as steps need them")


STEP = """
import torch
from jumok.models.gpt import GPT, GPTConfig
from jumok.training import Batch, token_loss
model = GPT(GPTConfig(vocabulary=65, length=1024, width=384, layers=6, heads=6, hidden=1536)).train()
model.checkpointing = {checkpointing}
rows = torch.randint(0, 65, (4, 1025))
# what torch imports when it checkpoints for the first time is no part of a step
token_loss(model, Batch({{"tokens": rows[:1, :16]}}, rows[:1, 1:17], 16)).backward()
mark()
token_loss(model, Batch({{"tokens": rows[:, :-1]}}, rows[:, 1:], 4096)).backward()
"""


def memory() -> None:
    """One step's peak: everything that the backward pass needs, or only what enters each block."""
    kept, again = (measure_peak_memory(STEP.format(checkpointing=checkpointing)) for checkpointing in (False, True))
    print(
        f"peak of a step, 6 layers, width 384, 4 x 1,024 tokens: {kept / 1e6:.0f} MB; with checkpointing "
        f"{again / 1e6:.0f} MB, {again / kept:.2f} of it"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="steps of the small model a round (default 100)")
    parser.add_argument("--compiled", action="store_true", help="torch.compile on both sides")
    parser.add_argument("--memory", action="store_true", help="what gradient checkpointing saves, and nothing else")
    chosen = parser.parse_args()
    if chosen.memory:
        memory()
        return
    compared(4, 4, 128, 64, 12, chosen.steps, chosen.rounds, chosen.compiled)
    compared(6, 6, 384, 256, 8, max(2, chosen.steps // 20), chosen.rounds, chosen.compiled)


if __name__ == "__main__":
    main()
