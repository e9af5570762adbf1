"""Griffe extension: put doctests in docstrings into fenced code blocks.

Markdown reads ``>>>`` as a quotation and ``['a']`` as a link, so a doctest outside an ``Examples:`` section would not
be shown as code.
"""

from __future__ import annotations

from griffe import Extension, Object


def fence_doctests(text: str) -> str:
    """Return the docstring with a fence around each run of lines that starts with ``>>>`` and ends at a blank line."""
    lines: list[str] = []
    indent: str | None = None  # of the doctest that is open
    for line in text.splitlines():
        if indent is None and line.lstrip().startswith(">>> "):
            indent = line[: len(line) - len(line.lstrip())]
            lines += ["", f"{indent}```pycon"]
        elif indent is not None and not line.strip():
            lines.append(f"{indent}```")
            indent = None
        lines.append(line)
    if indent is not None:
        lines.append(f"{indent}```")
    return "\n".join(lines)


class FenceDoctests(Extension):
    """Apply ``fence_doctests`` to every docstring."""

    def on_instance(self, *, obj: Object, **_: object) -> None:
        """Rewrite the docstring of one module, class or function."""
        if obj.docstring is not None and "```" not in obj.docstring.value:
            obj.docstring.value = fence_doctests(obj.docstring.value)
