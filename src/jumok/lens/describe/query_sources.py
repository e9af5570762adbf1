"""Where one token looks: its keys in every head, ranked by weight, and which of two words the heads prefer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jumok import defaults
from jumok.data.tokenizers.token_labels import VISIBLE
from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture

from .table_rows import Row, SideLabels, label_weights

LABELS_IN_ERROR = 30


class QueryPosition(NamedTuple):
    """The token whose sources are listed."""

    position: int
    side: str  # "source" or "target"
    label: str
    occurrences: list[int]  # all positions of this text on this side, if it was selected by its text
    part_of: str = ""  # the word that was selected, if it has several tokens and this is the last


class QuerySources(NamedTuple):
    """The sources of one token."""

    heads: list[Row]  # each head with its keys, ranked by weight; the heads with the largest weights first
    preferred: list[Row]  # each key that some head prefers, with the number of these heads; the most frequent first


def find_query(
    capture: Capture, labels: SideLabels, sites: Sequence[str], query: str, by_words: bool = False
) -> QueryPosition:
    """Find the token that a person means: a position (negative: from the end), a token's text, or a word.

    Of several occurrences of a text, the last is taken. With ``by_words``, positions count words instead of tokens.
    """
    sides = list(dict.fromkeys(capture.sites.get_sides(site).queries for site in sites))
    names_by_side = {side: _list_names(labels, side, by_words) for side in sides}
    side = sides[-1]  # the target follows the source
    unit = "word" if by_words else "token"
    if query.removeprefix("-").isdecimal():
        names, position = names_by_side[side], int(query)
        if not -len(names) <= position < len(names):
            raise ArgumentError(f"there is no {unit} {position}; the {side} has {unit}s 0 to {len(names) - 1}")
        position %= len(names)
        return QueryPosition(position, side, names[position], [position])

    text = _strip_spaces(query)
    for side in reversed(sides):
        names = names_by_side[side]
        occurrences = [position for position, name in enumerate(names) if text and _strip_spaces(name) == text]
        if occurrences:
            return QueryPosition(occurrences[-1], side, names[occurrences[-1]], occurrences)
        words = None if by_words else labels.get_words(side)
        occurrences = [tokens[-1] for word, tokens in words or [] if text and word.strip() == text]
        if occurrences:
            return QueryPosition(occurrences[-1], side, names[occurrences[-1]], occurrences, part_of=text)
    if by_words and any(_strip_spaces(label) == text for side in sides for label in labels.get_labels(side)):
        raise ArgumentError(f"{query!r} is a token and not a word; select it without merging tokens into words")
    names = names_by_side[sides[-1]]
    listed = " ".join(f"{name}[{index}]" for index, name in enumerate(names[:LABELS_IN_ERROR]))
    more = " ..." if len(names) > LABELS_IN_ERROR else ""
    raise ArgumentError(f"there is no {unit} {query!r}; choose a {unit} or a position of: {listed}{more}")


def rank_query_sources(
    capture: Capture,
    labels: SideLabels,
    sites: Sequence[str],
    query: QueryPosition,
    *,
    heads: Mapping[str, Sequence[int]] | None = None,
    top: int = defaults.TOP_SOURCES,
    skip_first: bool = False,
    by_words: bool = False,
) -> QuerySources:
    """Rank the keys of one token, from ``find_query``, in every head.

    Attentions in which the token is no query are left out. ``skip_first`` leaves out the first key, often an attention
    sink; the other weights stay as they are.
    """
    rows: list[Row] = []
    for site in sites:
        sides = capture.sites.get_sides(site)
        if sides.queries != query.side:
            continue
        for head in range(capture.attentions[site].heads) if heads is None else heads[site]:
            weights, queries, keys = label_weights(capture, labels, site, head, by_words)
            if len(queries) != len(_list_names(labels, query.side, by_words)):
                break  # the windows of an image have fewer queries
            row = weights[query.position].clone()
            if skip_first:
                row[0] = 0
            largest, indices = row.topk(min(top, len(keys)))
            sources = [
                {"key": key, "side": sides.keys, "label": keys[key], "weight": weight}
                for weight, key in zip(largest.tolist(), indices.tolist(), strict=True)
                if weight > 0
            ]
            rows.append({"layer": capture.sites.get_layer(site), "head": head, "sources": sources})

    rows.sort(key=lambda row: -row["sources"][0]["weight"] if row["sources"] else 0.0)
    best = [(source["side"], source["key"], source["label"]) for row in rows for source in row["sources"][:1]]
    preferred = [
        {"key": key, "side": side, "label": label, "heads": count}
        for (side, key, label), count in Counter(best).most_common()
    ]
    return QuerySources(rows, preferred)


def _list_names(labels: SideLabels, side: str, by_words: bool) -> list[str]:
    """Return the labels of the tokens of a side, or its words."""
    words = labels.get_words(side) if by_words else None
    return labels.get_labels(side) if words is None else [word for word, _ in words]


def _strip_spaces(text: str) -> str:
    """Remove spaces around a text or a label, where they are visible characters."""
    return text.strip("".join([*VISIBLE, *VISIBLE.values()]))


class KeyWord(NamedTuple):
    """One of the two words."""

    text: str
    positions: list[int]  # of its tokens; of several occurrences the last one that is not after the query


class KeyChoice(NamedTuple):
    """How the heads choose between two words."""

    words: tuple[KeyWord, KeyWord]
    heads: list[Row]  # with "layer", "head", and "weights", the weight on each word

    def sum_weights(self, index: int) -> float:
        """Return the sum of the weights of all heads on this word."""
        return sum(row["weights"][index] for row in self.heads)

    def rank_preferring(self, index: int) -> list[Row]:
        """Return the heads that put more weight on this word, those with the largest difference first."""

        def compute_difference(row: Row) -> float:
            difference: float = row["weights"][index] - row["weights"][1 - index]
            return difference

        return sorted((row for row in self.heads if compute_difference(row) > 0), key=compute_difference, reverse=True)


def compare_keys(
    capture: Capture,
    labels: SideLabels,
    sites: Sequence[str],
    query: QueryPosition,
    words: tuple[str, str],
    *,
    heads: Mapping[str, Sequence[int]] | None = None,
) -> KeyChoice:
    """Compare how much weight a token, from ``find_query``, puts on two words in every head.

    The words may also be tokens, or positions counted from 0; the tokens of a word are added up. Attentions in which
    the token is no query are left out.
    """
    selected = [site for site in sites if capture.sites.get_sides(site).queries == query.side]
    key_sides = list(dict.fromkeys(capture.sites.get_sides(site).keys for site in selected))
    if len(key_sides) > 1:
        names = ", ".join(key_sides)
        raise ArgumentError(f"{query.label} attends to several inputs ({names}); choose one attention with --layer")
    first, second = (_find_word(capture, labels, key_sides[0], word, query) for word in words)
    if set(first.positions) & set(second.positions):
        raise ArgumentError(f"{first.text!r} and {second.text!r} are the same token; give two different words")

    rows: list[Row] = []
    for site in selected:
        for head in range(capture.attentions[site].heads) if heads is None else heads[site]:
            row = label_weights(capture, labels, site, head).weights[query.position]
            weights = [float(row[word.positions].sum()) for word in (first, second)]
            rows.append({"layer": capture.sites.get_layer(site), "head": head, "weights": weights})
    return KeyChoice((first, second), rows)


def _find_word(capture: Capture, labels: SideLabels, side: str, text: str, query: QueryPosition) -> KeyWord:
    """Find a word among the keys, which have the same labels as the queries on their side."""
    sites = [site for site in capture.sites.names if capture.sites.get_sides(site).queries == side]
    token = find_query(capture, labels, sites, text)
    earlier = [position for position in token.occurrences if side != query.side or position <= query.position]
    last = (earlier or token.occurrences)[-1]
    if not token.part_of:
        return KeyWord(text, [last])
    return KeyWord(text, next(list(tokens) for _, tokens in labels.get_words(side) or [] if tokens[-1] == last))
