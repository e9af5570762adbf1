"""Choose the head that the page shows first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jumok.lens.sites import SOURCE, TARGET, AxisSides

if TYPE_CHECKING:
    from jumok.web.inspection import Inspection

    from .sound import Sound

MAX_KEYS = 4096  # the rows of longer inputs would delay the first picture


def choose_selection(inspection: Inspection) -> dict[str, Any] | None:
    """Return the head whose last row has the largest weight on a key other than the first one and the query itself.

    Most heads put most of their weight on the first token (an attention sink) or on the token itself, so the last head
    of a model is rarely a good first picture. Of a model that answers, a cross-attention is shown; of one that reads
    audio, the head that follows it in time with the largest weight for the first word.

    Returns:
        The indices of the site and head with the query and its key; None if the input is too long or too short.
    """
    if inspection.sound is not None and inspection.sound.words:
        return _choose_timing_head(inspection, inspection.sound)
    sites = inspection.clean.capture.sites
    # the first position of an image is its class token
    query_index = 0 if inspection.picture is not None and not sites.has_target else -1
    best: dict[str, Any] | None = None
    largest = 0.0
    for index, (site, site_map) in enumerate(zip(inspection.sites, inspection.clean.maps, strict=True)):
        sides = sites.get_sides(site)
        is_shown = sides == AxisSides(TARGET, SOURCE) if sites.has_target else sides.queries == SOURCE
        if not is_shown or site_map.keys > MAX_KEYS:
            continue
        query = query_index % site_map.queries
        for head in range(site_map.heads):
            row = site_map.read_tile(head, slice(query, query + 1), slice(0, site_map.keys))[0].clone()
            if sides.keys == sides.queries:
                row[0] = row[query] = 0
            weight, key = row.max(0)
            if float(weight) > largest:
                largest = float(weight)
                best = {"site": index, "head": head, "query": query, "key": int(key)}
    return best


def _choose_timing_head(inspection: Inspection, sound: Sound) -> dict[str, Any]:
    """Return the head that listens most sharply when the first word is written."""
    query = sound.words[0].rows.start
    rows = {}
    for site, head in sound.heads:
        index = inspection.sites.index(site)
        site_map = inspection.clean.maps[index]
        rows[index, head] = site_map.read_tile(head, slice(query, query + 1), slice(0, sound.positions))[0]
    (site_index, head), row = max(rows.items(), key=lambda item: float(item[1].max()))
    return {"site": site_index, "head": head, "query": query, "key": int(row.argmax())}
