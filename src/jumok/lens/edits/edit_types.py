"""Edits: frozen values that say what to change while a model runs. Equal edits give equal runs; JSON in and out.

``layer`` is a number where the model has one stack of attentions, else a site ("decoder.3.cross"); None means all.
Heads, queries and keys are numbers or several; None means all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from jumok.attention import mask as masks
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError

Layer = int | str | None
Indices = int | Iterable[int] | None  # kept as a number or a sorted tuple
PARTS = ("attention", "mlp")
ABLATION_METHODS = ("zero", "mean", "resample")


def several(given: object, name: str) -> Indices:
    """Numbers as a value that can be compared: several become a sorted tuple."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        numbers: tuple[int, ...] = () if given is None else (given,)
    elif isinstance(given, Iterable) and not isinstance(given, str):
        numbers = tuple(sorted({int(one) for one in given}))
        if not numbers:
            raise ArgumentError(f"{name} is empty; leave it out to mean all")
    else:
        raise ArgumentError(f"{name} must be a number, several numbers, or None for all; not {given!r}")
    if numbers and numbers[0] < 0:
        raise ArgumentError(f"{name} is counted from 0, and {numbers[0]} is less")
    return None if given is None else numbers[0] if isinstance(given, int) else numbers


def as_tuple(places: Indices) -> tuple[int, ...] | None:
    return (places,) if isinstance(places, int) else None if places is None else tuple(places)


@dataclass(frozen=True)
class Edit:
    """What all edits share: a place, and a form as JSON."""

    kinds: ClassVar[dict[str, type[Edit]]] = {}
    layer: Layer = None

    def __init_subclass__(cls) -> None:
        Edit.kinds[cls.__name__] = cls

    def to_json(self) -> dict[str, Any]:
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return {"edit": type(self).__name__, **{name: _plain(value) for name, value in told.items()}}

    @staticmethod
    def from_json(told: Mapping[str, Any], runs: Mapping[str, Any] | None = None) -> Edit:
        """``runs``: by name, those that a Patch takes from."""
        given = dict(told)
        kind = Edit.kinds.get(str(given.pop("edit", None)))
        if kind is None:
            raise ArgumentError(f"an edit is one of {', '.join(Edit.kinds)}, not {told.get('edit')!r}")
        known = {one.name for one in fields(kind)}
        odd = next((name for name in given if name not in known), None)
        if odd is not None:
            raise ArgumentError(f"{kind.__name__} has no {odd!r}; it has {', '.join(sorted(known))}")
        source = given.get("source")
        if isinstance(source, str):
            if not runs or source not in runs:
                raise ArgumentError(f"this edit takes from the run {source!r}, which was not given")
            given["source"] = runs[source]
        if isinstance(given.get("mask"), str):
            given["mask"] = masks.parse(given["mask"])
        try:
            return kind(**given)
        except TypeError as wrong:
            raise ArgumentError(f"{kind.__name__} cannot be made of {dict(told)}: {wrong}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mask):
        return repr(value)  # its words, which can be read again; its str is a drawing
    return getattr(value, "name", value) if not isinstance(value, str | int | float | None) else value


@dataclass(frozen=True)
class Ablate(Edit):
    """Silence a head, a layer's whole attention (no head), or its MLP (part="mlp").

    by: "zero"; "mean", over the positions and texts of ``source`` (this run where there is none); "resample", what the
    same head gave at another position, drawn with ``seed``. A ``source`` must have kept it: lens.run(...,
    keep=("output",)); for an MLP keep "feedforward_output", for a whole attention "block_output".
    """

    head: Indices = None
    part: str = "attention"
    by: str = "zero"
    seed: int = 0
    source: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", several(self.head, "head"))
        if self.part not in PARTS:
            raise ArgumentError(f"part must be one of {', '.join(PARTS)}, not {self.part!r}")
        if self.by not in ABLATION_METHODS:
            raise ArgumentError(f"by must be one of {', '.join(ABLATION_METHODS)}, not {self.by!r}")
        if self.part == "mlp" and self.head is not None:
            raise ArgumentError("an MLP has no heads; leave head out")


@dataclass(frozen=True)
class KnockOut(Edit):
    """Cut edges: these queries may not attend to these keys. The row is shared out among the rest, and is 0 if nothing
    is left. Positions, as masks have them."""

    head: Indices = None
    query: Indices = None
    key: Indices = None
    batch: Indices = None

    def __post_init__(self) -> None:
        for name in ("head", "query", "key", "batch"):
            object.__setattr__(self, name, several(getattr(self, name), name))

    @property
    def mask(self) -> Mask:
        """What is left."""
        return ~masks.edge(self.query, self.key, self.head, self.batch)


@dataclass(frozen=True)
class Patch(Edit):
    """Bring in what another run had at a place: a head's output (or all heads'), or the MLP's output (part="mlp"), at
    these positions or everywhere. ``source`` must have kept it: lens.run(..., keep=("output",)), for an MLP
    keep=("feedforward_output",)."""

    head: Indices = None
    positions: Indices = None
    part: str = "attention"
    source: Any = None

    def __post_init__(self) -> None:
        for name in ("head", "positions"):
            object.__setattr__(self, name, several(getattr(self, name), name))
        if self.part not in PARTS:
            raise ArgumentError(f"part must be one of {', '.join(PARTS)}, not {self.part!r}")
        if self.source is None:
            raise ArgumentError("a Patch takes from another run: source=...")


@dataclass(frozen=True)
class Scale(Edit):
    """Divide a head's scores by a temperature: above 1 it looks more evenly, below 1 more sharply. Biases stay."""

    head: Indices = None
    temperature: int | float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", several(self.head, "head"))
        if not self.temperature > 0:
            raise ArgumentError(f"a temperature must be above 0, not {self.temperature}")


@dataclass(frozen=True)
class Remask(Edit):
    """Replace the mask: Remask() takes it away, with it causality; Remask(mask=mask.causal & mask.window(8)) adds a
    window. ``head``: only there."""

    head: Indices = None
    mask: Mask | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", several(self.head, "head"))
        if self.mask is not None and not isinstance(self.mask, Mask):
            raise ArgumentError(
                f"mask must be one of jumok.attention.mask, not a {type(self.mask).__name__}; a table of booleans is "
                "mask.given(table)"
            )
