"""Build waveforms and spectrograms as the config of an audio model describes them."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .config_tree import find_field
from .image_inputs import draw_noise
from .text_inputs import BATCH

SAMPLES = 6400
FRAMES = 96


def list_spectrograms(config: PreTrainedConfig, names: set[str]) -> list[dict[str, Tensor]]:
    """List the ways in which a model may expect ``input_features``.

    Args:
        config: The config of the model.
        names: The parameters of the model's ``forward``.
    """
    audio = next(
        (
            part
            for part in (
                getattr(config, key, None) for key in ("audio_config", "audio_encoder_config", "encoder_config")
            )
            if part
        ),
        config,
    )
    bins = next(
        (
            entry
            for entry in (
                find_field(
                    part,
                    "num_mel_bins",
                    "n_mel_bins",
                    "n_mels",
                    "input_feat_per_channel",
                    "input_feat_size",
                    "feature_projection_input_dim",
                    "mel_bins",
                    "input_size",
                    "feature_size",
                    "num_mels",
                    "input_dim",
                )
                for part in (audio, config)
            )
            if isinstance(entry, int)
        ),
        80,
    )
    limit = find_field(audio, "max_source_positions")
    frames = 2 * limit if isinstance(limit, int) else FRAMES
    layouts = [
        draw_noise(BATCH, bins, frames),
        draw_noise(BATCH, frames, bins),
        draw_noise(BATCH, 1, frames, bins),
        draw_noise(BATCH, 1, bins, frames),
    ]
    inputs = []
    for layout in layouts:
        masks = {}
        for name in (
            "input_features_mask",
            "feature_attention_mask",
            *(("attention_mask",) if "input_ids" not in names else ()),
        ):
            if name in names:
                masks[name] = torch.ones(BATCH, frames, dtype=torch.long)
                if "input_ids" not in names:  # in a text, all sounds have the same number of placeholders
                    masks[name][1, -frames // 4 :] = 0
        for variant in (
            masks,
            {name: mask.bool() for name, mask in masks.items()},
            {},
        ):
            inputs.append({"input_features": layout, **variant})
    return inputs


def list_waveforms(config: PreTrainedConfig, names: set[str]) -> list[dict[str, Tensor]]:
    """List the ways in which a model may expect ``input_values``.

    Args:
        config: The config of the model.
        names: The parameters of the model's ``forward``.
    """
    bins = find_field(config, "num_mel_bins")
    length = find_field(config, "max_length")
    waveform = draw_noise(BATCH, SAMPLES)
    mask = torch.ones(BATCH, SAMPLES, dtype=torch.long)
    mask[1, -SAMPLES // 4 :] = 0
    inputs: list[dict[str, Tensor]] = []
    if "attention_mask" in names and "input_ids" not in names:
        inputs.append({"input_values": waveform, "attention_mask": mask})
    if "padding_mask" in names:
        inputs += [
            {"input_values": waveform[:, None], "padding_mask": mask.bool()},
            {"input_values": waveform[:, None], "padding_mask": mask[:, None].bool()},
        ]
    inputs += [{"input_values": waveform[:, None]}, {"input_values": waveform}]
    if isinstance(bins, int):
        frames = length if isinstance(length, int) else FRAMES
        inputs += [
            {"input_values": draw_noise(BATCH, frames, bins)},
            {"input_values": draw_noise(BATCH, 1, frames, bins)},
        ]
    return inputs
