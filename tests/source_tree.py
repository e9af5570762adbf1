"""Write the folders of ARCHITECTURE.md from the first line of each package's docstring; the site lists all modules.

``python tests/source_tree.py`` updates the page; tests/documents/test_documents.py checks that it is up to date.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "jumok"
COLUMN = 34  # where descriptions start
BLOCK = re.compile(r"```text\nsrc/jumok/\n.*?```", re.DOTALL)


def describe(path: Path) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.partition("\n")[0].removesuffix(".")


def list_tree(folder: Path, depth: int = 1) -> list[str]:
    """Return one line for each folder below ``folder``, after the files of the package's own folder."""
    indent = "  " * depth
    lines = []
    for path in sorted(folder.glob("*.py")) if depth == 1 else ():
        lines.append(f"{indent}{path.name:<{COLUMN - len(indent)}}{describe(path)}".rstrip())
    for path in sorted(path for path in folder.iterdir() if (path / "__init__.py").is_file()):
        name = f"{path.name}/"
        lines.append(f"{indent}{name:<{COLUMN - len(indent)}}{describe(path / '__init__.py')}".rstrip())
        lines += list_tree(path, depth + 1)
    return lines


def render() -> str:
    """Return the whole code block of ARCHITECTURE.md."""
    return "\n".join(["```text", "src/jumok/", *list_tree(PACKAGE), "```"])


if __name__ == "__main__":
    page = ROOT / "ARCHITECTURE.md"
    page.write_text(BLOCK.sub(lambda _: render(), page.read_text(), count=1))
