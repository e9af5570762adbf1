"""Write the saved pages to which the home page links: ``python tools/site/saved_pages.py``.

They go into .cache/site. A page whose model is not on this machine is left out, and so is the link to it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jumok import Ablate
from jumok.data.catalogue import locate_entry
from jumok.web.messages import Selection
from jumok.web.saved_file import save_html
from jumok.web.session import Start

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "site"
DOWNLOADED = ("smollm2",)
STORY = "When Mary and John went to the store, John gave a drink to"
PRONOUN = "The animal didn't cross the street because it was too tired"
IT_TO_ANIMAL = Selection(13, 8, query=8, key=1)  # of all heads the one with the largest weight
PAGES: dict[str, tuple[Start, dict[str, Any]]] = {
    "translator": (Start("translator", "그녀는 어제 도서관에서 책을 읽었다"), {"live": True}),
    # the head with the largest effect of all 270
    "ioi": (Start("smollm2", STORY, edits=(Ablate(layer=1, head=5),)), {"effects": True}),
    "animal": (Start("smollm2", PRONOUN, selection=IT_TO_ANIMAL), {}),
}


def is_current(path: Path) -> bool:
    """Return whether a page is newer than this file and the package's code that writes it."""
    sources = [Path(__file__), *(ROOT / "src" / "jumok" / "web").rglob("*")]
    newest = max(file.stat().st_mtime for file in sources if file.is_file())
    return path.exists() and path.stat().st_mtime > newest


def main() -> None:
    """Write the pages that are missing or old."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (start, options) in PAGES.items():
        path = FOLDER / f"{name}.html"
        if start.model in DOWNLOADED and locate_entry(start.model) is None:
            sys.stdout.write(f"no page {name}: first run jumok data get {start.model}\n")
        elif not is_current(path):
            save_html(path, start, **options)
            sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
