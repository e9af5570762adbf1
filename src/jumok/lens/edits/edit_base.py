"""The base class of edits: their fields, their JSON, and how an edit changes the values of taps.

Edits are frozen values: equal edits give equal captures, and edits convert to JSON and back. In every edit, ``layer``
is a number where the model has a single stack of attentions, else a site name ("decoder.3.cross"); None means all
layers. Heads, queries, keys and positions are one index or several; None means all of them. Negative layers and heads
count from the end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from reprlib import repr as abbreviate  # limits depth and length
from typing import Any, ClassVar, SupportsIndex, TypeGuard

from torch import Tensor, nn

from jumok.attention import mask as masks
from jumok.attention.mask import Mask
from jumok.errors import ArgumentError
from jumok.lens.capture.captured_attention import CapturedAttention
from jumok.lens.capture.model_capture import Capture
from jumok.lens.sites import Sites

Layer = int | str | None
Indices = int | Iterable[int] | None  # stored as an index or a sorted tuple
INDEX_FIELDS = ("head", "query", "key", "batch", "positions", "source_positions")
MAX_INDEX = 2**31
#: the parts of a layer, and what ``keep`` records of each
KEPT_WORDS = {"attention": "output", "mlp": "feedforward_output", "residual": "input"}


@dataclass(frozen=True)
class TapCall:
    """The call of a tap at which an edit applies."""

    tap: str  # its full name ("blocks.3.attention.output")
    heads: tuple[int, ...] | None  # of the edit, counted from 0; None for all, and where the tapped value has no heads
    first_row: int  # the position of the first row; decoding computes a few rows at a time
    attentions: Mapping[str, CapturedAttention]  # of this forward pass until now, for edits that need their masks

    def change_heads(self, output: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the output ``[batch, head, query, width]`` with its edited heads changed, or changed completely."""
        if self.heads is None:
            return change(output)
        edited = output.clone()
        edited[:, self.heads] = change(output[:, self.heads])
        return edited


@dataclass(frozen=True)
class Edit:
    """Base class of the edits.

    Attributes:
        layer: The layer to edit; None means all layers.
        head: The heads to edit; None means all heads.
        kinds: The edit classes by name.
        tap_word: The last word of the taps that the edit changes, such as "mask".
    """

    kinds: ClassVar[dict[str, type[Edit]]] = {}
    tap_word: ClassVar[str] = ""
    layer: Layer = None
    head: Indices = None

    def __init_subclass__(cls) -> None:
        Edit.kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        """Check all fields, and sort the indices, so that equal edits compare equal."""
        for name, content in list(vars(self).items()):
            if name in INDEX_FIELDS:  # not checked before: an iterator can be read only once
                object.__setattr__(self, name, normalize_indices(content, name))
            else:
                self.check_field(name, content)

    @classmethod
    def check_field(cls, name: str, content: object) -> None:
        """Raise an ArgumentError if a field has a wrong type.

        Args:
            name: The name of the field.
            content: Its content, which may come from a JSON file.
        """
        if name in INDEX_FIELDS:
            normalize_indices(content, name)
        elif name == "layer" and not (content is None or isinstance(content, str) or is_integer_like(content)):
            raise ArgumentError(
                f"layer must be an integer, the name of a site, or None for all; not {abbreviate(content)}"
            )
        elif name == "part":
            check_option(name, content, KEPT_WORDS)
        elif name == "source" and not (content is None or isinstance(content, Capture)):
            raise ArgumentError(f"source must be a capture, or its name in JSON, not {abbreviate(content)}")

    @classmethod
    def parse_field(cls, name: str, content: object, captures: Mapping[str, Capture]) -> Any:
        """Return the content of a field from its JSON form: a mask from its expression, a source from its name.

        Args:
            name: The name of the field.
            content: Its content in JSON.
            captures: The captures that the edit may use, by name.
        """
        if name == "mask" and isinstance(content, str):
            return masks.parse(content)
        if name != "source" or not isinstance(content, str):
            return content
        if content not in captures:
            raise ArgumentError(
                f"this edit needs the capture {content[:80]!r}; pass it in captures={{{content[:80]!r}: ...}}"
            )
        return captures[content]

    def find_taps(self, sites: Sites, model: nn.Module) -> list[str]:
        """Return the full names of the taps that the edit changes.

        Args:
            sites: The attention sites of the model.
            model: The model, of Jumok or transformers.
        """
        return [f"{site}.{self.tap_word}" for site in sites.find_all(self.layer)]

    def apply(self, value: Any, call: TapCall) -> Any:
        """Return the changed value of a tap.

        Args:
            value: What the model passes to the tap: a mask or None, a score, or an output.
            call: The tap, the heads of the edit, and the position of the first row.
        """
        raise NotImplementedError

    @property
    def needs_masks(self) -> bool:
        """Whether ``apply`` reads the masks of the attentions of this forward pass."""
        return False

    @property
    def selects_queries(self) -> bool:
        """Whether the edit changes some queries only, which must then have positions of their own."""
        return False

    def check_rows(self, tap: str, count: int) -> None:
        """Raise an ArgumentError if the edit does not fit the rows of a tap.

        Args:
            tap: The full name of the tap.
            count: The number of rows that it had in the forward pass.
        """

    def check_capture(self, capture: Capture) -> None:
        """Raise an ArgumentError if the edit changed nothing because its positions do not exist.

        Args:
            capture: The capture of the edited forward pass.
        """

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
        for name, content in arguments.items():
            arguments[name] = kind.parse_field(name, content, captures or {})
            # also before construction: under jaxtyping's type checker, the constructor reports a wrong type itself
            kind.check_field(name, arguments[name])
        return kind(**arguments)


