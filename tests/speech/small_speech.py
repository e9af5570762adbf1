"""A small speech model that hears: it learns in seconds to write the letter of each tone of a recording."""

from __future__ import annotations

import math
import wave
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

import jumok
from jumok.checkpoint import Loaded
from jumok.data.audio.log_mel import RATE, compute_log_mel
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models.speech import Speech, SpeechConfig

PITCHES = {"도": 300.0, "레": 700.0, "미": 1500.0, "파": 3100.0}  # Hz
TONE_SECONDS = 0.24
SECONDS = 1.6  # the window: 80 positions
SPECIAL = ["<|end|>", "<|start|>", "<|nospeech|>", "<|notimestamps|>"]
STEPS = 120


def play_tones(names: str, gaps: tuple[float, ...] = (0.1, 0.12, 0.12)) -> Tensor:
    """Return the samples of three tones, each after a gap in seconds, and of the silence after them.

    Args:
        names: Names of tones, such as "도파미".
        gaps: The silence before each of them.
    """
    parts = []
    for name, gap in zip(names, gaps, strict=True):
        times = torch.arange(int(TONE_SECONDS * RATE)) / RATE
        parts += [torch.zeros(int(gap * RATE)), 0.4 * torch.sin(2 * math.pi * PITCHES[name] * times)]
    return torch.cat([*parts, torch.zeros(int(0.2 * RATE))])


def write_wav(path: Path, samples: Tensor) -> Path:
    """Write samples as a WAV file of 16 bits.

    Args:
        path: The file.
        samples: The samples at 16 kHz.
    """
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples.clamp(-1, 1) * 32767).round().to(torch.int16).numpy().tobytes())
    return path


@cache
def train_listener() -> Loaded:
    """Return a model that has learned to write the names of three tones, such as "도 파 미"; trained once a process."""
    tokenizer = Tokenizer.for_characters(" " + "".join(PITCHES)).with_special_tokens(SPECIAL, {"end": SPECIAL[0]})
    ids = {token: tokenizer.encode(token, special=False)[0] for token in SPECIAL}
    end, start, prompt = ids["<|end|>"], ids["<|start|>"], [ids["<|start|>"], ids["<|notimestamps|>"]]
    torch.manual_seed(0)
    config = SpeechConfig(
        mel_bins=12, source_length=round(SECONDS * 50), target_length=12, vocabulary=tokenizer.vocabulary, width=32,
        layers=1, decoder_layers=1, heads=2, decoder_heads=2, hidden=64, decoder_hidden=64, start=start, end=end,
        pad=end,
    )  # fmt: skip
    model = Speech(config)
    features, targets = _build_examples(tokenizer, config, prompt, end)
    optimizer = torch.optim.AdamW(model.parameters(), 4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS)
    for _ in range(STEPS):
        rows = torch.randint(len(features), (24,))
        logits = model(features[rows], targets[rows, :-1]).logits[:, len(prompt) - 1 :]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[rows, len(prompt) :].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    tokens = SpeechTokens(start, end, no_timestamps=ids["<|notimestamps|>"], timing_heads=((0, 0), (0, 1)))
    return Loaded(model.eval(), tokenizer, speech_tokens=tokens)


def _build_examples(tokenizer: Tokenizer, config: SpeechConfig, prompt: list[int], end: int) -> tuple[Tensor, Tensor]:
    """Return spectrograms of all triples of tones with random gaps, and the tokens that belong to them."""
    features, targets = [], []
    names = list(PITCHES)
    for index in range(4 * 64):
        triple = [names[index // 4**power % 4] for power in range(3)]
        gaps = tuple(float(gap) for gap in 0.04 + 0.16 * torch.rand(3))
        samples = play_tones("".join(triple), gaps) + 1e-3 * torch.randn(1)
        padded = torch.nn.functional.pad(samples, (0, config.frame_count * 160 - len(samples)))
        features.append(compute_log_mel(padded, config.mel_bins))
        targets.append([*prompt, *tokenizer.encode(" ".join(triple), special=False), end])
    return torch.stack(features), torch.tensor(targets)


def save_listener(folder: Path) -> Path:
    """Train the model, and write it into a folder.

    Args:
        folder: The folder, which must not exist.
    """
    return jumok.save(train_listener(), folder)
