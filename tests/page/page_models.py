"""Models for the tests of the page, written into folders: a long context, an image model, a model of transformers."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import torch

import jumok
from jumok.data.images.preparation import Preparation
from jumok.models import GPT, ViT
from jumok.models.gpt import GPTConfig
from jumok.models.vit import ViTConfig

LONG = 16_384


def save_long_model(folder: Path) -> Path:
    """Write an untrained GPT that reads 16,384 bytes.

    Args:
        folder: The folder, which must not exist.
    """
    torch.manual_seed(0)
    config = GPTConfig(vocabulary=256, length=LONG, width=64, layers=2, heads=2, hidden=128, positions="rotary")
    return jumok.save(GPT(config), folder, tokenizer=jumok.load("tiny").require_tokenizer())


def save_wide_model(folder: Path) -> Path:
    """Write an untrained GPT with 16 heads in each of its 6 layers.

    Args:
        folder: The folder, which must not exist.
    """
    torch.manual_seed(0)
    config = GPTConfig(vocabulary=256, length=256, width=64, layers=6, heads=16, hidden=64, positions="rotary")
    return jumok.save(GPT(config), folder, tokenizer=jumok.load("tiny").require_tokenizer())


def save_image_model(folder: Path) -> Path:
    """Write an untrained ViT that reads 4 x 4 patches and tells three classes apart.

    Args:
        folder: The folder, which must not exist.
    """
    torch.manual_seed(0)
    size, patch = (32, 32), (8, 8)
    config = ViTConfig(image=size, patch=patch, channels=3, width=16, layers=2, heads=2, hidden=16, classes=3)
    preparation = Preparation(size, mean=(0.5,) * 3, std=(0.5,) * 3)
    return jumok.save(ViT(config), folder, preparation=preparation, labels=("cat", "dog", "새"))


def save_transformers_model(folder: Path) -> Path:
    """Write an untrained GPT-NeoX of transformers, which none of Jumok's families reads, with the tokenizer of tiny.

    Args:
        folder: The folder, which must not exist.
    """
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=256, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32
    )
    GPTNeoXForCausalLM(config).save_pretrained(folder)
    tokenizer_file = folder / "tokenizer.json"
    tokenizer_file.write_bytes((files("jumok") / "checkpoint" / "tiny" / "tokenizer.json").read_bytes())
    PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file)).save_pretrained(folder)
    return folder
