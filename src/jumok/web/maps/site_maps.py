"""The attention maps of a capture as the page shows them: one row for each position, also where a model attends inside
windows of an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from jumok.attention.score import ScaledDot
from jumok.errors import ArgumentError
from jumok.layers.patches import PatchLayout
from jumok.lens import Capture, Edit, KnockOut
from jumok.lens.capture.captured_attention import CapturedAttention, WeightTable, WeightTile
from jumok.lens.edits.edit_base import as_tuple
from jumok.lens.sites import SOURCE, TARGET, AxisSides
from jumok.web import messages

LocatePatches = Callable[[str], PatchLayout | None]

STACK_TITLES = {
    AxisSides(SOURCE, SOURCE): "encoder",
    AxisSides(TARGET, TARGET): "decoder",
    AxisSides(TARGET, SOURCE): "decoder, cross-attention",
}


class SiteMap:
    """The maps of one attention."""

    def __init__(self, attention: CapturedAttention) -> None:
        self.attention = attention
        self.heads, self.queries, self.keys = attention.heads, attention.queries, attention.keys

    def read_tile(self, head: int, rows: slice, columns: slice) -> WeightTile:
        """Compute a rectangle of weights, exactly; the slices have begin and end."""
        # not capture.tile: its cache of the last map must not be shared by two threads
        with torch.no_grad():
            return self.attention.tile(0, head, rows, columns).float().cpu()

    def bound_keys(self, rows: slice) -> tuple[int, int]:
        """Return the first and the end of the keys that these queries may attend to, as far as the mask says."""
        return self.attention.bound_keys(rows)


class WindowMap(SiteMap):
    """The maps of an attention inside windows of an image (Swin). Weights between patches of two windows are 0."""

    def __init__(self, attention: CapturedAttention, windows: Tensor, patches: int) -> None:
        """Locate the patches: ``windows[window, index]`` is a patch, or -1 for padding."""
        super().__init__(attention)
        self.queries = self.keys = patches
        self.windows = windows.cpu()
        self._window_of = torch.zeros(patches, dtype=torch.long)
        self._index_of = torch.zeros(patches, dtype=torch.long)
        window, index = (self.windows >= 0).nonzero().T
        self._window_of[self.windows[window, index]] = window
        self._index_of[self.windows[window, index]] = index

    def locate(self, patch: int) -> tuple[int, int]:
        """Return the window of a patch, and its index in that window."""
        return int(self._window_of[patch]), int(self._index_of[patch])

    def read_tile(self, head: int, rows: slice, columns: slice) -> WeightTile:
        begin, end, _ = rows.indices(self.queries)
        weights = torch.zeros(end - begin, self.keys)
        patches = torch.arange(begin, end)
        for window in self._window_of[begin:end].unique().tolist():
            selected = (self._window_of[begin:end] == window).nonzero().flatten()
            with torch.no_grad():
                inside = self.attention.tile(window, head, slice(None), slice(None)).float().cpu()
            is_patch = self.windows[window] >= 0
            cells = inside[self._index_of[patches[selected]]][:, is_patch]
            weights[selected[:, None], self.windows[window][is_patch][None]] = cells
        return weights[:, columns]

    def bound_keys(self, rows: slice) -> tuple[int, int]:
        return 0, self.keys


def build_site_maps(capture: Capture, locate_patches: LocatePatches) -> list[SiteMap]:
    """Return the maps of every attention of a capture, in execution order."""
    maps: list[SiteMap] = []
    for site, attention in capture.attentions.items():
        layout = locate_patches(site) if attention.batch > 1 else None
        if layout is not None and layout.windows is not None:
            maps.append(WindowMap(attention, layout.windows, layout.grid[0] * layout.grid[1]))
        else:
            maps.append(SiteMap(attention))
    return maps


def describe_sites(capture: Capture, maps: list[SiteMap], grids: Mapping[str, messages.Grid]) -> list[messages.Site]:
    """Describe every attention; attentions to patches of an image have a grid."""
    stacks = capture.sites.stacks
    stack_of = {site: number for number, names in enumerate(stacks.values()) for site in names}
    titles = _title_stacks(capture)
    rows = []
    for site, site_map in zip(capture.sites.names, maps, strict=True):
        sides = capture.sites.get_sides(site)
        is_causal, has_mask, scale = _describe_formula(site_map.attention)
        row = messages.Site(
            name=site,
            layer=capture.sites.get_layer(site),
            stack=stack_of[site],
            stack_title=titles[stack_of[site]],
            heads=site_map.heads,
            queries=site_map.queries,
            keys=site_map.keys,
            query_sequence=cast(messages.Sequence, sides.queries),
            key_sequence=cast(messages.Sequence, sides.keys),
            is_causal=is_causal,
            has_mask=has_mask,
            scale=scale,
            grid=grids.get(site),
        )
        rows.append(row)
    return rows


def _title_stacks(capture: Capture) -> list[str]:
    """Return a title for each stack of attentions; "" if there is only one."""
    stacks = capture.sites.stacks
    if len(stacks) == 1:
        return [""]
    sides = [capture.sites.get_sides(names[0]) for names in stacks.values()]
    if capture.sites.has_target and len(set(sides)) == len(sides):
        return [STACK_TITLES[side] for side in sides]
    return [".".join(word for word in pattern.split(".") if word != "#") for pattern in stacks]


def _describe_formula(attention: CapturedAttention) -> tuple[bool, bool, float | None]:
    """Return whether an attention is causal, whether it has a mask, and its scale; a table of weights has none."""
    call = attention.calls[0]
    if isinstance(call, WeightTable):
        return False, False, None
    ahead = None if call.mask is None else call.mask.band[1]
    scale = float(call.score.get_scale(call.query)) if isinstance(call.score, ScaledDot) else None
    return ahead is not None and ahead <= 0, call.mask is not None, scale


def locate_edits_in_windows(edits: Sequence[Edit], capture: Capture, maps: Sequence[SiteMap]) -> tuple[Edit, ...]:
    """Return the edits as the lens applies them. The page counts patches of the image; where a model attends inside
    windows (Swin), the lens counts windows as batch rows, and patches inside each of them."""
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
