"""The format of a folder of tokens: names of its files and types of its numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy

FORMAT = "jumok tokens 1"
INDEX_FILE = "index.json"
ENDS_FILE = "ends.bin"  # the position after each list
SHARD_NAME = re.compile(r"\d{6}\.bin")
TOKEN_TYPES: dict[str, numpy.dtype[Any]] = {"uint16": numpy.dtype("<u2"), "uint32": numpy.dtype("<u4")}
ENDS_TYPE = numpy.dtype("<u8")
