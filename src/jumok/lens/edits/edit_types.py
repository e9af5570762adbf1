"""The five edits: frozen values that describe a change to a forward pass.

Equal edits give equal captures, and edits convert to JSON and back. In every edit, ``layer`` is a number where the
model has a single stack of attentions, else a site name ("decoder.3.cross"); None means all layers. Heads, queries,
keys and positions are one index or several; None means all of them. Negative layers and heads count from the end.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from reprlib import repr as abbreviate  # limits depth and length
from typing import Any, ClassVar

from jumok.attention import mask as masks
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture

Layer = int | str | None
Indices = int | Iterable[int] | None  # stored as an index or a sorted tuple
#: the parts of a layer, and what ``keep`` records of each
KEPT_WORDS = {"attention": "output", "mlp": "feedforward_output", "residual": "input"}
PARTS = tuple(KEPT_WORDS)
ABLATION_METHODS = ("zero", "mean", "resample")
INDEX_FIELDS = ("head", "query", "key", "batch", "positions")
MAX_INDEX = 2**31


def normalise_indices(indices: object, name: str) -> Indices:
    """Return indices in a form that can be compared: an index, a sorted tuple, or None.

    Args:
        indices: An index, several indices, or None for all.
        name: The name of the argument, for error messages.
    """
    if indices is None:
        return None
    if isinstance(indices, Iterable) and not isinstance(indices, str | Mapping):
        numbers = tuple(sorted({_read_index(index, name) for index in indices}))
        if not numbers:
            raise ArgumentError(f"{name} is empty; omit it to mean all")
        return numbers
    return _read_index(indices, name)


def _read_index(index: object, name: str) -> int:
    """Return an index as an integer; a fraction would silently become another index."""
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise ArgumentError(f"{name} must be an integer, several integers, or None for all; not {abbreviate(index)}")
    number = operator.index(index)
    if name == "head" and -MAX_INDEX <= number < 0:  # counted from the end; the number of heads is known at the site
        return number
    if not 0 <= number < MAX_INDEX:
        raise ArgumentError(f"{name} is counted from 0, so it cannot be {str(number)[:40]}")
    return number


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

    def __post_init__(self) -> None:
        """Check all fields, and sort the indices, so that equal edits compare equal."""
        for name, content in list(vars(self).items()):
            if name in INDEX_FIELDS:  # not checked before: an iterator can be read only once
                object.__setattr__(self, name, normalise_indices(content, name))
            else:
                check_field(name, content)

    def to_json(self) -> dict[str, Any]:
        """Return the edit as a dictionary for JSON; a source capture is written as its name."""
        return {"edit": type(self).__name__, **{name: _convert_to_json(field) for name, field in vars(self).items()}}

    @staticmethod
    def from_json(fields_by_name: object, captures: Mapping[str, Capture] | None = None) -> Edit:
        """Create an edit from its JSON dictionary.

        Args:
            fields_by_name: What ``to_json`` returned: a dictionary, possibly from an untrusted file.
            captures: By name, the captures that a ``Patch`` or ``Ablate`` may use as its source.

        Raises:
            ArgumentError: If the kind, a field or the source is unknown, or a field has the wrong type.
        """
        if not isinstance(fields_by_name, Mapping):
            raise ArgumentError(
                f"an edit in JSON is an object with the field edit, not a {type(fields_by_name).__name__}"
            )
        arguments = dict(fields_by_name)
        name = arguments.pop("edit", None)
        kind = Edit.kinds.get(name) if isinstance(name, str) else None
        if kind is None:
            raise ArgumentError(f"unknown edit {abbreviate(name)}; choose one of {', '.join(Edit.kinds)}")
        names = {field.name for field in fields(kind)}
        unknown = next((name for name in arguments if name not in names), None)
        if unknown is not None:
            raise ArgumentError(
                f"{kind.__name__} has no field {abbreviate(unknown)}; it has {', '.join(sorted(names))}"
            )
        source = arguments.get("source")
        if isinstance(source, str):
            if not captures or source not in captures:
                raise ArgumentError(
                    f"this edit needs the capture {source[:80]!r}; pass it in captures={{{source[:80]!r}: ...}}"
                )
            arguments["source"] = captures[source]
        if isinstance(arguments.get("mask"), str):
            arguments["mask"] = masks.parse(arguments["mask"])
        for name, content in arguments.items():
            check_field(name, content)
        return kind(**arguments)


def check_field(name: str, content: object) -> None:
    """Raise an ArgumentError if a field of an edit has a wrong type.

    Args:
        name: The field, such as "layer".
        content: Its content; it may come from a JSON file.
    """
    is_integer = hasattr(content, "__index__") and not isinstance(content, bool)
    if name in INDEX_FIELDS:
        normalise_indices(content, name)
    elif name == "layer":
        if content is not None and not isinstance(content, str) and not is_integer:
            raise ArgumentError(
                f"layer must be an integer, the name of a site, or None for all; not {abbreviate(content)}"
            )
    elif name == "seed":
        if not is_integer or not 0 <= operator.index(content) < 2**63:  # type: ignore[arg-type]
            raise ArgumentError(f"seed must be an integer from 0 to 2**63 - 1, not {abbreviate(content)}")
    elif name == "temperature":
        is_number = isinstance(content, int | float) and not isinstance(content, bool)
        if not is_number or not 0 < content < 1e30:  # type: ignore[operator]
            raise ArgumentError(f"temperature must be a finite number above 0, not {abbreviate(content)}")
    elif name in ("part", "by"):
        options = PARTS if name == "part" else ABLATION_METHODS
        if content not in options:
            raise ArgumentError(f"{name} must be one of {', '.join(options)}, not {abbreviate(content)}")
    elif name == "mask":
        if content is not None and not isinstance(content, Mask):
            raise ArgumentError(
                f"mask must be a mask of jumok.attention.mask, not a {type(content).__name__}; wrap a table of "
                "booleans in mask.given(table)"
            )
    elif name == "source" and content is not None and not isinstance(content, Capture):
        raise ArgumentError(f"source must be a capture, or its name in JSON, not {abbreviate(content)}")


def _check_part_has_heads(part: str, head: Indices) -> None:
    """Raise an ArgumentError for the head of a part that has none."""
    if head is not None and part == "mlp":
        raise ArgumentError("an MLP has no heads; omit head")
    if head is not None and part == "residual":
        raise ArgumentError("a residual stream has no heads; omit head")


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
        by: "zero"; "mean", a mean over positions; or "resample", the output at a randomly chosen position.
        seed: The seed of "resample".
        source: The capture that mean and resample read: all its texts and positions without padding, the same mean for
            every position. It must have been made with keep="output" (for an MLP "feedforward_output", for a complete
            attention "block_output"). None reads this forward pass: each position the positions of its own text that
            its self-attention may attend to. In a causal model these are itself and the earlier ones, so that the
            answer at a position never depends on later tokens, and the first position keeps its output; "resample"
            chooses among the others, not itself.
    """

    head: Indices = None
    part: str = "attention"
    by: str = "zero"
    seed: int = 0
    source: Capture | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.part == "residual":
            raise ArgumentError(
                'Ablate changes "attention" or "mlp"; the residual stream can only be replaced, by Patch'
            )
        _check_part_has_heads(self.part, self.head)


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

    @property
    def mask(self) -> Mask:
        """The mask that allows all other edges; its heads must be counted from 0."""
        return ~masks.edge(self.query, self.key, self.head, self.batch)


@dataclass(frozen=True)
class Patch(Edit):
    """Replace the output of heads, of an MLP, or the residual stream by that of another capture (activation patching).

    Attributes:
        head: The heads; None means all.
        positions: The positions to replace, each by the same position of the source; None means all, and the source
            must then have as many.
        part: "attention"; "mlp" for the layer's MLP; or "residual" for the residual stream that enters the layer's
            block (``resid_pre`` in TransformerLens; Meng et al. 2022 call this causal tracing).
        source: The capture to read; it must have been made with keep="output" (for an MLP "feedforward_output", for
            the residual stream "input").
    """

    head: Indices = None
    positions: Indices = None
    part: str = "attention"
    source: Capture | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_part_has_heads(self.part, self.head)
        if self.source is None:
            word = KEPT_WORDS[self.part]
            raise ArgumentError(f"a Patch needs another capture to read from: source=lens.run(..., keep={word!r})")


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


@dataclass(frozen=True)
class Remask(Edit):
    """Replace the mask. ``Remask()`` removes it, including causality.

    Attributes:
        head: The heads; None means all.
        mask: The new mask, for example ``mask.causal & mask.window(8)``; None allows everything.
    """

    head: Indices = None
    mask: Mask | None = None
