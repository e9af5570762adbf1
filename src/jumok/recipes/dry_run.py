"""Read the data of a training run and build its model without training: counts, columns, first examples, sizes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from jumok.data.readers.file_list import UnreadFiles
from jumok.data.readers.tables import TableNotice, TakenColumn
from jumok.training.displays import ProgressDisplay, select_display
from jumok.translation import translate

from .recipe import get_recipe
from .report import format_markdown
from .request import TrainingRequest

MAX_EXAMPLES = 3
MAX_CHARACTERS = 200  # of a text in an example


def preview_training(
    recipe: str,
    *,
    data: str | Path | None = None,
    start: str | Path | None = None,
    skip_bad: bool = False,
    encoding: str | None = None,
    display: ProgressDisplay | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Read the data and build the model as ``jumok.train`` does, but do not train, and leave no folder behind.

    The arguments are those of ``jumok.train``. Returned are counts of the data, the columns of each table, the first
    examples, and the sizes of model and training.
    """
    display = select_display() if display is None else display
    with tempfile.TemporaryDirectory(prefix="jumok-dry-run-") as folder:
        request = TrainingRequest(
            recipe,
            Path(folder),
            data=None if data is None else str(data),
            start=None if start is None else str(start),
            changes=fields,
            skip_bad=skip_bad,
            encoding=encoding,
            show_message=lambda line: None if folder in line else display.show_message(line),
        )
        task = get_recipe(recipe).build(request)

    notices = request.notices.values()
    counts = dict(task.summary.counts) or {name: n for name, n in task.data.items() if type(n) is int}
    return {
        "recipe": request.recipe,
        "data": request.data,
        "counts": counts,
        "tables": [notice.to_json() for notice in notices if isinstance(notice, TableNotice)],
        "not_read": [str(path) for notice in notices if isinstance(notice, UnreadFiles) for path in notice.paths],
        "vocabulary": None if task.loaded.tokenizer is None else task.loaded.tokenizer.vocabulary,
        "model": task.model.family,
        "parameters": task.model.parameter_count,
        "steps": task.settings.steps,
        "batch": task.settings.batch,
        "examples": [
            {
                name: text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."
                for name, text in example.items()
            }
            for example in task.summary.examples[:MAX_EXAMPLES]
        ],
    }


def format_preview(preview: dict[str, Any]) -> str:
    """Format what ``preview_training`` returned as a Markdown page."""
    lines = {
        "data": preview["data"] or "the recipe's own",
        **preview["counts"],
        **{table["file"]: _describe_table(table) for table in preview["tables"]},
        **({"not read": ", ".join(preview["not_read"])} if preview["not_read"] else {}),
        **{name: preview[name] for name in ("vocabulary", "model", "parameters", "steps", "batch") if preview[name]},
    }
    examples = [{name: text.replace("\n", " ") for name, text in row.items()} for row in preview["examples"]]
    if examples:
        lines["first examples"] = examples
    return format_markdown(f"jumok train {preview['recipe']} --dry-run", lines)


def _describe_table(table: dict[str, Any]) -> str:
    headers = {True: "with a header", False: "without a header", None: "by its keys"}
    columns = ", ".join(f"{role} = {TakenColumn(**column)}" for role, column in table["columns"].items())
    separator = "separated by semicolons; " if table["separator"] == ";" else ""
    return translate(f"{separator}{headers[table['header']]}; {columns}")
