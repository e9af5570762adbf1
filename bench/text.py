"""Compare the time of text-fast with a plain GPT until both reach the same loss. Run: python bench/text.py book.txt

A plain GPT trains 2,000 steps in a plain loop, with nanoGPT's settings for a CPU. Our runs, from reading the text to
the last evaluation and checkpoint, take turns with quarters of it. Both are evaluated on the last tenth of the text.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import jumok
from jumok.training.displays import SilentDisplay
from train import PlainGPT

STEPS, BATCH, LENGTH = 2000, 12, 64


class PlainTraining:
    """nanoGPT's loop with its settings for a CPU: AdamW, warm-up in 100 steps to 1e-3, a cosine down to 1e-4."""

    def __init__(self, text: str) -> None:
        characters = sorted(set(text))
        tokens = torch.tensor([characters.index(character) for character in text])
        self.train, self.held_out = tokens[: int(0.9 * len(tokens))], tokens[int(0.9 * len(tokens)) :]
        torch.manual_seed(1)
        self.model = PlainGPT(4, 4, 128, LENGTH)
        for name, parameter in self.model.named_parameters():
            if parameter.dim() == 2:
                is_residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(8) if is_residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        matrices = [parameter for parameter in self.model.parameters() if parameter.dim() >= 2]
        vectors = [parameter for parameter in self.model.parameters() if parameter.dim() < 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
        self.step = 0

    def compute_rate(self) -> float:
        if self.step < 100:
            return 1e-3 * (self.step + 1) / 101
        return 1e-4 + 0.5 * (1 + math.cos(math.pi * (self.step - 100) / (STEPS - 100))) * 9e-4

    def run(self, steps: int) -> float:
        """Train, and return the seconds."""
        started_at = time.perf_counter()
        for _ in range(steps):
            starts = torch.randint(len(self.train) - LENGTH, (BATCH,))
            x = torch.stack([self.train[i : i + LENGTH] for i in starts])
            y = torch.stack([self.train[i + 1 : i + 1 + LENGTH] for i in starts])
            for group in self.optimizer.param_groups:
                group["lr"] = self.compute_rate()
            loss = functional.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
        return time.perf_counter() - started_at

    @torch.no_grad()
    def evaluate(self) -> float:
        """Return the loss on the last tenth of the text."""
        count = (len(self.held_out) - 1) // LENGTH * LENGTH
        x, y = self.held_out[:count].view(-1, LENGTH), self.held_out[1 : count + 1].view(-1, LENGTH)
        losses: list[Tensor] = []
        for inputs, targets in zip(x.split(64), y.split(64), strict=True):
            logits = self.model(inputs).flatten(0, 1)
            losses.append(functional.cross_entropy(logits, targets.flatten(), reduction="sum"))
        return float(torch.stack(losses).sum()) / count


class Clock(SilentDisplay):
    """Measures the seconds until the end of the training, without the report and its figures."""

    def __init__(self) -> None:
        self.started_at, self.seconds = time.perf_counter(), 0.0

    def end(self) -> None:
        self.seconds = time.perf_counter() - self.started_at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, help="a text file")
    parser.add_argument("--runs", type=int, default=3, help="number of our runs (default 3)")
    options = parser.parse_args()

    plain = PlainTraining(options.text.read_text(encoding="utf-8"))
    plain_seconds, our_seconds, our_losses = 0.0, [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.runs):
            plain_seconds += plain.run(STEPS // (options.runs + 1))
            clock = Clock()
            out = Path(folder) / str(number)
            outcome = jumok.train("text-fast", data=options.text, out=out, device="cpu", seed=number + 1, display=clock)
            our_seconds.append(clock.seconds)
            our_losses.append(outcome.report["loss"])
    plain_seconds += plain.run(STEPS - plain.step)

    runs = [f"{seconds:.0f} s to {loss:.4f}" for seconds, loss in zip(our_seconds, our_losses, strict=True)]
    print(f"plain, {STEPS} steps: {plain_seconds:.0f} s to {plain.evaluate():.4f}")
    print(f"text-fast, {len(runs)} seeds: {', '.join(runs)}")
    print(f"text-fast takes {sum(our_seconds) / len(our_seconds) / plain_seconds:.2f} of the time")


if __name__ == "__main__":
    main()
