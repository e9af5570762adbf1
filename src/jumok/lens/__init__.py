"""The lens: record every attention of a model exactly, at any length, edit it, and measure whether it matters."""

from .capture.model_capture import AttendedKey, Capture, Overview
from .describe.head_kinds import HeadKind, classify_heads, sample_repeated_tokens, score_induction
from .describe.head_profile import HeadProfile, profile_heads
from .describe.image_weights import save_image_weights
from .describe.weight_checks import (
    check_weights,
    compute_attention_flow,
    compute_attention_rollout,
    sum_future_weights,
)
from .edits.edit_base import Edit
from .edits.edit_types import Ablate, KnockOut, Patch, Remask, Scale
from .effects.direct_effects import apply_logit_lens, compute_direct_effects, compute_head_contributions
from .effects.effect_table import Effect, Effects
from .effects.measure import effect
from .effects.patch_sweep import PatchSweep, sweep_patches
from .generation import Generation
from .lens import Lens

__all__ = [
    "Ablate",
    "AttendedKey",
    "Capture",
    "Edit",
    "Effect",
    "Effects",
    "Generation",
    "HeadKind",
    "HeadProfile",
    "KnockOut",
    "Lens",
    "Overview",
    "Patch",
    "PatchSweep",
    "Remask",
    "Scale",
    "apply_logit_lens",
    "check_weights",
    "classify_heads",
    "compute_attention_flow",
    "compute_attention_rollout",
    "compute_direct_effects",
    "compute_head_contributions",
    "effect",
    "profile_heads",
    "sample_repeated_tokens",
    "save_image_weights",
    "score_induction",
    "sum_future_weights",
    "sweep_patches",
]
