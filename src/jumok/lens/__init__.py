"""The lens: see every attention of a model exactly, at any length, and measure whether it matters."""

from .direct import contributions, direct, logit_lens
from .edits import Ablate, Edit, KnockOut, Patch, Remask, Scale
from .effects import Effect, Effects
from .lens import Lens
from .measure import effect
from .patterns import Kind, induction_score, kinds, repeated
from .profile import Profile, profile
from .run import Overview, Run, Source
from .summary import check, flow, future, rollout

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
