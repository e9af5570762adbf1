"""Format a report as Markdown: numbers as a list, lists of rows as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def format_markdown(title: str, report: dict[str, Any]) -> str:
    """Format a report as a Markdown page."""
    lines = [f"# {title}", ""]
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, content in report.items():
        if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
            tables[name] = content
        else:
            lines.append(f"- {name.replace('_', ' ')}: {_format_content(content)}")

    for name, rows in tables.items():
        columns = list(dict.fromkeys(column for row in rows for column in row))
        lines += ["", f"## {name.replace('_', ' ')}", ""]
        lines.append(format_table_row(columns))
        lines.append(format_table_row(["---"] * len(columns)))
        lines += [format_table_row([row.get(column) for column in columns]) for row in rows]
    return "\n".join(lines) + "\n"


def format_table_row(cells: Iterable[Any]) -> str:
    """Format one row of a Markdown table; None becomes an empty cell.

    >>> format_table_row(["a|b", 12345, 0.5, None])
    '| a\\\\|b | 12,345 | 0.5 |  |'
    """
    texts = ["" if cell is None else _format_content(cell) for cell in cells]
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"


def _format_content(content: Any) -> str:
    if isinstance(content, float):
        if 0 < abs(content) < 1e-3:
            return f"{content:.2g}"
        return f"{content:.4f}".rstrip("0").rstrip(".") if abs(content) < 1e4 else f"{content:,.0f}"
    if isinstance(content, int) and not isinstance(content, bool):
        return f"{content:,}"
    if isinstance(content, dict):
        return "; ".join(f"{name.replace('_', ' ')} {_format_content(inner)}" for name, inner in content.items())
    return str(content)
