"""Read a saved HTML file back, like the page does."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy
from numpy.typing import NDArray


class SavedPage(HTMLParser):
    """The elements of a saved file, and the weights that it stores."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self._open: list[int] = []
        self.text = content.decode()
        self.feed(self.text)
        self.index: dict[str, Any] = json.loads(self.find("jumok-index"))
        self.blob = gzip.decompress(base64.b64decode(self.find("jumok-blob"), validate=True))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), ""))
        if tag not in ("meta", "link", "img"):
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        index = self._open.pop()
        assert self.elements[index][0] == tag, f"{tag} closes {self.elements[index][0]}"

    def handle_data(self, data: str) -> None:
        if self._open:
            tag, attributes, text = self.elements[self._open[-1]]
            self.elements[self._open[-1]] = (tag, attributes, text + data)

    def find(self, name: str) -> str:
        """Return the text of the element with an id."""
        (text,) = [text for _, attributes, text in self.elements if attributes.get("id") == name]
        return text

    def list_texts(self, tag: str, **attributes: str) -> list[str]:
        """Return the texts of all elements with a tag and attributes."""
        return [
            text
            for other, element_attributes, text in self.elements
            if other == tag and all(element_attributes.get(name) == content for name, content in attributes.items())
        ]

    def read(self, piece: dict[str, Any]) -> bytes:
        """Return a piece of the blob."""
        assert piece["at"] % 4 == 0 and 0 <= piece["at"] <= len(self.blob) - piece["bytes"]
        return self.blob[piece["at"] : piece["at"] + piece["bytes"]]

    def read_floats(self, piece: dict[str, Any]) -> NDArray[numpy.float32]:
        """Return a piece of the blob as float32."""
        return numpy.frombuffer(self.read(piece), "<f4")

    def compute_map(self, show: str, site: int, head: int) -> NDArray[Any]:
        """Return the weights of a stored map, as file_format.ts describes them."""
        stored = self.index["maps"][show][site][head]
        queries, keys = (self.index["run"]["sites"][site][axis] for axis in ("queries", "keys"))
        if stored["form"] == "float32":
            return self.read_floats(stored).reshape(queries, keys)
        if stored["form"] == "u8":
            cells = numpy.frombuffer(self.read(stored), numpy.uint8).reshape(queries, keys)
            return (cells / 255.0) ** 2
        if stored["form"] == "u8 pooled":
            size = 2 ** stored["level"]
            cells = numpy.frombuffer(self.read(stored), numpy.uint8).reshape(-(-queries // size), -(-keys // size))
            return (cells / 255.0) ** 2
        assert stored["form"] == "qk"
        query = self.read_floats(stored["query"]).reshape(queries, stored["width"]).astype(float)
        key = self.read_floats(stored["key"]).reshape(keys, stored["width"]).astype(float)
        lse = self.read_floats(stored["lse"]).astype(float)[:, None]
        with numpy.errstate(over="ignore", invalid="ignore"):
            weights = numpy.exp(stored["scale"] * (query @ key.T) - lse)
        return numpy.where(self._evaluate_mask(stored["mask"], queries, keys) & numpy.isfinite(lse), weights, 0.0)

    @staticmethod
    def _evaluate_mask(mask: dict[str, Any], queries: int, keys: int) -> NDArray[numpy.bool_]:
        i, j = numpy.arange(queries)[:, None], numpy.arange(keys)[None]
        allowed = numpy.ones((queries, keys), bool)
        if mask["behind"] is not None:
            allowed &= i - j <= mask["behind"]
        if mask["ahead"] is not None:
            allowed &= j - i <= mask["ahead"]
        for rectangle in mask["forbidden"]:
            rows = numpy.ones_like(i, bool) if rectangle["queries"] is None else numpy.isin(i, rectangle["queries"])
            columns = numpy.ones_like(j, bool) if rectangle["keys"] is None else numpy.isin(j, rectangle["keys"])
            allowed &= ~(rows & columns)
        return allowed


def list_addresses(text: str) -> list[str]:
    """Return what a browser might load: attributes with an address, and addresses in style sheets and imports."""
    patterns = (
        r"""\b(?:src|href|action|poster|data)\s*=\s*["'][^"']*["']""",
        r"url\([^)]*\)",
        "@import[^;]*",
        r"""\bimport\s*\(?["'][^"']*["']""",
    )
    return re.findall("|".join(patterns), text)
