"""The report of a run: evaluate the best model, write report.json, report.md and a plot, and compare several runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from jumok.checkpoint import load
from jumok.checkpoint.run_folder import RUN_FILE
from jumok.checkpoint.tensor_files import read_json
from jumok.errors import ArgumentError, CheckpointError
from jumok.files import write_atomically
from jumok.reporting import get_reader_language
from jumok.training import Outcome, TrainingTask
from jumok.training.loop import REPORT_FILE
from jumok.training.metrics_log import read_metrics
from jumok.translation import translate, translate_name

from .request import TrainingRequest
from .run_record import write_json

# compared even if only some runs have them; other settings must be in all runs, as every family has many of its own
MAIN_SETTINGS = ("family", "width", "heads", "layers", "hidden", "attention", "mixing", "positions")
SENTENCES = ("what", "citations_what", "verdict", "induction_head")  # fields of a report in words, not data
WORDS = ("length", "questions", "clips", "wrong_answers", "data")  # fields and columns whose texts are names of ours
MAX_TEXT_LENGTH = 24  # characters; longer texts do not fit into a table


def write_missing_report(task: TrainingTask, request: TrainingRequest, outcome: Outcome) -> None:
    """Write the report of a finished run, unless it has an undamaged one and was not trained further."""
    folder = outcome.folder
    if not outcome.trained and (folder / REPORT_FILE).exists():
        try:
            if outcome.report.get("recipe") == request.recipe:
                return
        except CheckpointError:
            pass
        request.show_message(f"{REPORT_FILE} in {folder} is damaged; it is written again")

    model = load(folder).model.to(task.model.device)
    torch.manual_seed(task.settings.seed)
    with torch.inference_mode():
        results = task.evaluate(model) if task.build_report is None else task.build_report(model, folder)
    report = {
        "recipe": request.recipe,
        "steps": outcome.progress.step,
        "best_step": outcome.progress.best_step,
        "parameters": model.parameter_count,
        **results,
    }
    write_json(folder / REPORT_FILE, report)
    write_atomically(folder / "report.md", format_markdown(f"jumok train {request.recipe}", report))

    from jumok.draw import save_line_plot

    rows = read_metrics(folder)
    training, evaluation = translate_name("training"), translate_name("evaluation")
    series = {training: [(row["step"], row["loss"]) for row in rows if "loss" in row]}
    if task.judge == "loss":
        series[evaluation] = [(row["step"], row["evaluation_loss"]) for row in rows if "evaluation_loss" in row]
    with request.skip_undrawn("loss.png"):
        loss = translate_name("loss")
        save_line_plot(
            series,
            folder / "loss.png",
            title=f"{request.recipe}: {loss}",
            across=translate_name("step"),
            vertical=loss,
        )


def format_markdown(title: str, report: dict[str, Any]) -> str:
    """Format a report as a Markdown page, in the reader's language."""
    lines = [f"# {title}", ""]
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, content in report.items():
        if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
            tables[name] = content
        else:
            lines.append(f"- {_format_name(name)}: {_format_content(_translate_content(name, content))}")

    for name, rows in tables.items():
        columns = list(dict.fromkeys(column for row in rows for column in row))
        lines += ["", f"## {_format_name(name)}", ""]
        lines.append(format_table_row([_format_name(_find_name(rows, column)) for column in columns]))
        lines.append(format_table_row(["---"] * len(columns)))
        lines += [format_table_row([_translate_content(column, row.get(column)) for column in columns]) for row in rows]
    return "\n".join(lines) + "\n"


def _format_name(name: str) -> str:
    return translate_name(name) if get_reader_language() == "ko" else name.replace("_", " ")


def _find_name(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    """Return the name of a column; Korean distinguishes a share of right answers from whether one is right."""
    is_answer = get_reader_language() == "ko" and any(isinstance(row.get(column), bool) for row in rows)
    return f"{column}?" if is_answer else column


def _translate_content(name: str, content: Any) -> Any:
    if get_reader_language() == "ko" and isinstance(content, bool):
        return "예" if content else "아니요"
    if not isinstance(content, str):
        return content
    return translate(content) if name in SENTENCES else translate_name(content) if name in WORDS else content


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
        return "; ".join(f"{_format_name(name)} {_format_content(inner)}" for name, inner in content.items())
    return str(content)


def compare_runs(folders: Iterable[str | Path], columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return one row for each run: its folder, the settings that differ, and the numbers and short texts of its report.

    Settings are those of the model and of the training, such as heads, width, layers, mixing, positions and steps. All
    rows have the same columns; a value that a run does not have is None. ``columns`` selects some by name, also
    settings that do not differ.
    """
    paths = [Path(folder) for folder in folders]
    reports = [_read_report(folder) for folder in paths]
    if not reports:
        raise ArgumentError("there are no runs to compare; give the folders of finished runs")

    settings = [_read_settings(folder) for folder in paths]
    reported = list(dict.fromkeys(name for report in reports for name in report))
    differing = [name for name in find_differences(settings) if name not in reported]
    rows = [{**setting, **report} for setting, report in zip(settings, reports, strict=True)]
    first = [name for name in ("run", "recipe") if name in reported]
    names = [*first, *differing, *(name for name in reported if name not in first)]
    unknown = next((name for name in columns or () if not any(name in row for row in rows)), None)
    if unknown is not None:
        raise ArgumentError(
            f"none of these runs has a column {unknown!r}; choose from {', '.join(names[1:])}, or a setting of run.json"
        )
    selected = names if columns is None else ["run", *columns]
    return [{name: row.get(name) for name in selected} for row in rows]


def find_differences(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the settings that are not equal in all runs, in their order.

    >>> find_differences([{"heads": 1, "width": 32}, {"heads": 4, "width": 32, "mixing": "full", "random": 3}])
    ['heads', 'mixing']
    """
    non_empty = [setting for setting in settings if setting]
    names = dict.fromkeys(name for setting in non_empty for name in setting)
    compared = [name for name in names if name in MAIN_SETTINGS or all(name in setting for setting in non_empty)]
    return [name for name in compared if any(setting.get(name) != non_empty[0].get(name) for setting in non_empty)]


def _read_report(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise ArgumentError(f"there is no folder {folder}; give the folders of finished runs")
    if not (folder / REPORT_FILE).is_file():
        raise ArgumentError(f"there is no report in {folder}; it is written when a run has finished")
    row: dict[str, Any] = {"run": str(folder)}
    for name, content in read_json(folder, REPORT_FILE).items():
        is_short_text = isinstance(content, str) and len(content) <= MAX_TEXT_LENGTH
        if is_short_text or isinstance(content, int | float):
            row[name] = content
    return row


def _read_settings(folder: Path) -> dict[str, Any]:
    """Return the recipe, the model's config and the training settings of a run; nested fields are joined by dots."""
    if not (folder / RUN_FILE).is_file():
        return {}
    record = read_json(folder, RUN_FILE)
    parts = [part for name in ("model", "settings") if isinstance(part := record.get(name), dict)]
    fields: dict[str, Any] = {"recipe": record.get("recipe"), "data": record.get("data")}
    if parts:
        fields["family"] = parts[0].get("family")

    def add(part: Mapping[str, Any], prefix: str = "") -> None:
        for name, content in part.items():
            if isinstance(content, dict):
                add(content, f"{prefix}{name}.")
            elif prefix or name != "family":
                fields[f"{prefix}{name}"] = content

    for part in parts:
        add(part)
    return fields
