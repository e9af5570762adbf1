"""jumok look: where every head looks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import load_and_prepare
from .command import Command, show_progress, show_status

if TYPE_CHECKING:
    from jumok.lens import Capture
    from jumok.tasks.labelled_input import LabelledInput

LIMIT = click.option(
    "--limit",
    default=32,
    show_default=True,
    type=click.IntRange(1),
    help="Of a model that answers: at most so many tokens of its answer.",
)
SHOWN = 40  # tokens whose sources are printed
DRAWN = 48  # heads of a grid; more are too small to see


@click.command(
    cls=Command,
    short_help="See where every head of a model looks.",
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
@click.option("--layer", help="Only this layer: its number, or its name.")
@click.option("--head", type=click.IntRange(0), help="Only this head, counted from 0.")
@click.option("--top", default=3, show_default=True, type=click.IntRange(1), help="So many sources for each token.")
@click.option("--words", "by_words", is_flag=True, help="Join tokens to words: sum over keys, mean over queries.")
@LIMIT
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), help="Draw one head, or all of them.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="The same as SVG.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
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
    """Where every head of MODEL (tiny, where none is named) looks when it reads INPUT: a text, a .txt file, a picture,
    numbers, - for standard input. Prints what kind of head each is, and for each token where it looks most."""
    from jumok.lens import Lens
    from jumok.lens.describe import table_rows

    for path, kind in ((png, ".png"), (svg, ".svg")):
        if path is not None and path.suffix != kind:
            raise click.UsageError(f"--{kind[1:]} writes {kind[1:].upper()}; {path} must end in {kind}")
        if path is not None and not path.parent.is_dir():
            raise click.UsageError(f"there is no folder {path.parent} to write {path.name} into")
    loaded, seen = load_and_prepare(arguments, limit, as_json)
    with Lens(loaded) as lens:
        with show_status("reading", as_json):
            run = lens.run(*seen.inputs)
        sites = run.sites.names if layer is None else [run.sites.find(int(layer) if layer.isdigit() else layer)]
        if head is not None:
            for site in sites:
                run.row(site, head, 0)  # whoever asks for a head that is not there is told now
        with show_progress("trying heads on repeats and sentences", as_json) as tell:
            tried = _tried(lens, seen, sites, tell)
    with show_progress("looking", as_json) as tell:
        heads, places = table_rows.rows(
            run, seen, sites, ids=seen.tokens, tried=tried, head=head, top=top, by_words=by_words, progress=tell
        )
    told: dict[str, Any] = {"model": loaded.family, **sides(seen)}
    told |= {"heads": heads, "tokens": places}
    told["pictures"] = [_drawn(path, run, seen, sites, head, by_words) for path in (png, svg) if path is not None]
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
    else:
        _print(told)


def sides(seen: LabelledInput) -> dict[str, Any]:
    """What was read and answered, as JSON."""
    told: dict[str, Any] = {"source": seen.source, "unknown": seen.unknown}
    if seen.target:
        told |= {"target": seen.target, "answer": seen.answer, "unfinished": seen.unfinished}
    return told


def _tried(lens: Any, seen: LabelledInput, sites: list[str], tell: Callable[[int, int], None] | None) -> Any:
    """Of a model that reads a text and nothing else: its heads on more than this text."""
    from jumok.data.tokenizers.token_labels import group_words
    from jumok.lens.describe.head_profile import HeadProfiler

    if not seen.tokens or seen.target:
        return None
    tokenizer = lens.loaded.tokenizer

    def tokens_of(text: str) -> tuple[list[int], list[range]]:
        ids = tokenizer.encode(text)
        return ids, [
            places for word, places in group_words(tokenizer, ids) if word in text
        ]  # what is around it is no word

    return HeadProfiler(lens, tokens_of, sites, tell)


def _drawn(path: Path, run: Capture, seen: LabelledInput, sites: list[str], head: int | None, by_words: bool) -> str:
    """One head as a map with its numbers, or all of them as a grid of small ones."""
    import torch

    from jumok import draw
    from jumok.errors import ArgumentError
    from jumok.lens.describe import table_rows

    places = [(site, one) for site in sites for one in range(run.attentions[site].heads) if head in (None, one)]
    if len(places) == 1:
        weights, queries, keys = table_rows.pattern(run, seen, *places[0], by_words)
        title = f"{places[0][0]}, head {places[0][1]}"
        return str(draw.save_heat_map(path, weights, queries, keys, title=title))
    some = places[:DRAWN]
    maps = [table_rows.pattern(run, seen, *place, by_words) for place in some]
    if len({one.shape for one, _, _ in maps}) > 1:
        raise ArgumentError("these layers look at different things; draw one of them: --layer NAME")
    names = [f"{run.sites.get_layer(site)}.{one}" for site, one in some]
    rest = f"; the first {DRAWN} of {len(places)} heads" if len(places) > DRAWN else ""
    title = f"layer.head: where each row looks{rest}"
    weights = torch.stack([one for one, _, _ in maps])
    return str(draw.save_head_grid(path, weights, maps[0][1], maps[0][2], titles=names, title=title))


def _print(told: dict[str, Any]) -> None:
    click.echo(f"{told['model']}, {headline(told)}\n")
    width = max([5, *(len(str(row["layer"])) for row in told["heads"])])
    click.echo(f"{'layer':>{width}}  head  kind         on repeats   entropy  distance    future")
    for row in told["heads"]:
        kinds = f"{row.get('kind', '-'):<11}  {row.get('kind_on_repeats', '-'):<11}"
        own = f"{row['distance']:8.1f}  {row['future']:8.6f}" if "kind" in row else f"{'-':>8}  {'-':>8}"
        click.echo(f"{row['layer']!s:>{width}}  {row['head']:>4}  {kinds}  {row['entropy']:7.2f}  {own}")
    other = "" if all("kind" in row for row in told["heads"]) else "; heads with a - look at something else than a text"
    click.echo(
        f"entropy in nats, distance in tokens, future: the most that a row puts on later tokens; {_sums(told)}{other}"
    )
    more = len(told["tokens"]) - SHOWN
    which = f"the last {SHOWN} tokens look most; {more:,} more are in --json" if more > 0 else "tokens look most"
    click.echo(f"\nwhere {which} (layer.head):")
    for entry in told["tokens"][-SHOWN:]:
        sources = "   ".join(
            f"{one['label']}[{one['key']}] {one['weight']:.2f} ({one['layer']}.{one['head']})"
            for one in entry["sources"]
        )
        click.echo(f"  {entry['label']}[{entry['token']}] <- {sources}")
    drawn = f" (the first {DRAWN} of {len(told['heads'])} heads)" if len(told["heads"]) > DRAWN else ""
    for path in told["pictures"]:
        click.echo(f"wrote {path}{drawn}")


def _sums(told: dict[str, Any]) -> str:
    worst = max(told["heads"], key=lambda row: float(row["sums"]))
    if worst["sums"] < 1e-4:
        return f"every row sums to 1 (within {worst['sums']:.0e})"
    return f"rows of {worst['layer']}.{worst['head']} sum to 1 within {worst['sums']:.2g}"


def headline(told: dict[str, Any]) -> str:
    """What was read, and what came of it."""
    count = len(told["source"])
    read = f"{count:,} place{'s' if count != 1 else ''}"
    if told["unknown"]:
        read += f" ({told['unknown']:,} of them unknown to its tokenizer)"
    if "target" not in told:
        return read
    return f"{read}; answer: {told['answer']}" + (
        f" (the first {len(told['target']) - 1} tokens: --limit)" if told["unfinished"] else ""
    )
