"""The command ``jumok look``: parse the options, run the lens, and print the tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults
from jumok.cli.arguments import load_and_prepare, parse_layer
from jumok.cli.command import Command, json_option, language_option, select_language, show_progress, show_status
from jumok.cli.input_summary import explain_failures, input_to_json, limit_option, summarize_input
from jumok.cli.page_hint import LOOK, print_page_hint
from jumok.cli.picture_options import add_picture_options, add_shading_options, check_picture_paths
from jumok.lab.bilingual_text import Text

from .between_report import BetweenReport, measure_last_token, parse_words
from .image_picture import draw_over_image, reads_image
from .listening_picture import draw_listening
from .listening_report import build_listening_report
from .page_options import add_page_options
from .query_report import describe_query_as_json, print_query_report

if TYPE_CHECKING:
    from jumok.draw.pooling import PooledMap
    from jumok.lens import Capture, Lens
    from jumok.lens.describe.head_profile import HeadProfiler
    from jumok.tasks.labelled_input import LabelledInput

TOKENS_SHOWN = 40  # tokens whose sources are printed


@click.command(
    cls=Command,
    short_help="Show where every head of a model attends.",
    epilog="""Examples:
  jumok look "the cat sat; the cat"
  jumok look tiny "주목은 어텐션이다. 주목은" --words
  jumok look smollm2 "When Mary and John went to the store, John gave a drink to" --top 2
  jumok look smollm2 "The animal didn't cross the street because it was too tired" --query it --skip-first
  jumok look smollm2 "The animal didn't cross the street because it was too tired" --query it --between animal,street
  jumok look smollm2 story.txt --layer 3 --head 1 --png map.png
  jumok look runs/translate-1 "Save file" --layer decoder.0.cross --json
  jumok look whisper-tiny-en talk.wav --png listening.png
  jumok look whisper-tiny-en talk.wav --from 30 --layer decoder.3.cross --head 2
  jumok look my-vit cat.png --png heads.png
  jumok look my-vit cat.png --layer 3 --query 2,5 --png patch.png
  jumok look "the cat sat; the cat" --open
  jumok look smollm2 story.txt --open --port 8899 --allow-host localhost:9000
  jumok look translator "나는 매일 학교에 간다" --html page.html
