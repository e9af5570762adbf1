"""Draw 100 functions at random and print their signatures, to test whether names explain themselves.

``python tests/draw_signatures.py --seed 1 > signatures.txt``: a reader who does not know the project writes down what
each function does, from the signature alone, and compares with the body afterwards.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "jumok"


def list_signatures() -> list[tuple[str, str]]:
    """Return (location, signature) of every function and method, without docstrings and dunder methods."""
    signatures = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for owner in ast.walk(ast.parse(path.read_text())):
            if not isinstance(owner, ast.Module | ast.ClassDef):
                continue
            for node in owner.body:
                if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
                    continue
                prefix = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
                returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
                signature = f"{module}: {prefix}{node.name}({ast.unparse(node.args)}){returns}"
                signatures.append((f"{path.relative_to(PACKAGE.parents[1])}:{node.lineno}", signature))
    return signatures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--locations", action="store_true", help="print file and line instead of the signature")
    arguments = parser.parse_args()
    sample = random.Random(arguments.seed).sample(list_signatures(), arguments.count)
    for number, (location, signature) in enumerate(sample, 1):
        sys.stdout.write(f"{number}. {location if arguments.locations else signature}\n")
