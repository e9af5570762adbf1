"""The five edits: frozen values that describe a change to a forward pass.

Equal edits give equal captures, and edits convert to JSON and back. In every edit, ``layer`` is a number where the
model has a single stack of attentions, else a site name ("decoder.3.cross"); None means all layers. Heads, queries,
keys and positions are one index or several; None means all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from jumok.attention import mask as masks
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture

Layer = int | str | None
Indices = int | Iterable[int] | None  # stored as an index or a sorted tuple
PARTS = ("attention", "mlp")
ABLATION_METHODS = ("zero", "mean", "resample")


def normalise_indices(indices: Indices, name: str) -> Indices:
    """Return indices in a form that can be compared: an index, a sorted tuple, or None.

    Args:
        indices: An index, several indices, or None for all.
        name: The name of the argument, for error messages.

    Raises:
        ArgumentError: If an index is negative, or there are none.
    """
    if indices is None:
        return None
    if isinstance(indices, int) and not isinstance(indices, bool):
        numbers: tuple[int, ...] = (indices,)
    elif isinstance(indices, Iterable) and not isinstance(indices, str):
        numbers = tuple(sorted({int(index) for index in indices}))
        if not numbers:
            raise ArgumentError(f"{name} is empty; omit it to mean all")
    else:
        raise ArgumentError(f"{name} must be a number, several numbers, or None for all; not {indices!r}")
    if numbers[0] < 0:
        raise ArgumentError(f"{name} is counted from 0, so it cannot be {numbers[0]}")
    return numbers[0] if isinstance(indices, int) else numbers


def as_tuple(indices: Indices) -> tuple[int, ...] | None:
    """Return indices as a tuple; None stays None.

    Args:
        indices: An index, several indices, or None for all.
    """
    if indices is None:
        return None
    return (indices,) if isinstance(indices, int) else tuple(indices)


@dataclass(frozen=True)
class Edit:
    """Base class of the edits.

    Attributes:
        layer: The layer to edit; None means all layers.
        kinds: The edit classes by name.
    """

    kinds: ClassVar[dict[str, type[Edit]]] = {}
    layer: Layer = None

    def __init_subclass__(cls) -> None:
        Edit.kinds[cls.__name__] = cls

    def _normalise(self, *names: str) -> None:
        """Sort the indices of these fields during construction, so that equal edits compare equal."""
        for name in names:
            object.__setattr__(self, name, normalise_indices(vars(self)[name], name))

    def to_json(self) -> dict[str, Any]:
        """Return the edit as a dictionary for JSON; a source capture is written as its name."""
        return {"edit": type(self).__name__, **{name: _convert_to_json(field) for name, field in vars(self).items()}}

    @staticmethod
    def from_json(fields_by_name: Mapping[str, Any], captures: Mapping[str, Capture] | None = None) -> Edit:
        """Create an edit from its JSON dictionary.

        Args:
            fields_by_name: What ``to_json`` returned.
            captures: By name, the captures that a ``Patch`` or ``Ablate`` may use as its source.

        Raises:
            ArgumentError: If the kind, a field or the source is unknown.
        """
        arguments = dict(fields_by_name)
        kind = Edit.kinds.get(str(arguments.pop("edit", None)))
        if kind is None:
            raise ArgumentError(f"unknown edit {fields_by_name.get('edit')!r}; choose one of {', '.join(Edit.kinds)}")
        names = {field.name for field in fields(kind)}
        unknown = next((name for name in arguments if name not in names), None)
        if unknown is not None:
            raise ArgumentError(f"{kind.__name__} has no field {unknown!r}; it has {', '.join(sorted(names))}")
        source = arguments.get("source")
        if isinstance(source, str):
            if not captures or source not in captures:
                raise ArgumentError(f"this edit needs the capture {source!r}; pass it in captures={{{source!r}: ...}}")
            arguments["source"] = captures[source]
        if isinstance(arguments.get("mask"), str):
            arguments["mask"] = masks.parse(arguments["mask"])
        try:
            return kind(**arguments)
        except TypeError as error:
            raise ArgumentError(f"{kind.__name__} cannot be built from {dict(fields_by_name)}: {error}") from None


def _convert_to_json(field: Any) -> Any:
    """Convert the value of a field: tuples to lists, masks to expressions, captures to their names."""
    if isinstance(field, tuple):
        return list(field)
    if isinstance(field, Mask):
        return repr(field)  # an expression that can be parsed; str(mask) is a drawing
    return field.name if isinstance(field, Capture) else field


@dataclass(frozen=True)
class Ablate(Edit):
    """Replace the output of heads, of a layer's attention, or of its MLP by zeros, a mean or a random sample.

    Attributes:
        head: The heads to ablate; None ablates the layer's attention completely, including the output bias.
        part: "attention", or "mlp" for the layer's MLP.
        by: "zero"; "mean", the mean over the positions and texts of ``source``; or "resample", the output at another,
            randomly chosen position of ``source``.
        seed: The seed of "resample".
        source: The capture that mean and resample read; None reads this forward pass. It must have been made with
            keep="output" (for an MLP "feedforward_output", for a complete attention "block_output").
    """

    head: Indices = None
    part: str = "attention"
    by: str = "zero"
    seed: int = 0
    source: Capture | None = None

    def __post_init__(self) -> None:
        self._normalise("head")
        if self.part not in PARTS:
            raise ArgumentError(f"part must be one of {', '.join(PARTS)}, not {self.part!r}")
        if self.by not in ABLATION_METHODS:
            raise ArgumentError(f"by must be one of {', '.join(ABLATION_METHODS)}, not {self.by!r}")
        if self.part == "mlp" and self.head is not None:
            raise ArgumentError("an MLP has no heads; omit head")


@dataclass(frozen=True)
class KnockOut(Edit):
    """Remove edges: these queries may not attend to these keys.

    The remaining weights of the row renormalise to 1; a row with no keys left has weights and output 0.

    Attributes:
        head: The heads; None means all.
        query: The query positions; None means all.
        key: The key positions; None means all.
        batch: The batch rows; None means all.
    """

    head: Indices = None
    query: Indices = None
    key: Indices = None
    batch: Indices = None

    def __post_init__(self) -> None:
        self._normalise("head", "query", "key", "batch")

    @property
    def mask(self) -> Mask:
        """The mask that allows all other edges."""
        return ~masks.edge(self.query, self.key, self.head, self.batch)


@dataclass(frozen=True)
class Patch(Edit):
    """Replace the output of heads or of an MLP by that of another capture (activation patching).

    Attributes:
        head: The heads; None means all.
        positions: The positions to replace; None means all.
        part: "attention", or "mlp" for the layer's MLP.
        source: The capture to read; it must have been made with keep="output" (for an MLP "feedforward_output").
    """

    head: Indices = None
    positions: Indices = None
    part: str = "attention"
    source: Capture | None = None

    def __post_init__(self) -> None:
        self._normalise("head", "positions")
        if self.part not in PARTS:
            raise ArgumentError(f"part must be one of {', '.join(PARTS)}, not {self.part!r}")
        if self.source is None:
            raise ArgumentError("a Patch needs another capture to read from: source=lens.run(..., keep='output')")


@dataclass(frozen=True)
class Scale(Edit):
    """Divide a head's scores by a temperature: above 1 the weights become more even, below 1 sharper.

    Biases are not divided.

    Attributes:
        head: The heads; None means all.
        temperature: The divisor, above 0.
    """

    head: Indices = None
    temperature: int | float = 1.0

    def __post_init__(self) -> None:
        self._normalise("head")
        if not self.temperature > 0:
            raise ArgumentError(f"temperature must be above 0, not {self.temperature}")


@dataclass(frozen=True)
class Remask(Edit):
    """Replace the mask. ``Remask()`` removes it, including causality.

    Attributes:
        head: The heads; None means all.
        mask: The new mask, for example ``mask.causal & mask.window(8)``; None allows everything.
    """

    head: Indices = None
    mask: Mask | None = None

    def __post_init__(self) -> None:
        self._normalise("head")
        if self.mask is not None and not isinstance(self.mask, Mask):
            raise ArgumentError(
                f"mask must be a mask of jumok.attention.mask, not a {type(self.mask).__name__}; wrap a table of "
                "booleans in mask.given(table)"
            )
