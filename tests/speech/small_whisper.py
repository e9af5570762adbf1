"""A small Whisper of transformers with random parameters, and its special tokens in Whisper's order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

from jumok.data.tokenizers.tokenizer import Tokenizer
from parity import perturb_parameters

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ 가나다라마"
LETTERS = len(ALPHABET) + 1  # one token for each letter, and one for unknown ones
TIMES = 36  # 0.00 to 0.70 s, the length of the window
SECONDS = 0.7
SIZES = {
    "num_mel_bins": 13,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 5,
    "d_model": 30,
    "encoder_ffn_dim": 41,
    "decoder_ffn_dim": 37,
    "max_source_positions": 35,
    "max_target_positions": 23,
}


def list_special_tokens(languages: tuple[str, ...]) -> list[str]:
    """Return the special tokens in Whisper's order."""
    tasks = ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    times = [f"<|{index * 0.02:.2f}|>" for index in range(TIMES)]
    start = ["<|endoftext|>", "<|startoftranscript|>"]
    return [*start, *(f"<|{code}|>" for code in languages), *tasks, *times]


def build_whisper(languages: tuple[str, ...] = ("en", "ko", "de"), **changes: Any) -> WhisperForConditionalGeneration:
    """Return a model with random parameters; without languages it is English-only."""
    torch.manual_seed(0)
    special = list_special_tokens(languages or ("en",))
    ids = {token: LETTERS + index for index, token in enumerate(special)}
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    common = {"decoder_start_token_id": start, "bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    config = WhisperConfig(vocab_size=LETTERS + len(special), **common, **{**SIZES, **changes})
    model = perturb_parameters(WhisperForConditionalGeneration(config))
    with torch.no_grad():  # otherwise random parameters repeat one letter, whatever they hear
        model.model.decoder.embed_positions.weight *= 8
        for layer in model.model.decoder.layers:
            layer.encoder_attn.out_proj.weight *= 4
    generation = {
        "max_length": config.max_target_positions,
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "is_multilingual": bool(languages),
        "suppress_tokens": [1, 7, 19, LETTERS - 1, ids["<|startofprev|>"]],
        "begin_suppress_tokens": [0, end],
        "max_initial_timestamp_index": 5,
        "alignment_heads": [[0, 1], [config.decoder_layers - 1, 4]],
    }
    if languages:
        generation["lang_to_id"] = {f"<|{code}|>": ids[f"<|{code}|>"] for code in languages}
        generation["task_to_id"] = {name: ids[f"<|{name}|>"] for name in ("transcribe", "translate")}
    model.generation_config = GenerationConfig(**common, **generation)
    return model


def save_whisper(folder: Path, languages: tuple[str, ...] = ("en", "ko", "de"), **changes: Any) -> Any:
    """Write a model and its tokenizer into a folder, and return the model."""
    model = build_whisper(languages, **changes)
    model.save_pretrained(folder)
    special = list_special_tokens(languages or ("en",))
    Tokenizer.for_characters(ALPHABET).with_special_tokens(special, {"end": "<|endoftext|>"}).save(folder)
    model.generation_config.save_pretrained(folder)
    return model
