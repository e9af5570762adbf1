"""The command ``jumok look``: show where every head attends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok import defaults

from .arguments import load_and_prepare
from .command import Command, json_option, show_progress, show_status
from .input_summary import input_to_json, limit_option, summarize_input

if TYPE_CHECKING:
    from jumok.lens import Capture, Lens
    from jumok.lens.describe.head_profile import HeadProfiler
    from jumok.tasks.labelled_input import LabelledInput

TOKENS_SHOWN = 40  # tokens whose sources are printed
HEADS_DRAWN = 48  # in one grid; with more heads the maps are too small to read


@click.command(
    cls=Command,
    short_help="Show where every head of a model attends.",
    epilog="""Examples:
  jumok look "the cat sat; the cat"
  jumok look tiny "주목은 어텐션이다. 주목은" --words
  jumok look smollm2 "When Mary and John went to the store, John gave a drink to" --top 2
  jumok look smollm2 story.txt --layer 3 --head 1 --png map.png
  jumok look runs/translate-1 "Save file" --layer decoder.0.cross --json
  jumok look my-vit cat.png --png heads.png
""",
)
@click.argument("arguments", metavar="[MODEL] INPUT", nargs=-1, required=True)
@click.option("--layer", help="Only this layer: its number or its name.")
@click.option("--head", type=click.IntRange(0), help="Only this head, counted from 0.")
@click.option(
    "--top",
    default=defaults.TOP_SOURCES,
    show_default=True,
    type=click.IntRange(1),
    help="The number of keys to show for each token.",
)
@click.option("--words", "by_words", is_flag=True, help="Merge tokens into words: sum over keys, mean over queries.")
@limit_option
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), help="Draw one head, or a grid of all heads.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="The same as SVG.")
@json_option
def look(
    arguments: tuple[str, ...],
    layer: str | None,
    head: int | None,
    top: int,
    by_words: bool,
    limit: int,
    png: Path | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Show where every head of MODEL (default: tiny) attends when it reads INPUT: a text, a .txt file, an image,
    numbers, or - for standard input. Prints the kind of each head, and the keys with the largest weights for each
    token."""
    from jumok.lens import Lens
    from jumok.lens.describe import table_rows

    _check_figure_path(png, ".png")
    _check_figure_path(svg, ".svg")
    loaded, labelled = load_and_prepare(arguments, limit, as_json)

    with Lens(loaded) as lens:
        with show_status("reading", as_json):
            capture = lens.run(*labelled.inputs)
        sites = _select_sites(capture, layer, head)
        with show_progress("classifying heads on repeated tokens and sentences", as_json) as report:
            profiler = _profile_heads(lens, labelled, sites, report)

    with show_progress("looking", as_json) as report:
        heads, tokens = table_rows.build_table_rows(
            capture,
            labelled,
            sites,
            tokens=labelled.tokens,
            profiler=profiler,
            head=head,
            top=top,
            by_words=by_words,
            progress=report,
        )

    figures = [_draw_heads(path, capture, labelled, sites, head, by_words) for path in (png, svg) if path is not None]
    if as_json:
        fields = {"model": loaded.family, **input_to_json(labelled), "heads": heads, "tokens": tokens}
        click.echo(json.dumps({**fields, "pictures": figures}, ensure_ascii=False))
        return

    click.echo(f"{loaded.family}, {summarize_input(labelled)}\n")
    _print_heads(heads)
    _print_sources(tokens)
    for figure in figures:
        drawn = f" (the first {HEADS_DRAWN} of {len(heads)} heads)" if len(heads) > HEADS_DRAWN else ""
        click.echo(f"wrote {figure}{drawn}")


def _check_figure_path(path: Path | None, suffix: str) -> None:
    """Raise an error for a path that cannot be written, before a model is loaded."""
    if path is None:
        return
    if path.suffix != suffix:
        raise click.UsageError(f"--{suffix[1:]} writes {suffix[1:].upper()}; {path} must end in {suffix}")
    if not path.parent.is_dir():
        raise click.UsageError(f"cannot write {path.name}: there is no folder {path.parent}")


def _select_sites(capture: Capture, layer: str | None, head: int | None) -> list[str]:
    """Return the names of the attentions to show; all without ``layer``."""
    sites = list(capture.sites.names)
    if layer is not None:
        sites = [capture.sites.find(int(layer) if layer.isdigit() else layer)]
    if head is not None:
        for site in sites:
            capture.row(site, head, 0)  # raises if the layer has no such head
    return sites


