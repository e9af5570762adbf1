"""Which of two words does a token attend to: the weights of every head on both, and how many heads prefer each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jumok.errors import ArgumentError
from jumok.lens.capture.model_capture import Capture

from .query_sources import QueryPosition, find_query
from .table_rows import SideLabels, label_weights

Row = dict[str, Any]  # one row of a table, as for JSON


class KeyWord(NamedTuple):
    """One of the two words.

    Attributes:
        positions: The positions of its tokens; of several occurrences the last one that is not after the query.
    """

    text: str
    positions: list[int]


class KeyChoice(NamedTuple):
    """How the heads choose between two words.

    Attributes:
        heads: A row for each head: "layer", "head", and "weights", the weight on each word.
    """

    words: tuple[KeyWord, KeyWord]
    heads: list[Row]

    def count_preferring(self, index: int) -> int:
        """Return how many heads put more weight on this word than on the other one.

        Args:
            index: 0 or 1.
        """
        return len(self.rank_preferring(index))

    def sum_weights(self, index: int) -> float:
        """Return the sum of the weights of all heads on this word.

        Args:
            index: 0 or 1.
        """
        return sum(row["weights"][index] for row in self.heads)

    def rank_preferring(self, index: int) -> list[Row]:
        """Return the heads that put more weight on this word, those with the largest difference first.

        Args:
            index: 0 or 1.
        """

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
    """Compare how much weight a token puts on two words in every head. The tokens of a word are added up.

    Args:
        sites: The attentions to include; those in which the token is no query are left out.
        query: The token, from ``find_query``.
        words: The two words, or tokens, or positions counted from 0.
        heads: Only these heads, by site; default: all.
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
    readers = [site for site in capture.sites.names if capture.sites.get_sides(site).queries == side]
    token = find_query(capture, labels, readers, text)
    earlier = [position for position in token.occurrences if side != query.side or position <= query.position]
    last = (earlier or token.occurrences)[-1]
    if not token.part_of:
        return KeyWord(text, [last])
    return KeyWord(text, next(list(tokens) for _, tokens in labels.get_words(side) or [] if tokens[-1] == last))
