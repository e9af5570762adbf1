"""Build inputs that are neither texts, images nor sounds, and inputs that only a few models have, by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .config_tree import find_field
from .image_inputs import GRID, draw_noise
from .text_inputs import BATCH, build_tokens

LENGTH = 5


def build_other_inputs(config: PreTrainedConfig, names: set[str], length: int) -> dict[str, Tensor]:
    """Build the inputs in ``names`` that no other module builds.

    Args:
        config: The config of the model.
        names: The parameters of the model's ``forward``.
        length: The number of text tokens.
    """
    inputs = {name: build(config, length) for name, build in BUILDERS.items() if name in names}
    if "past_values" in names:
        inputs |= _build_time_series(config, names)
    return inputs


def _build_time_series(config: PreTrainedConfig, names: set[str]) -> dict[str, Tensor]:
    """Build a history of numbers with the features of each time step."""
    context = int(find_field(config, "context_length") or 16)
    future = int(find_field(config, "prediction_length") or 6)
    lags = find_field(config, "lags_sequence")
    if lags is None:
        channels = int(find_field(config, "num_input_channels") or 0)
        shape = (BATCH, context, channels) if channels else (BATCH, context)
        inputs: dict[str, Tensor] = {"past_values": draw_noise(*shape)}
        if "past_values_padding" in names:
            inputs["past_values_padding"] = torch.zeros(BATCH, context, dtype=torch.long)
        if "freq" in names:
            inputs["freq"] = torch.zeros(BATCH, 1, dtype=torch.long)
        return inputs
    past, features = context + max(lags), int(find_field(config, "num_time_features") or 1)
    return {
        "past_values": draw_noise(BATCH, past),
        "past_time_features": draw_noise(BATCH, past, features),
        "past_observed_mask": torch.ones(BATCH, past),
        "future_values": draw_noise(BATCH, future),
        "future_time_features": draw_noise(BATCH, future, features),
    }


def _get_width(config: PreTrainedConfig) -> int:
    return int(find_field(config, "hidden_size", "d_model"))


def _build_patches(config: PreTrainedConfig, length: int) -> Tensor:
    """Build the patches of Pix2Struct: row, column and pixels of each patch."""
    size = int(find_field(config, "patch_embed_hidden_size") or 768)
    positions = torch.arange(GRID * GRID)
    grid = torch.stack([positions // GRID + 1, positions % GRID + 1], -1).float().expand(BATCH, -1, -1)
    return torch.cat([grid, draw_noise(BATCH, GRID * GRID, size)], -1)


def _count_video_patches(config: PreTrainedConfig) -> int:
    size, patch = find_field(config, "image_size"), find_field(config, "patch_size")
    frames, tubelet = find_field(config, "num_frames"), find_field(config, "tubelet_size")
    return (frames // tubelet) * (size // patch) ** 2


BUILDERS: dict[str, Callable[[Any, int], Tensor]] = {
    "actions": lambda config, length: draw_noise(BATCH, LENGTH, find_field(config, "act_dim", "max_action_dim")),
    "aspect_ratio_ids": lambda config, length: torch.ones(BATCH, 1, dtype=torch.long),
    "aspect_ratio_mask": lambda config, length: torch.ones(
        BATCH, 1, find_field(config, "max_num_tiles"), dtype=torch.long
    ),
    "audio_mel": lambda config, length: draw_noise(BATCH, 64, config.input_feat_size),
    "audio_mel_mask": lambda config, length: torch.zeros(BATCH, 64, dtype=torch.bool),
    "flattened_patches": _build_patches,
    "qformer_attention_mask": lambda config, length: torch.ones(BATCH, length, dtype=torch.long),
    "qformer_input_ids": lambda config, length: build_tokens(config, length, 5, 60),
    "query_embeds": lambda config, length: draw_noise(BATCH, LENGTH, config.hidden_size),
    "returns_to_go": lambda config, length: draw_noise(BATCH, LENGTH, 1),
    "rewards": lambda config, length: draw_noise(BATCH, LENGTH, 1),
    "states": lambda config, length: draw_noise(BATCH, LENGTH, config.state_dim),
    "task_inputs": lambda config, length: build_tokens(config, int(find_field(config, "task_seq_len")), 5, 60),
    "timesteps": lambda config, length: torch.arange(LENGTH).expand(BATCH, -1),
    "visual_feats": lambda config, length: draw_noise(BATCH, LENGTH, config.visual_feat_dim),
    "visual_pos": lambda config, length: draw_noise(BATCH, LENGTH, config.visual_pos_dim),
}
