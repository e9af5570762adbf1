"""Write the records of the census of transformers (bench/huggingface.py) as a Markdown page.

python bench/huggingface_page.py CENSUS.json PAGE.md
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

#: what a status of the census means for a user
MEANINGS = {
    "editable": "`attend()` computes the attentions: they are recorded and can be edited, and outputs are unchanged; "
    "where the reason begins with *incomplete*, not all of them, and the lens warns",
    "maps only": "the lens shows the maps that the model returns itself; they cannot be edited",
    "different": "the outputs change under the lens, its maps differ from those of the model, or its edits from hooks",
    "crash": "the lens stops with an error that is not explained",
    "refused": "the lens stops with an explanation",
    "no attention": "the class has no attention",
    "not built": "no small model of the class could be built and run here, so nothing is known",
}
LONGEST_REASON = 140
EDITS = ("Ablate(layer)", "Ablate(layer, head)", "KnockOut", "Patch(residual)")


def write_page(records: list[dict[str, Any]]) -> str:
    """Return the page: totals by level, then one row for each model type, level and reason.

    Args:
        records: The records of the census.
    """
    totals = Counter(record["status"] for record in records)
    lines = [
        "# Models of transformers under the lens",
        "",
        f"Every model class in the auto mappings of transformers {version('transformers')}: a small model of the class "
        "with random parameters, runs plain and under the lens, on padded inputs of two lengths. All floating-point "
        "outputs at real tokens must agree within 1e-5 of the largest. `make huggingface` writes this page.",
        "",
        "Each editable class is also compared with hooks on the model itself, which know nothing of the lens: `Ablate` "
        "of an attention and of a head, `KnockOut`, and `Patch` of the residual stream. "
        + ", ".join(describe_edit(edit, records) for edit in EDITS)
        + ". The others change nothing that can be seen in the small model, are refused with a sentence (an attention "
        "outside of blocks), or change their heads before the hooks can find them.",
        "",
        "Some classes return maps that are not the weights they use (scores, means over heads, windows, or weights "
        "before a sink is applied), and some have further attentions that are not of the form softmax(q k^T) v; the "
        "last column counts the maps that equal recorded ones where not all do.",
        "",
        "| level | classes | meaning |",
        "|---|---|---|",
        *(f"| {level} | {totals[level]} | {meaning} |" for level, meaning in MEANINGS.items() if totals[level]),
        f"| all | {len(records)} | |",
        "",
        "| model type | level | classes | reason |",
        "|---|---|---|---|",
    ]
    rows: dict[tuple[str, str, str], list[str]] = {}
    for record in records:
        untested = f"run without {' or '.join(record['untested'])}" if record["untested"] else ""
        maps = ""
        if record["eager_equal"] < record["eager_tables"]:
            maps = f"{record['eager_equal']} of {record['eager_tables']} maps that it returns equal recorded ones"
        reason = "; ".join(part for part in (record["reason"], maps, untested) if part)
        key = record["model_type"], record["status"], escape_cell(reason)
        rows.setdefault(key, []).append(record["name"])
    lines += [
        f"| {model_type} | {level} | {', '.join(sorted(names))} | {reason} |"
        for (model_type, level, reason), names in sorted(rows.items())
    ]
    return "\n".join(lines) + "\n"


def describe_edit(edit: str, records: list[dict[str, Any]]) -> str:
    """Say for how many editable classes hooks confirm an edit.

    Args:
        edit: The edit, as in the records.
        records: The records of the census.
    """
    results = [record["edits"].get(edit) for record in records if record["status"] == "editable"]
    return f"{edit} is confirmed for {results.count('equal')} of {len(results)}"


def escape_cell(text: str) -> str:
    """Shorten a text and escape what has a meaning in a Markdown table.

    Args:
        text: The text of a cell.
    """
    short = text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 4] + " ..."
    return short.replace("|", "\\|").replace("<", "&lt;").replace("[", "&#91;").replace("`", "'")


def main() -> None:
    """Read the census and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("census", type=Path, help="the file that bench/huggingface.py --out wrote")
    parser.add_argument("page", type=Path, help="the Markdown file to write")
    arguments = parser.parse_args()
    arguments.page.write_text(write_page(json.loads(arguments.census.read_text())))


if __name__ == "__main__":
    main()
