"""Describe a token in every head: the largest weights of its row and of its column."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from jumok.draw.pooling import Weights
from jumok.web.inspection import Inspection
from jumok.web.maps.site_maps import SiteMap
from jumok.web.maps.tiles import Check, read_column
from jumok.web.messages import KeyColumn, QueryRow, Token
from jumok.web.opened_model import Pass

TOP = 5  # keys or queries of a token that are listed for each head
#: with more cells, a column is computed from the log-sum-exp that the kernel returned instead of complete rows
MAX_FULL_ROWS = 2**16


def describe_token(inspection: Inspection, shown: Pass, sequence: str, position: int, check: Check) -> Token:
    """Return the rows and the columns of one position of the source or the target in all heads."""
    as_query: list[QueryRow] = []
    as_key: list[KeyColumn] = []
    for index, (site, site_map) in enumerate(zip(inspection.sites, shown.maps, strict=True)):
        check()
        sides = shown.capture.sites.get_sides(site)
        index_in_site = inspection.convert_position(site, position)
        if sides.queries == sequence and index_in_site < site_map.queries:
            as_query += _describe_rows(site_map, index, index_in_site)
        if sides.keys == sequence and index_in_site < site_map.keys:
            as_key += _describe_columns(site_map, index, index_in_site, check)
    return Token(as_query, as_key)


def _describe_rows(site_map: SiteMap, site: int, query: int) -> list[QueryRow]:
    rows = []
    for head in range(site_map.heads):
        weights = site_map.read_tile(head, slice(query, query + 1), slice(0, site_map.keys))[0]
        entropy = float(torch.special.entr(weights.double()).sum())
        rows.append(QueryRow(site, head, entropy, _list_largest(weights.numpy())))
    return rows


def _describe_columns(site_map: SiteMap, site: int, key: int, check: Check) -> list[KeyColumn]:
    columns = _compute_columns(site_map, key)
    rows = []
    for head in range(site_map.heads):
        check()
        weights = read_column([site_map], head, key, check) if columns is None else columns[head]
        received = float(weights.sum(dtype=numpy.float64))
        rows.append(KeyColumn(site, head, _list_largest(weights), received))
    return rows


def _compute_columns(site_map: SiteMap, key: int) -> Weights | None:
    """Return the column of a key in all heads ``[head, query]``; None if complete rows must be computed for it.

    exp(score - log-sum-exp) needs the scores of this key only. The kernel's log-sum-exp is float32, so the weights are
    exact to about 1e-6.
    """
    calls = site_map.attention.calls
    if type(site_map) is not SiteMap or len(calls) != 1 or site_map.queries * site_map.keys <= MAX_FULL_ROWS:
        return None
    (call,) = calls
    if call.logsumexp is None:
        return None
    everything, column = slice(None), slice(key, key + 1)
    with torch.no_grad():
        scores = call.score.evaluate(call.query[:1].float(), call.key[:1, :, column].float())[0, :, :, 0]
        if call.bias is not None:
            biases = [call.evaluate_bias(0, head, everything, column)[:, 0] for head in range(site_map.heads)]
            scores = scores + torch.stack(biases).to(scores)
        total = call.logsumexp[0].to(scores)
        weights: Tensor = torch.exp(scores - total).masked_fill(total == -torch.inf, 0.0)
        if call.mask is not None:
            allowed = [call.evaluate_mask(0, head, everything, column)[:, 0] for head in range(site_map.heads)]
            weights = weights.masked_fill(~torch.stack(allowed), 0.0)
    return weights.float().cpu().numpy()


def _list_largest(weights: Weights) -> list[tuple[int, float]]:
    """Return the indices of the largest weights with the weights, the largest first; weights of 0 are left out."""
    count = min(TOP, len(weights))
    largest = numpy.argpartition(-weights, count - 1)[:count]
    largest = largest[numpy.argsort(-weights[largest], kind="stable")]
    return [(int(index), float(weights[index])) for index in largest if weights[index] > 0]