def _profile_heads(
    lens: Lens, labelled: LabelledInput, sites: list[str], report: Callable[[int, int], None] | None
) -> HeadProfiler | None:
    """Return the heads' profile on repeated tokens and on sentences; None unless the model reads only text."""
    from jumok.data.tokenizers.token_labels import group_words
    from jumok.lens.describe.head_profile import HeadProfiler

    if not labelled.tokens or labelled.target or lens.loaded is None:
        return None
    tokenizer = lens.loaded.require_tokenizer()

    def tokenize_words(text: str) -> tuple[list[int], list[range]]:
        token_ids = tokenizer.encode(text)
        # special tokens around the text do not belong to a word
        words = [positions for word, positions in group_words(tokenizer, token_ids) if word in text]
        return token_ids, words

    return HeadProfiler(lens, tokenize_words, sites, report)


def _draw_heads(
    path: Path, capture: Capture, labelled: LabelledInput, sites: list[str], head: int | None, by_words: bool
) -> str:
    """Draw one head as a heat map with numbers, or several heads as a grid, and return the path."""
    import torch

    from jumok import draw
    from jumok.errors import ArgumentError
    from jumok.lens.describe import table_rows

    heads = [
        (site, index) for site in sites for index in range(capture.attentions[site].heads) if head in (None, index)
    ]
    if len(heads) == 1:
        site, index = heads[0]
        weights, queries, keys = table_rows.label_weights(capture, labelled, site, index, by_words)
        return str(draw.save_heat_map(path, weights, queries, keys, title=f"{site}, head {index}"))

    maps = [table_rows.label_weights(capture, labelled, site, index, by_words) for site, index in heads[:HEADS_DRAWN]]
    if len({weights.shape for weights, _, _ in maps}) > 1:
        raise ArgumentError("these layers attend to different inputs; draw one of them: --layer NAME")
    titles = [f"{capture.sites.get_layer(site)}.{index}" for site, index in heads[:HEADS_DRAWN]]
    title = "layer.head: where each row looks"
    if len(heads) > HEADS_DRAWN:
        title += f"; the first {HEADS_DRAWN} of {len(heads)} heads"
    _, queries, keys = maps[0]
    weights = torch.stack([weights for weights, _, _ in maps])
    return str(draw.save_head_grid(path, weights, queries, keys, titles=titles, title=title))


def _print_heads(heads: list[dict[str, Any]]) -> None:
    width = max([5, *(len(str(row["layer"])) for row in heads)])
    click.echo(f"{'layer':>{width}}  head  kind         on repeats   entropy  distance    future")
    for row in heads:
        kinds = f"{row.get('kind', '-'):<11}  {row.get('kind_on_repeats', '-'):<11}"
        distances = f"{'-':>8}  {'-':>8}"
        if "kind" in row:
            distances = f"{row['distance']:8.1f}  {row['future']:8.6f}"
        click.echo(f"{row['layer']!s:>{width}}  {row['head']:>4}  {kinds}  {row['entropy']:7.2f}  {distances}")

    legend = "entropy in nats, distance in tokens, future: the largest weight of a row on later tokens; "
    legend += _describe_row_sums(heads)
    if any("kind" not in row for row in heads):
        legend += "; heads with a - attend from one input to another"
    click.echo(legend)


def _describe_row_sums(heads: list[dict[str, Any]]) -> str:
    worst = max(heads, key=lambda row: float(row["sums"]))
    if worst["sums"] < 1e-4:
        return f"every row sums to 1 (within {worst['sums']:.0e})"
    return f"rows of {worst['layer']}.{worst['head']} sum to 1 within {worst['sums']:.2g}"


def _print_sources(tokens: list[dict[str, Any]]) -> None:
    hidden = len(tokens) - TOKENS_SHOWN
    title = "where tokens look most"
    if hidden > 0:
        title = f"where the last {TOKENS_SHOWN} tokens look most; --json prints the other {hidden:,} too"
    click.echo(f"\n{title} (layer.head):")
    for row in tokens[-TOKENS_SHOWN:]:
        sources = "   ".join(
            f"{source['label']}[{source['key']}] {source['weight']:.2f} ({source['layer']}.{source['head']})"
            for source in row["sources"]
        )
        click.echo(f"  {row['label']}[{row['token']}] <- {sources}")
