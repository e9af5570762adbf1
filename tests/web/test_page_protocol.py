"""page/src/protocol.ts is written from the structures of the messages, so that the two sides cannot differ."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from jumok.web import asks

ROOT = Path(__file__).parents[2]
PROTOCOL = ROOT / "page" / "src" / "protocol.ts"


def test_the_page_has_the_messages_of_the_session() -> None:
    written = runpy.run_path(str(ROOT / "tools" / "page_protocol.py"))["write_protocol"]()
    assert PROTOCOL.read_text(encoding="utf-8") == written, "run: make page"


def test_every_ask_is_in_the_table_of_the_page() -> None:
    table = PROTOCOL.read_text(encoding="utf-8").partition("export interface Asks {")[2]
    rows = re.findall(r"^  (\w+): \{ fields: \w+; body: (\w+) \};$", table, re.MULTILINE)
    assert dict(rows) == {asks.name_ask(ask): ask.body.__name__ for ask in asks.ASKS}