""",
)
@click.argument("arguments", metavar="[MODEL] INPUT", nargs=-1)
@click.option("--layer", help="Only this layer: its number, counted from 0 (-1 is the last), or its name.")
@click.option("--head", type=int, help="Only this head, counted from 0; -1 is the last.")
@click.option(
    "--top",
    default=defaults.TOP_SOURCES,
    show_default=True,
    type=click.IntRange(1),
    help="The number of keys to show for each token.",
)
@click.option(
    "--query",
    metavar="TOKEN",
    help="Only the keys of this token in every head, and how many heads prefer which key: its text (the last "
    "occurrence) or its position. --skip-first leaves the first key out.",
)
@click.option(
    "--between",
    metavar="WORD,WORD",
    help="With --query: how many heads put more weight on which of two words, and what their ablation changes.",
)
@click.option(
    "--words",
    "by_words",
    is_flag=True,
    help="Merge tokens into words: sum over keys, mean over queries. Hides special tokens such as [CLS] and </s>.",
)
@click.option(
    "--scores", "show_scores", is_flag=True, help="Print all scores that the kinds of heads are derived from."
)
@limit_option
@click.option(
    "--from",
    "begin",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Of a recording that is longer than the model reads at once (30 s), look at the part that begins here.",
)
@add_picture_options(
    "the head, the heads of the layer, or all heads with a row for each layer; for an image, weights over it, and for "
    "audio its spectrogram with words and weights,"
)
@add_shading_options
@click.option("--heat-map", "as_heat_map", is_flag=True, help="For an image or audio, draw queries by keys instead.")
@language_option
@json_option
@add_page_options
def look(
    arguments: tuple[str, ...],
    layer: str | None,
    head: int | None,
    top: int,
    query: str | None,
    between: str | None,
    by_words: bool,
    show_scores: bool,
    limit: int | None,
    begin: float | None,
    png: Path | None,
    svg: Path | None,
    scale: str,
    skip_first: bool,
    as_heat_map: bool,
    language: str | None,
    as_json: bool,
) -> None:
    """Show where every head of MODEL (default: tiny) attends when it reads INPUT: a text, a .txt file, an image,
    audio, numbers, or - for standard input. Prints the kind of each head, and the keys with the largest weights for
    each token. Pictures of an image show its patches: by default where the class token looks in the last layer."""
    from jumok.draw import AXIS_NAMES
    from jumok.errors import ArgumentError
    from jumok.lens import Lens
    from jumok.lens.capture.head_figure import save_heads, select_heads
    from jumok.lens.describe import table_rows
    from jumok.lens.describe.query_sources import compare_keys, find_query, rank_query_sources

    selected = select_language(language)
    paths = check_picture_paths(png, svg)
    if show_scores and query is not None:
        raise click.UsageError("--scores describes heads, and --query one token; give one of them")
    words = _check_between(between, query, by_words)
    loaded, labelled = load_and_prepare(arguments, limit, as_json, begin or 0.0)
    if begin is not None and labelled.audio is None:
        raise click.UsageError("--from is for audio; this input has no times")
    hidden = _list_hidden(labelled) if by_words else []
    is_first_hidden = by_words and 0 in labelled.list_hidden("source")
    if is_first_hidden and skip_first:
        click.echo(f"jumok: --words hides the first token, {hidden[0]}, so --skip-first has no effect", err=True)
        skip_first = False

    with ExitStack() as stack:
        with show_status("reading", as_json) as update_status, explain_failures(loaded.model):
            lens = stack.enter_context(Lens(loaded, report=update_status))
            capture = lens.run(*labelled.positional, **labelled.named)
            support = lens.support
        sites = _select_sites(capture, layer)
        heads_by_site = select_heads(capture, sites, head)
        if query is None:
            with show_progress("classifying heads on repeated tokens and sentences", as_json) as report:
                profiler = _profile_heads(lens, labelled, sites, report)

    with show_progress("looking", as_json) as report:
        if query is None:
            heads, tokens = table_rows.build_table_rows(
                capture,
                labelled,
                sites,
                tokens=labelled.tokens,
                profiler=profiler,
                heads=heads_by_site,
                top=top,
                by_words=by_words,
                progress=report,
            )
        else:
            position = find_query(capture, labelled, sites, query, by_words)
            sources = rank_query_sources(
                capture,
                labelled,
                sites,
                position,
                heads=heads_by_site,
                top=top,
                skip_first=skip_first,
                by_words=by_words,
            )

    listening = None
    if labelled.audio is not None:
        is_chosen = layer is not None or head is not None
        listening = build_listening_report(loaded, labelled, capture, heads_by_site if is_chosen else None)
    report_between = None
    if words is not None:
        with show_progress("ablating heads", as_json) as report:
            choice = compare_keys(capture, labelled, sites, position, words, heads=heads_by_site)
            predicted, effects = measure_last_token(loaded, labelled, position, report)
        report_between = BetweenReport(position, choice, predicted, effects)

    def read_map(site: str, index: int, limit: int) -> PooledMap:
        return table_rows.pool_labelled_head(
            capture, labelled, site, index, limit, by_words=by_words, first_apart=skip_first
        )

    figures = [str(path) for path in paths]
    with show_status(f"drawing {', '.join(path.name for path in paths)}", as_json or not paths):
        is_drawn = False
        if paths and reads_image(loaded) and not as_heat_map:
            site, drawn_query = None if layer is None else sites[0], None if query is None else position
            try:
                draw_over_image(paths, loaded, labelled, capture, layer=site, head=head, query=drawn_query, scale=scale)
                is_drawn = True
            except ArgumentError as error:  # such as a model of transformers that merges patches
                click.echo(f"jumok: {error}; the picture shows queries by keys", err=True)
        if paths and listening is not None and not as_heat_map:
            draw_listening(
                paths,
                labelled,
                capture,
                listening,
                by_words=by_words,
                scale=scale,
                language=selected,
                model=arguments[0],
            )
            is_drawn = True
        for path in [] if is_drawn else paths:
            save_heads(
                path,
                heads_by_site,
                capture.sites,
                read_map,
                scale=scale,
                skip_first=skip_first,
                caption=_describe_rows(capture, heads_by_site, hidden, selected),
                axis_names=AXIS_NAMES[selected],
            )
    if as_json:
        fields = {"model": loaded.family, **input_to_json(labelled)}
        if by_words:
            fields["hidden"] = hidden
        if listening is not None:
            fields["listening"] = listening.to_json()
        fields["level"] = support.level if support is not None else "own family"
        if query is None:
            fields |= {"heads": heads, "tokens": tokens}
        else:
            fields |= describe_query_as_json(position, sources, skip_first)
        if report_between is not None:
            fields["between"] = report_between.to_json()
        click.echo(json.dumps({**fields, "pictures": figures}, ensure_ascii=False))
        return

    click.echo(f"{loaded.family}, {summarize_input(labelled)}\n")
    if hidden:
        names = ", ".join(dict.fromkeys(hidden))
        hiding = Text(
            f"hidden by --words: {names}; the rows of words sum to 1 only together with the weight on them\n",
            f"--words가 숨긴 토큰: {names}. 단어의 행은 이 토큰의 가중치까지 더해야 합이 1입니다\n",
        )
        click.echo(hiding.select(selected))
    if capture.has_only_maps and support is not None:
        click.echo(f"maps only: the model returned these maps itself, and edits are not possible ({support.reason})\n")
    if query is None:
        _print_heads(heads, selected)
        if show_scores:
            _print_scores(heads)
        if listening is not None:
            listening.print(selected)
        else:
            _print_sources(tokens, selected)
    elif report_between is not None:
        report_between.print(selected)
    else:
        print_query_report(position, sources, skip_first, selected)
    for figure in figures:
        click.echo(f"wrote {figure}")
    print_page_hint(arguments, LOOK, selected)


def _check_between(between: str | None, query: str | None, by_words: bool) -> tuple[str, str] | None:
    """Return the two words of --between; None without it. Runs before a model is loaded."""
    if between is None:
        return None
    if query is None:
        raise click.UsageError("--between compares the keys of one token; give the token with --query")
    if by_words:
        raise click.UsageError("--between adds up the tokens of its words itself; remove --words")
    return parse_words(between)


def _select_sites(capture: Capture, layer: str | None) -> list[str]:
    """Return the names of the attentions to show; all without ``layer``."""
    if layer is None:
        return list(capture.sites.names)
    return [capture.sites.find(parse_layer(layer))]


def _describe_rows(capture: Capture, sites: Iterable[str], hidden: list[str], language: str) -> str:
    """Return what a picture must say about its rows: which tokens are hidden, and what a decoder's rows stand for."""
    from jumok.draw.panel import join_captions
    from jumok.lens.sites import TARGET

    texts = []
    if any(capture.sites.get_sides(site).queries == TARGET for site in sites):
        rows = Text(
            "a row of the decoder is the token that it read last; the next one is written",
            "디코더의 행은 마지막으로 읽은 토큰이며, 그다음 토큰을 씁니다",
        )
        texts.append(rows.select(language))
    if hidden:
        names = ", ".join(dict.fromkeys(hidden))
        hiding = Text(
            f"hidden: {names}, so rows can sum to less than 1", f"숨긴 토큰: {names}. 행의 합이 1보다 작을 수 있습니다"
        )
        texts.append(hiding.select(language))
    return join_captions(*texts)


