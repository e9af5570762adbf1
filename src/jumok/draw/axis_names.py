"""The words on the axes and colour bars of heat maps, in English and Korean."""

from __future__ import annotations

from typing import NamedTuple


class AxisNames(NamedTuple):
    """The words of a heat map."""

    query: str = "query"
    key: str = "key"
    weight: str = "weight"


#: the words by language
AXIS_NAMES = {"en": AxisNames(), "ko": AxisNames("쿼리", "키", "가중치")}
