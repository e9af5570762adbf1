"""Write the saved pages to which the home page links: ``python tools/site/saved_pages.py``.

They go into .cache/site. A page whose model is not on this machine is left out, and so is the link to it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jumok.data.catalogue import locate_entry

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "site"
DOWNLOADED = ("smollm2",)
STORY = "When Mary and John went to the store, John gave a drink to"
PAGES = {
    "translator": ("translator", "그녀는 어제 도서관에서 책을 읽었다", "--live"),
    # the head with the largest effect of all 270
    "ioi": ("smollm2", STORY, "--effects", "--edit", "Ablate(layer=1, head=5)"),
}


def is_current(path: Path) -> bool:
    """Return whether a page is newer than the package's code that writes it."""
    newest = max(file.stat().st_mtime for file in (ROOT / "src" / "jumok" / "web").rglob("*") if file.is_file())
    return path.exists() and path.stat().st_mtime > newest


def main() -> None:
    """Write the pages that are missing or old."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (model, *arguments) in PAGES.items():
        path = FOLDER / f"{name}.html"
        if model in DOWNLOADED and locate_entry(model) is None:
            sys.stdout.write(f"no page {name}: first run jumok data get {model}\n")
        elif not is_current(path):
            command = [sys.executable, "-m", "jumok", "look", model, *arguments, "--html", str(path)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