def _list_hidden(labelled: LabelledInput) -> list[str]:
    """Return the special tokens that are not shown if tokens are merged into words."""
    return [label for side in ("source", "target") for label in labelled.list_hidden(side).values()]


def _profile_heads(
    lens: Lens, labelled: LabelledInput, sites: list[str], report: Callable[[int, int], None] | None
) -> HeadProfiler | None:
    """Return the heads' profile on repeated tokens and on sentences; None unless the model reads only text."""
    from jumok.data.tokenizers.token_labels import group_words
    from jumok.lens.describe.head_profile import HeadProfiler
    from jumok.models import Model

    if not labelled.tokens or labelled.target or lens.tokenizer is None:
        return None
    tokenizer = lens.tokenizer

    def tokenize_words(text: str) -> tuple[list[int], list[range]]:
        token_ids = tokenizer.encode(text)
        # special tokens around the text do not belong to a word
        words = [positions for word, positions in group_words(tokenizer, token_ids) if word in text]
        return token_ids, words

    try:
        return HeadProfiler(lens, tokenize_words, sites, report)
    except Exception as error:  # random tokens or the sentences may not fit a model of transformers
        if isinstance(lens.model, Model):
            raise
        click.echo(f"jumok: heads are classified on this text only: {error}", err=True)
        return None


