"""The command ``jumok look``: parse the options, run the lens, draw and print."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults
from jumok.cli.arguments import input_to_json, limit_option, load_and_prepare, parse_layer, summarize_input
from jumok.cli.command import (
    add_picture_options,
    add_shading_options,
    check_picture_paths,
    json_option,
    show_progress,
    show_status,
)
from jumok.cli.command_output import CommandOutput
from jumok.cli.help import Command
from jumok.cli.page_hint import LOOK, print_page_hint
from jumok.cli.page_options import PageOptions, add_page_options, check_page_options, open_page, write_page
from jumok.translation import translate

from .look_reports import (
    TEXTS,
    BetweenReport,
    HeadReport,
    ListeningReport,
    QueryReport,
    build_between_report,
    build_listening_report,
    build_query_report,
)

if TYPE_CHECKING:
    from jumok.checkpoint import Loaded
    from jumok.checkpoint.transformers_folder import LoadedTransformers
    from jumok.lens import Capture, Lens
    from jumok.lens.huggingface.router import Support
    from jumok.tasks.labelled_input import LabelledInput


@dataclass(frozen=True)
class LookOptions:
    """The options of the command without those of the page."""

    arguments: tuple[str, ...]
    layer: str | None
    head: int | None
    top: int
    query: str | None
    between: str | None
    by_words: bool
    show_scores: bool
    limit: int | None
    begin: float | None
    png: Path | None
    svg: Path | None
    scale: str
    skip_first: bool
    as_heat_map: bool
    as_json: bool


@dataclass(frozen=True)
class LookResult:
    """What a model attends to while it reads an input.

    Attributes:
        support: How far a model of transformers is supported; None for a model of Jumok.
        heads: The heads to show, by site.
        hidden: The special tokens that --words hides; None without it.
        report: The kinds of all heads, or with --query the sources of one token.
    """

    options: LookOptions
    loaded: Loaded | LoadedTransformers
    labelled: LabelledInput
    capture: Capture
    support: Support | None
    heads: dict[str, list[int]]
    hidden: list[str] | None
    report: HeadReport | QueryReport
    between: BetweenReport | None
    listening: ListeningReport | None

    def to_json(self) -> dict[str, Any]:
        """Return the fields of --json."""
        fields = {"model": self.loaded.family, **input_to_json(self.labelled)}
        fields["level"] = self.support.level if self.support is not None else "own family"
        if self.hidden is not None:
            fields["hidden"] = self.hidden
        fields |= self.report.to_json()
        for name, report in (("listening", self.listening), ("between", self.between)):
            if report is not None:
                fields[name] = report.to_json()
        return fields

    def print(self, output: CommandOutput) -> None:
        """Print the reports."""
        output.print(f"{self.loaded.family}, {output.select(summarize_input(self.labelled))}\n")
        if self.hidden:
            output.print(TEXTS("hidden", names=", ".join(dict.fromkeys(self.hidden))))
        if self.capture.has_only_maps and self.support is not None:
            output.print(TEXTS("maps_only", reason=translate(self.support.reason)))
        if self.between is not None:
            self.between.print(output)
        else:
            self.report.print(output)
        if isinstance(self.report, HeadReport):
            if self.listening is not None:
                self.listening.print(output)
            else:
                self.report.print_sources(output)


@click.command(cls=Command)
@click.argument("arguments", metavar="[MODEL] INPUT", nargs=-1)
@click.option("--layer")
@click.option("--head", type=int)
@click.option("--top", default=defaults.TOP_SOURCES, show_default=True, type=click.IntRange(1))
@click.option("--query", metavar="TOKEN")
@click.option("--between", metavar="WORD,WORD")
@click.option("--words", "by_words", is_flag=True)
@click.option("--scores", "show_scores", is_flag=True)
@limit_option
@click.option("--from", "begin", type=click.FloatRange(0), metavar="SECONDS")
@add_picture_options
@add_shading_options
@click.option("--heat-map", "as_heat_map", is_flag=True)
@json_option
@add_page_options
@click.pass_context
def look(
    context: click.Context,
    /,
    is_open: bool,
    html: Path | None,
    host: str,
    port: int | None,
    allowed_hosts: tuple[str, ...],
    without_browser: bool,
    live: bool,
    second: str | None,
    effects: bool,
    edits: tuple[str, ...],
    **given_options: Any,
) -> None:
    """The command ``jumok look``."""
    options = LookOptions(**given_options)
    page = PageOptions(is_open, html, host, port, allowed_hosts, without_browser, live, second, effects, edits)
    check_page_options(context, page)
    if page.is_open:
        open_page(page, options)
        return
    if page.html is not None:
        write_page(page.html, page, options)
        return
    if not options.arguments:
        raise click.MissingParameter(ctx=context, param=context.command.params[0])

    words = _check_options(options)
    paths = check_picture_paths(options.png, options.svg)
    output = CommandOutput(options.as_json)
    result = _inspect(options, words, output)
    if paths:
        from .look_pictures import draw_pictures

        with show_status(f"drawing {', '.join(path.name for path in paths)}", output.as_json):
            draw_pictures(paths, result, output)
    if output.as_json:
        output.print_json({**result.to_json(), "pictures": [str(path) for path in paths]})
        return
    result.print(output)
    output.print_written(paths)
    print_page_hint(options.arguments, LOOK)


def _check_options(options: LookOptions) -> tuple[str, str] | None:
    """Refuse contradicting options before a model is loaded, and return the two words of --between."""
    if options.show_scores and options.query is not None:
        raise click.UsageError("--scores describes heads, and --query one token; give one of them")
    if options.between is None:
        return None
    if options.query is None:
        raise click.UsageError("--between compares the keys of one token; give the token with --query")
    if options.by_words:
        raise click.UsageError("--between adds up the tokens of its words itself; remove --words")
    words = [word.strip() for word in options.between.split(",")]
    if len(words) != 2 or not all(words):
        raise click.UsageError(
            f"--between needs two words, separated by a comma, such as animal,street; not {options.between!r}"
        )
    return words[0], words[1]


def _inspect(options: LookOptions, words: tuple[str, str] | None, output: CommandOutput) -> LookResult:
    """Run the model, and describe its heads or, with --query, the sources of one token."""
    from jumok.lens import Lens
    from jumok.lens.capture.head_figure import select_heads
    from jumok.lens.lens_inputs import explain_failures

    loaded, labelled = load_and_prepare(options.arguments, options.limit, output.as_json, options.begin or 0.0)
    if options.begin is not None and labelled.audio is None:
        raise click.UsageError("--from is for audio; this input has no times")
    hidden = None
    if options.by_words:
        hidden = [label for side in ("source", "target") for label in labelled.list_hidden(side).values()]
    if hidden and options.skip_first and 0 in labelled.list_hidden("source"):
        output.warn(f"--words hides the first token, {hidden[0]}, so --skip-first has no effect")
        options = replace(options, skip_first=False)

    report: HeadReport | QueryReport
    between = listening = None
    with ExitStack() as stack:
        with show_status("reading", output.as_json) as update_status, explain_failures(loaded.model):
            lens = stack.enter_context(Lens(loaded, report=update_status))
            capture = lens.run(*labelled.positional, **labelled.named)
            support = lens.support  # of this input: built-in texts may not fit the model
        sites = list(capture.sites.names)
        if options.layer is not None:
            sites = [capture.sites.find(parse_layer(options.layer))]
        heads = select_heads(capture, sites, options.head)
        if options.query is None:
            report = _describe_heads(lens, capture, labelled, heads, options, output)
    if options.query is not None:
        report = build_query_report(
            capture,
            labelled,
            heads,
            options.query,
            top=options.top,
            skip_first=options.skip_first,
            by_words=options.by_words,
        )
        if words is not None:
            with show_progress("ablating heads", output.as_json) as progress:
                between = build_between_report(loaded, labelled, capture, heads, report.query, words, progress)
    if labelled.audio is not None:
        is_chosen = options.layer is not None or options.head is not None
        listening = build_listening_report(loaded, labelled, capture, heads if is_chosen else None)
    return LookResult(options, loaded, labelled, capture, support, heads, hidden, report, between, listening)


def _describe_heads(
    lens: Lens,
    capture: Capture,
    labelled: LabelledInput,
    heads: dict[str, list[int]],
    options: LookOptions,
    output: CommandOutput,
) -> HeadReport:
    """Classify the heads on this input and, for a text, on built-in texts; rank the keys of each token."""
    from jumok.lens.describe.head_profile import build_profiler
    from jumok.lens.describe.table_rows import build_table_rows

    profiler = None
    if labelled.tokens and not labelled.target:
        with show_progress("classifying heads on repeated tokens and sentences", output.as_json) as progress:
            profiler = build_profiler(lens, list(heads), progress, output.warn)
    with show_progress("looking", output.as_json) as progress:
        rows = build_table_rows(
            capture,
            labelled,
            list(heads),
            tokens=labelled.tokens,
            profiler=profiler,
            heads=heads,
            top=options.top,
            by_words=options.by_words,
            progress=progress,
        )
    return HeadReport(rows.heads, rows.tokens, options.show_scores)
