"""A report as a page to read: numbers as a list, lists of rows as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def format_markdown(title: str, told: dict[str, Any]) -> str:
    lines = [f"# {title}", ""]
    tables = []
    for name, value in told.items():
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            tables.append((name, value))
        else:
            lines.append(f"- {name.replace('_', ' ')}: {_told(value)}")
    for name, rows in tables:
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines += [
            "",
            f"## {name.replace('_', ' ')}",
            "",
            format_table_row(columns),
            format_table_row(["---"] * len(columns)),
        ]
        lines += [format_table_row([one.get(key) for key in columns]) for one in rows]
    return "\n".join(lines) + "\n"


def format_table_row(cells: Iterable[Any]) -> str:
    """One line of a table, which a person can read as it stands; what is not there is left empty.

    >>> row(["a|b", 12345, 0.5, None])
    '| a\\\\|b | 12,345 | 0.5 |  |'
    """
    told = ("" if one is None else _told(one) for one in cells)
    return "| " + " | ".join(one.replace("|", "\\|").replace("\n", " ") for one in told) + " |"


def _told(value: Any) -> str:
    if isinstance(value, float):
        if 0 < abs(value) < 1e-3:
            return f"{value:.2g}"
        return f"{value:.4f}".rstrip("0").rstrip(".") if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        return "; ".join(f"{name.replace('_', ' ')} {_told(one)}" for name, one in value.items())
    return str(value)
