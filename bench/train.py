"""Compare the training speed of our loop with a plain GPT and with transformers' GPT-2 in a plain loop.

Run: python bench/train.py. Our loop includes its checks, metrics and clipping; the plain loop has AdamW, a cosine and
clipping, as it is usually written. Both run in one process and take turns.
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

from jumok.checkpoint import Loaded, run_folder
from jumok.data import token_shards
from jumok.data.batches.batch_order import RandomWindows
from jumok.models.gpt import GPT, GPTConfig
from jumok.training import Batch, Settings, TrainingTask, compute_token_loss, fit
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
        q, k, v = (
            projected.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for projected in (q, k, v)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    """The usual small GPT: learned positions, pre-norm blocks, tied output."""

    def __init__(self, layers: int, heads: int, width: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(PlainBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, VOCABULARY, bias=False)
        self.tokens.weight = self.output.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.output(self.norm(hidden))
        return logits


def train_plain(
    compute_logits: Callable[[Tensor], Tensor], model: nn.Module, text: Tensor, length: int, batch: int, steps: int
) -> None:
    """Train with the loop as it is usually written: AdamW in two groups, warm-up, clipping."""
    groups = [
        {"params": [parameter for parameter in model.parameters() if parameter.dim() >= 2], "weight_decay": 0.1},
        {"params": [parameter for parameter in model.parameters() if parameter.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    for step in range(steps):
        starts = torch.randint(len(text) - length, (batch,))
        x = torch.stack([text[i : i + length] for i in starts])
        y = torch.stack([text[i + 1 : i + 1 + length] for i in starts])
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 100)
        logits = compute_logits(x)
        loss = functional.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            loss.item()


def train_ours(model: GPT, text: Tensor, length: int, batch: int, steps: int, compiled: bool) -> None:
    """Train with ``fit``."""
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
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(len(text) - length, (batch,), generator=generator).tolist()
        rows = torch.stack([text[start : start + length + 1] for start in starts])
        return Batch({"tokens": rows[:, :-1]}, rows[:, 1:], rows[:, 1:].numel())

    task = TrainingTask(Loaded(model), settings, batches, compute_token_loss, lambda model: {"loss": 0.0})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / run_folder.CHECKPOINTS_FOLDER).mkdir()
        fit(task, Path(folder))


def compare(
    layers: int, heads: int, width: int, length: int, batch: int, steps: int, rounds: int, compiled: bool
) -> None:
    """Print the speed of our loop as a ratio to both peers, and the speed of reading batches."""
    name = f"{layers} layers, {heads} heads, width {width}, {length} tokens, batch {batch}"
    text = torch.randint(0, VOCABULARY, (1_000_000,))
    torch.manual_seed(0)
    sizes = {"length": length, "width": width, "layers": layers, "heads": heads, "hidden": 4 * width}
    ours = GPT(GPTConfig.from_json({"vocabulary": VOCABULARY, "activation": "gelu", **sizes}))
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
    shape = {"n_positions": length, "n_embd": width, "n_layer": layers, "n_head": heads}
    theirs = GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **shape, **no_dropout)
    ).train()
    plain = PlainGPT(layers, heads, width, length)
    transformers_model = torch.compile(theirs) if compiled else theirs
    peers: dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]] = {
        "plain": (plain, torch.compile(plain) if compiled else plain),
        "transformers": (theirs, lambda tokens: transformers_model(input_ids=tokens).logits),
    }
    for peer, (model, compute_logits) in peers.items():
        times = compare_interleaved(
            lambda: train_ours(ours, text, length, batch, steps, compiled),
            lambda model=model, compute=compute_logits: train_plain(compute, model, text, length, batch, steps),
            rounds,
        )
        tokens = steps * batch * length
        print(
            f"{name}, against {peer}: {times['ratio']:.2f}x [{times['low']:.2f}, {times['high']:.2f}]  "
            f"ours {tokens / times['ours']:,.0f} tokens/s, theirs {tokens / times['theirs']:,.0f}",
            flush=True,
        )
    with tempfile.TemporaryDirectory() as folder:  # the speed of reading batches
        shards = token_shards.write_shards(text[:200_000].split(1000), Path(folder) / "tokens", VOCABULARY)
        windows = RandomWindows(len(shards), length + 1, 0)
        start = time.perf_counter()
        for step in range(200):
            torch.stack([shards.read_tokens(index, length + 1) for index in windows.select_starts(step, batch)])
        seconds = (time.perf_counter() - start) / 200
    print(f"{name}: batches are read {times['ours'] / steps / seconds:.0f} times as fast as steps use them")


STEP = """
import torch
from jumok.models.gpt import GPT, GPTConfig
from jumok.training import Batch, compute_token_loss
model = GPT(GPTConfig(vocabulary=65, length=1024, width=384, layers=6, heads=6, hidden=1536)).train()
model.checkpointing = {checkpointing}
rows = torch.randint(0, 65, (4, 1025))
# the first use of checkpointing imports modules, which is not part of a step
compute_token_loss(model, Batch({{"tokens": rows[:1, :16]}}, rows[:1, 1:17], 16)).backward()
mark()
compute_token_loss(model, Batch({{"tokens": rows[:, :-1]}}, rows[:, 1:], 4096)).backward()
"""


def compare_memory() -> None:
    """Print the peak memory of a step, with and without gradient checkpointing."""
    full, recomputed = (
        measure_peak_memory(STEP.format(checkpointing=checkpointing)) for checkpointing in (False, True)
    )
    print(
        f"peak of a step, 6 layers, width 384, 4 x 1,024 tokens: {full / 1e6:.0f} MB; with checkpointing "
        f"{recomputed / 1e6:.0f} MB, {recomputed / full:.2f} of it"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="steps of the small model per round (default 100)")
    parser.add_argument("--compiled", action="store_true", help="use torch.compile on both sides")
    parser.add_argument("--memory", action="store_true", help="compare only the memory of gradient checkpointing")
    options = parser.parse_args()
    if options.memory:
        compare_memory()
        return
    compare(4, 4, 128, 64, 12, options.steps, options.rounds, options.compiled)
    compare(6, 6, 384, 256, 8, max(2, options.steps // 20), options.rounds, options.compiled)


if __name__ == "__main__":
    main()
