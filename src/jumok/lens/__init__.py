"""The lens: see every attention of a model exactly, at any length, and measure whether it matters."""

from .capture.capture import Overview, Run, Source
from .describe.head_kinds import Kind, induction_score, kinds, repeated
from .describe.head_profile import Profile, profile
from .describe.weight_checks import check, flow, future, rollout
from .edits.edit_types import Ablate, Edit, KnockOut, Patch, Remask, Scale
from .effects.direct_effects import contributions, direct, logit_lens
from .effects.effect_table import Effect, Effects
from .effects.measure import effect
from .lens import Lens

__all__ = [
    "Ablate",
    "Edit",
    "Effect",
    "Effects",
    "Kind",
    "KnockOut",
    "Lens",
    "Overview",
    "Patch",
    "Profile",
    "Remask",
    "Run",
    "Scale",
    "Source",
    "check",
    "contributions",
    "direct",
    "effect",
    "flow",
    "future",
    "induction_score",
    "kinds",
    "logit_lens",
    "profile",
    "repeated",
    "rollout",
]
