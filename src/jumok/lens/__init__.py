"""The lens: see every attention of a model exactly, at any length, and measure whether it matters."""

from .capture.capture import AttendedKey, Capture, Overview
from .describe.head_kinds import HeadKind, classify_heads, draw_repeated_tokens, score_induction
from .describe.head_profile import HeadProfile, profile
from .describe.weight_checks import check, compute_rollout, flow, future
from .edits.edit_types import Ablate, Edit, KnockOut, Patch, Remask, Scale
from .effects.direct_effects import apply_logit_lens, compute_head_contributions, direct
from .effects.effect_table import Effect, Effects
from .effects.measure import effect
from .lens import Lens

__all__ = [
    "Ablate",
    "AttendedKey",
    "Capture",
    "Edit",
    "Effect",
    "Effects",
    "HeadKind",
    "HeadProfile",
    "KnockOut",
    "Lens",
    "Overview",
    "Patch",
    "Remask",
    "Scale",
    "apply_logit_lens",
    "check",
    "classify_heads",
    "compute_head_contributions",
    "compute_rollout",
    "direct",
    "draw_repeated_tokens",
    "effect",
    "flow",
    "future",
    "profile",
    "score_induction",
]
