"""How long text-fast takes to the loss that nanoGPT's setting for a CPU reaches. Run: python bench/text.py book.txt

A plain GPT in a plain loop, 2,000 steps in quarters, and our runs between them, from the text to the last evaluation
and checkpoint. Both are judged by the whole last tenth of the text.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from jumok.recipes import TrainingRequest, start_run
from jumok.training.progress import SilentDisplay
from train import PlainGPT

STEPS, BATCH, LENGTH = 2000, 12, 64


class Plain:
    """nanoGPT's loop with its settings for a CPU: AdamW, 100 steps up to 1e-3, a cosine down to 1e-4."""

    def __init__(self, text: str) -> None:
        letters = sorted(set(text))
        tokens = torch.tensor([letters.index(letter) for letter in text])
        self.train, self.held_out = tokens[: int(0.9 * len(tokens))], tokens[int(0.9 * len(tokens)) :]
        torch.manual_seed(1)
        self.model = PlainGPT(4, 4, 128, LENGTH)
        for name, parameter in self.model.named_parameters():
            if parameter.dim() == 2:
                small = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(8) if small else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        decayed = [one for one in self.model.parameters() if one.dim() >= 2]
        rest = [one for one in self.model.parameters() if one.dim() < 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
        self.step = 0

    def rate(self) -> float:
        if self.step < 100:
            return 1e-3 * (self.step + 1) / 101
        return 1e-4 + 0.5 * (1 + math.cos(math.pi * (self.step - 100) / (STEPS - 100))) * 9e-4

    def go(self, steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            starts = torch.randint(len(self.train) - LENGTH, (BATCH,))
            x = torch.stack([self.train[i : i + LENGTH] for i in starts])
            y = torch.stack([self.train[i + 1 : i + 1 + LENGTH] for i in starts])
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate()
            loss = functional.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
        return time.perf_counter() - begin

    @torch.no_grad()
    def loss(self) -> float:
        count = (len(self.held_out) - 1) // LENGTH * LENGTH
        x, y = self.held_out[:count].view(-1, LENGTH), self.held_out[1 : count + 1].view(-1, LENGTH)
        losses: list[Tensor] = []
        for rows, answers in zip(x.split(64), y.split(64), strict=True):
            losses.append(functional.cross_entropy(self.model(rows).flatten(0, 1), answers.flatten(), reduction="sum"))
        return float(torch.stack(losses).sum()) / count


class Clock(SilentDisplay):
    """From now to the end of the training; the report and its pictures come after it."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.seconds = time.perf_counter(), 0.0

    def end(self) -> None:
        self.seconds = time.perf_counter() - self.began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, help="a text file")
    parser.add_argument("--runs", type=int, default=3, help="of ours (default 3)")
    chosen = parser.parse_args()
    plain = Plain(chosen.text.read_text(encoding="utf-8"))
    theirs, ours, losses = 0.0, [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(chosen.runs):
            theirs += plain.go(STEPS // (chosen.runs + 1))
            place = Path(folder) / str(number)
            clock = Clock()
            start_run(TrainingRequest("text-fast", place, str(chosen.text), changes={"seed": number + 1}), display=clock)
            ours.append(clock.seconds)
            losses.append(json.loads((place / "report.json").read_text())["loss"])
    theirs += plain.go(STEPS - plain.step)
    told = ", ".join(f"{seconds:.0f} s to {loss:.4f}" for seconds, loss in zip(ours, losses, strict=True))
    print(f"plain, {STEPS} steps: {theirs:.0f} s to {plain.loss():.4f}; text-fast, {len(ours)} seeds: {told}")
    print(f"text-fast takes {sum(ours) / len(ours) / theirs:.2f} of the time")


if __name__ == "__main__":
    main()