def check_edits(edits: Edit | Sequence[Edit]) -> list[Edit]:
    """Return the edits as a list, or raise an ArgumentError for something that is not an edit."""
    checked = [edits] if isinstance(edits, Edit) else list(edits)
    for edit in checked:
        if not isinstance(edit, Edit):
            raise ArgumentError(f"{edit!r} is not an edit; use one of {', '.join(Edit.kinds)}")
    return checked


def normalize_indices(indices: object, name: str) -> Indices:
    """Return the indices of a field in a form that can be compared: an index, a sorted tuple, or None for all."""
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
    if not is_integer_like(index):
        raise ArgumentError(f"{name} must be an integer, several integers, or None for all; not {abbreviate(index)}")
    number = operator.index(index)
    if name == "head" and -MAX_INDEX <= number < 0:  # counted from the end; the number of heads is known at the site
        return number
    if not 0 <= number < MAX_INDEX:
        raise ArgumentError(f"{name} is counted from 0, so it cannot be {str(number)[:40]}")
    return number


def as_tuple(indices: Indices) -> tuple[int, ...] | None:
    """Return indices as a tuple; None stays None."""
    if indices is None:
        return None
    return (indices,) if isinstance(indices, int) else tuple(indices)


def is_integer_like(content: object) -> TypeGuard[SupportsIndex]:
    """Return whether a field holds an integer of Python, numpy or torch."""
    return hasattr(content, "__index__") and not isinstance(content, bool)


def check_option(name: str, content: object, options: Iterable[str]) -> None:
    """Raise an ArgumentError if a field holds none of its options."""
    if content not in list(options):
        raise ArgumentError(f"{name} must be one of {', '.join(options)}, not {abbreviate(content)}")


def _convert_to_json(field: Any) -> Any:
    """Convert the value of a field: tuples to lists, masks to expressions, captures to their names."""
    if isinstance(field, tuple):
        return list(field)
    if isinstance(field, Mask):
        return repr(field)  # an expression that can be parsed; str(mask) is a drawing
    return field.name if isinstance(field, Capture) else field
