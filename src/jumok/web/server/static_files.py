"""The files of the page, kept in memory: HTML, the bundle, its style sheet and the icon."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from jumok.errors import ArgumentError

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Jumok</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/jumok.css">
<script type="module" src="/jumok.js"></script>
</head>
<body>
<div id="jumok" data-carrier="server"></div>
<noscript>This page needs JavaScript. 이 페이지는 JavaScript가 필요합니다.</noscript>
</body>
</html>
"""
TYPES = {
    "/jumok.js": "text/javascript; charset=utf-8",
    "/jumok.css": "text/css; charset=utf-8",
    "/favicon.svg": "image/svg+xml",
}


@dataclass(frozen=True)
class StaticFile:
    """A file that the server sends.

    Attributes:
        content: Its bytes.
    """

    content: bytes
    content_type: str

    @cached_property
    def compressed(self) -> bytes:
        """The bytes, compressed by gzip."""
        return gzip.compress(self.content, mtime=0)

    @cached_property
    def tag(self) -> str:
        """The header ETag: browsers ask whether the file that they have is still this one."""
        return f'W/"{sha256(self.content).hexdigest()[:32]}"'

    def respond(self, request: Request) -> Response:
        """Return the response to a request for this file."""
        headers = {"ETag": self.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        content = self.content
        if _accepts_gzip(request.headers.get("accept-encoding", "")):
            content = self.compressed
            headers["Content-Encoding"] = "gzip"
        return Response(content, headers={**headers, "Content-Type": self.content_type})


def read_static_files() -> dict[str, StaticFile]:
    """Return the files of the page by their paths.

    Raises:
        ArgumentError: If the bundle was not installed with the package.
    """
    folder = files("jumok.web") / "static"
    static = {"/": StaticFile(PAGE.encode(), "text/html; charset=utf-8")}
    for path, content_type in TYPES.items():
        file = folder / path[1:]
        if not file.is_file():
            raise ArgumentError(f"the file {path[1:]} of the page is missing; install jumok again")
        static[path] = StaticFile(file.read_bytes(), content_type)
    return static


def _accepts_gzip(accepted: str) -> bool:
    """Return True if the header Accept-Encoding allows gzip.

    >>> _accepts_gzip("gzip, deflate, br"), _accepts_gzip("br"), _accepts_gzip("gzip;q=0")
    (True, False, False)
    """
    for coding in accepted.split(","):
        name, _, quality = coding.partition(";")
        if name.strip().lower() == "gzip":
            return quality.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