def _print_heads(heads: list[dict[str, Any]], language: str) -> None:
    width = max([5, *(len(str(row["layer"])) for row in heads)])
    click.echo(f"{'layer':>{width}}  head  kind         without 1st  on repeats   entropy  distance    future")
    for row in heads:
        names = (row.get(name, "-") for name in ("kind", "kind_without_first", "kind_on_repeats"))
        kinds = "  ".join(f"{name:<11}" for name in names)
        distances = f"{'-':>8}  {'-':>8}"
        if "kind" in row:
            distances = f"{row['distance']:8.1f}  {row['future']:8.6f}"
        click.echo(f"{row['layer']!s:>{width}}  {row['head']:>4}  {kinds}  {row['entropy']:7.2f}  {distances}")

    legend = Text(
        "without 1st: the kind without the first key, often an attention sink; entropy in nats, distance in tokens, "
        "future: the largest weight of a row on later tokens; ",
        "kind: 헤드의 종류. without 1st: 첫 키(흔히 어텐션 싱크)를 뺀 종류. on repeats: 반복되는 난수 토큰에서의 종류. "
        "entropy: 엔트로피(nat). distance: 거리(토큰). future: 뒤의 토큰에 둔 가장 큰 가중치. ",
    ).select(language)
    legend += _describe_row_sums(heads, language)
    if any("kind" not in row for row in heads):
        crossing = Text("; heads with a - attend from one input to another", ". - 표시된 헤드는 다른 입력을 봅니다")
        legend += crossing.select(language)
    click.echo(legend)


def _print_scores(heads: list[dict[str, Any]]) -> None:
    """Print the scores of each head in two lines: with all keys, and without the first one."""
    from jumok.lens.describe.head_kinds import KEY_KINDS, OTHER_KINDS

    thresholds = {**KEY_KINDS, **OTHER_KINDS}
    names = [name for name in thresholds if any(name in row.get("scores", {}) for row in heads)]
    if not names:
        click.echo("\nno scores: the heads attend from one input to another")
        return
    click.echo("\nscores: all keys, and below without the first key (-):")
    click.echo("  " + " " * 12 + "  ".join(names))
    limits = "  ".join(f"{thresholds[name]:>{len(name)}.2f}" for name in names)
    click.echo(f"  {'threshold':<12}{limits}")
    for row in heads:
        for title, field in ((f"{row['layer']}.{row['head']}", "scores"), ("-", "scores_without_first")):
            cells = [row.get(field, {}).get(name) for name in names]
            texts = [
                f"{'' if cell is None else format(cell, '.2f'):>{len(name)}}"
                for name, cell in zip(names, cells, strict=True)
            ]
            click.echo(f"  {title:<12}{'  '.join(texts)}".rstrip())


def _describe_row_sums(heads: list[dict[str, Any]], language: str) -> str:
    worst = max(heads, key=lambda row: float(row["sums"]))
    if worst["sums"] < 1e-4:
        difference = f"{worst['sums']:.0e}"
        return Text(f"every row sums to 1 (within {difference})", f"모든 행의 합은 1(오차 {difference})").select(
            language
        )
    name, difference = f"{worst['layer']}.{worst['head']}", f"{worst['sums']:.2g}"
    return Text(
        f"rows of {name} sum to 1 within {difference}", f"{name}의 행의 합은 오차 {difference} 안에서 1"
    ).select(language)


def _print_sources(tokens: list[dict[str, Any]], language: str) -> None:
    hidden = len(tokens) - TOKENS_SHOWN
    title = Text("where tokens look most (layer.head)", "토큰이 가장 많이 보는 곳(층.헤드)")
    if hidden > 0:
        title = Text(
            f"where the last {TOKENS_SHOWN} tokens look most; --json prints the other {hidden:,} too (layer.head)",
            f"마지막 토큰 {TOKENS_SHOWN}개가 가장 많이 보는 곳. 나머지 {hidden:,}개는 --json이 출력합니다(층.헤드)",
        )
    click.echo(f"\n{title.select(language)}:")
    has_target = any(row["side"] == "target" for row in tokens)
    side = None
    for row in tokens[-TOKENS_SHOWN:]:
        if has_target and row["side"] != side:
            side = row["side"]
            click.echo(f" {side}:")
        sources = "   ".join(
            f"{source['label']}[{source['key']}] {source['weight']:.2f} ({source['layer']}.{source['head']})"
            for source in row["sources"]
        )
        click.echo(f"  {row['label']}[{row['token']}] <- {sources}")
