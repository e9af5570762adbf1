"""Read the edits that the page sends, and convert edges between patches of an image to edges inside windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jumok.errors import ArgumentError
from jumok.lens import Capture, Edit, KnockOut
from jumok.lens.edits.edit_base import as_tuple

from .answers.site_maps import SiteMap, WindowMap

MAX_EDIT_TEXT = 1_000  # characters of a mask expression, or of the name of a layer


def read_page_edits(edits: Sequence[dict[str, Any]], start_edits: Sequence[Edit] = ()) -> tuple[Edit, ...]:
    """Return edits from their JSON objects, which are not trusted.

    Args:
        start_edits: The edits that the session began with. They may hold what JSON cannot express, a capture or a
            table, so an object that equals the JSON of such an edit stands for it.

    Raises:
        ArgumentError: If one is not an edit; the message says which.
    """
    converted = []
    for number, edit in enumerate(edits, 1):
        for name in ("mask", "layer"):
            if isinstance(edit.get(name), str) and len(edit[name]) > MAX_EDIT_TEXT:
                raise ArgumentError(f"edit {number}: {name} has more than {MAX_EDIT_TEXT:,} characters")
        start_edit = next((candidate for candidate in start_edits if candidate.to_json() == edit), None)
        try:
            converted.append(Edit.from_json(edit) if start_edit is None else start_edit)
        except ArgumentError as error:
            raise ArgumentError(f"edit {number}: {error}") from None
    return tuple(converted)


def locate_edits_in_windows(edits: Sequence[Edit], capture: Capture, maps: Sequence[SiteMap]) -> tuple[Edit, ...]:
    """Return the edits as the lens applies them. The page counts patches of the image; where a model attends inside
    windows (Swin), the lens counts windows as batch rows, and patches inside each of them.

    Raises:
        ArgumentError: If no window contains both ends of an edge.
    """
    if all(site_map.attention.batch == 1 for site_map in maps):
        return tuple(edits)
    map_of = dict(zip(capture.sites.names, maps, strict=True))
    located: list[Edit] = []
    for edit in edits:
        is_edge = isinstance(edit, KnockOut) and edit.batch is None and (edit.query, edit.key) != (None, None)
        if not isinstance(edit, KnockOut) or not is_edge:
            located.append(edit)
            continue
        parts: list[Edit] = []
        for site in sorted(capture.sites.find_all(edit.layer), key=capture.sites.names.index):
            parts += _locate_in_site(edit, capture.sites.get_layer(site), map_of[site])
        if not parts:
            raise ArgumentError("no window contains both ends of this edge, so there is no weight to remove")
        located += parts
    return tuple(located)


def _locate_in_site(edit: KnockOut, layer: int | str, site_map: SiteMap) -> list[KnockOut]:
    """Return the edges of an edit in each window of an attention."""
    if not isinstance(site_map, WindowMap):
        return [replace(edit, layer=layer, batch=0)] if site_map.attention.batch > 1 else [replace(edit, layer=layer)]
    queries, keys = (_group_by_window(site_map, as_tuple(indices)) for indices in (edit.query, edit.key))
    windows = set(range(len(site_map.windows)))
    windows &= windows if queries is None else queries.keys()
    windows &= windows if keys is None else keys.keys()
    return [
        replace(
            edit,
            layer=layer,
            query=None if queries is None else queries[window],
            key=None if keys is None else keys[window],
            batch=window,
        )
        for window in sorted(windows)
    ]


def _group_by_window(site_map: WindowMap, patches: tuple[int, ...] | None) -> dict[int, list[int]] | None:
    """Return the patches of each window as indices inside the window; None, all patches, stays None."""
    if patches is None:
        return None
    groups: dict[int, list[int]] = {}
    for patch in patches:
        if patch >= site_map.queries:
            raise ArgumentError(f"the image has {site_map.queries} patches, counted from 0; {patch} is not one of them")
        window, index = site_map.locate(patch)
        groups.setdefault(window, []).append(index)
    return groups
