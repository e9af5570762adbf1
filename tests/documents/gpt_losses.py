"""Train the solutions of the pages on building a GPT, print their losses, and draw the pictures of the pages.

    python tests/documents/gpt_losses.py

takes about ten minutes on an idle core, and needs ``jumok data get shakespeare``.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from page_blocks import ROOT

from jumok.lab.exercises.gpt_training import draw_curves, train_file

PICTURES = ROOT / "docs" / "pictures" / "gpt"


def main() -> None:
    """Train every step on both texts."""
    solutions = (ROOT / "docs" / "en" / "course" / "solutions.md").read_text(encoding="utf-8")
    codes = re.findall(r"^## gpt-\d\n\n```python\n(.*?)```$", solutions, flags=re.MULTILINE | re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "my_gpt.py"
        for text in ("korean", "shakespeare"):
            for step, code in enumerate(codes, 1):
                file.write_text(code, encoding="utf-8")
                losses = train_file(file, step, text, "en").losses
                sys.stdout.write(f"gpt-{step}, {text}: {losses[f'gpt-{step}']:.2f}\n")
            curves = json.loads(file.with_name("my_gpt-losses.json").read_text("utf-8"))[text]
            for language in ("en", "ko"):
                draw_curves(curves, text, language, PICTURES / f"losses-{text}-{language}.png")


if __name__ == "__main__":
    main()
