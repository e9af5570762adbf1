"""The cost of a model beside the memory of this machine, and of a GPT beside other kinds of layers, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jumok.bilingual_text import Text, Texts
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.result import Cell, Result, Table
from jumok.models import Config
from jumok.models.gpt import GPTConfig
from jumok.reporting import Progress

from .layer_growth import KERNEL, LayerGrowth, compare_layers, count_layer_operations
from .measurements import read_available_memory
from .model_cost import ModelCost, compute_cost

TEXTS = Texts(__file__)
LAYER_NAMES = TEXTS.group("layer_names", kernel=KERNEL)
TEXT_LENGTHS = (1024, 4096, 16384)  # the lengths that articles give for the memory of attention weights
MEASURED_TOKENS = 1024  # times are measured with at most this many tokens, and with twice as many
TOLERANCE = 1.5  # measured growth that differs by more than this factor from the theory is reported
PLOTTED_SHARES = (1, 2, 4, 6, 8)  # eighths of the length


def report_cost(
    config: Config,
    tokens: int | None = None,
    batch: int = 1,
    *,
    measure: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Compute the cost of a model and compare it with the memory of this machine. Nothing is allocated or run, except
    with ``measure=True``: then three kinds of layers are timed, with at most 1,024 and 2,048 tokens.

    Args:
        config: The config of a model of any family; a GPT is also compared with other kinds of layers.
        tokens: The number of tokens of each text; an encoder-decoder reads as many as it writes. None = the longest
            text of the model, or 128.
        batch: The number of texts or images.
        measure: Only for a GPT.
        seed: The seed of the random inputs of the measurement.

    >>> report = report_cost(GPTConfig(width=512, heads=8, layers=6, hidden=2048, length=16384), 16384)
    >>> format_bytes(report.numbers["cost"].head_weight_bytes)
    '1 GB'
    """
    cost, inputs = compute_cost(config, tokens, batch)
    available = read_available_memory()
    needs = {}
    if cost.forward_bytes is not None:
        needs["run"] = cost.parameter_bytes + cost.forward_bytes + (cost.cache_bytes or 0)
        if cost.weight_bytes is not None:
            needs["run, weights kept"] = needs["run"] + cost.weight_bytes
    if cost.training_bytes is not None:
        needs["train"] = cost.training_bytes
    numbers: dict[str, Any] = {
        "family": config.family,
        "tokens": inputs.tokens,
        "batch": batch,
        "inputs": inputs.description,
        "cost": cost,
        "available": available,
        "needs": needs,
    }
    tables = [_build_count_table(cost), _build_memory_table(cost, needs, inputs.description, available)]
    sentences = [TEXTS("own_counts", family=config.family), *_list_misfits(needs, available)]
    if "operations" in cost.notes:
        sentences.append(cost.notes["operations"])
    if not isinstance(config, GPTConfig):
        return Result(numbers, tables, sentences, [], partial(_draw_growth, config, inputs.tokens, batch))

    assert inputs.tokens is not None
    layer_tokens = min(inputs.tokens, MEASURED_TOKENS) if measure else inputs.tokens
    layers = compare_layers(layer_tokens, config.width, measure=measure, seed=seed, progress=progress)
    numbers |= {"width": config.width, "heads": config.heads, "layers": layers, "layer_tokens": layer_tokens}
    tables += [_build_weights_table(config.heads), _build_layer_table(layers, layer_tokens, config.width)]
    share = cost.operations["scores and mixture"] / cost.operation_count
    relation = "<" if inputs.tokens < config.width else ">="
    sentences += [
        TEXTS("cheaper", tokens=inputs.tokens, relation=relation, width=config.width),
        TEXTS("square", share=share),
    ]
    exceptions = list(_list_growth_exceptions(layers))
    draw = partial(_draw_times, layers, layer_tokens, config.width) if measure else partial(_draw_layers, config.width)
    return Result(numbers, tables, sentences, exceptions, draw)


def _build_count_table(cost: ModelCost) -> Table:
    """Return a table of parameters and operations, by part."""
    parts = TEXTS.group("parts")
    rows: list[Sequence[Cell]] = []
    for kind, counts in (("parameters", cost.parameters), ("operations", cost.operations)):
        total = sum(counts.values())
        rows.append((TEXTS(f"counts.{kind}"), f"{total:,}", ""))
        for part, number in counts.items():
            if number:
                rows.append((TEXTS("counts.part", name=parts[part]), f"{number:,}", f"{number / total:.0%}"))
    return Table(TEXTS.list("counts.columns"), rows)


def _build_memory_table(cost: ModelCost, needs: Mapping[str, int], inputs: Text, available: int | None) -> Table:
    undefined = TEXTS("memory.undefined")
    rows: list[Sequence[Cell]] = []
    for field, name in TEXTS.group("sizes").items():
        number = getattr(cost, field)
        rows.append((name, cost.notes.get(field, undefined) if number is None else format_bytes(number), ""))
    for use, name in TEXTS.group("uses").items():
        need = needs.get(use)
        fit: Cell = "?"
        if need is not None and available is not None:
            fit = TEXTS("memory.fits") if need <= available else TEXTS("memory.too_large")
        rows.append((name, undefined if need is None else format_bytes(need), fit))
    title = TEXTS("memory.title", inputs=inputs, available="?" if available is None else format_bytes(available))
    return Table(TEXTS.list("memory.columns"), rows, title)


def _list_misfits(needs: Mapping[str, int], available: int | None) -> Iterator[Text]:
    for use, number in needs.items():
        if available is not None and number > available:
            name = TEXTS(f"uses.{use}")
            yield TEXTS("misfit", use=name, size=format_bytes(number), available=format_bytes(available))


def _build_weights_table(heads: int) -> Table:
    rows = [
        (f"{tokens:,}", format_bytes(4 * tokens**2), format_bytes(4 * tokens**2 * heads)) for tokens in TEXT_LENGTHS
    ]
    return Table(TEXTS.list("weights.columns", heads=heads), rows, TEXTS("weights.title"))


def _build_layer_table(layers: Sequence[LayerGrowth], tokens: int, width: int) -> Table:
    columns = list(TEXTS.list("layers.columns"))
    if layers[0].milliseconds is not None:
        columns += TEXTS.list("layers.measured")
    rows = []
    for layer in layers:
        cells: list[Cell] = [LAYER_NAMES[layer.name], layer.order, format_count(layer.operations)]
        cells += [layer.path, layer.steps, f"x{layer.longer:g}", f"x{layer.wider:g}"]
        if layer.milliseconds is not None:
            cells += [f"{layer.milliseconds:.2f}", f"x{layer.measured_longer:.1f}", f"x{layer.measured_wider:.1f}"]
        rows.append(cells)
    return Table(columns, rows, TEXTS("layers.title", tokens=tokens, width=width))


def _list_growth_exceptions(layers: Sequence[LayerGrowth]) -> Iterator[Text]:
    """Name measured growth that differs from the theory."""
    for layer in layers:
        for doubled, theory, measured in (
            ("2n", layer.longer, layer.measured_longer),
            ("2d", layer.wider, layer.measured_wider),
        ):
            if measured is not None and not theory / TOLERANCE <= measured <= theory * TOLERANCE:
                name = LAYER_NAMES[layer.name]
                yield TEXTS("growth", layer=name, doubled=doubled, measured=measured, theory=theory)


def _draw_layers(width: int, target: str | Path, language: str) -> Path:
    """Draw the operations of the three kinds of layers over the length, relative to the recurrent layer."""
    lengths = [max(1, width * factor // 4) for factor in (1, 2, 4, 6, 8, 12, 16)]

    def divide_by_recurrent(name: str, tokens: int) -> float:
        return count_layer_operations(name, tokens, width) / count_layer_operations("RNN", tokens, width)

    series = {
        text.select(language): [(tokens, divide_by_recurrent(name, tokens)) for tokens in lengths]
        for name, text in LAYER_NAMES.items()
    }
    labels = TEXTS.select("layer_picture", language, width=width)
    return save_line_plot(series, target, title=labels["title"], across=labels["across"], vertical=labels["vertical"])


def _draw_times(layers: Sequence[LayerGrowth], tokens: int, width: int, target: str | Path, language: str) -> Path:
    """Draw the measured times for the length and for twice the length, and the times that the operations predict."""
    labels = TEXTS.select("time_picture", language, width=width)
    series: dict[str, list[tuple[float, float]]] = {}
    for layer in layers:
        assert layer.milliseconds is not None and layer.measured_longer is not None
        name = LAYER_NAMES[layer.name].select(language)
        begin = (tokens, layer.milliseconds)
        for kind, factor in (("measured", layer.measured_longer), ("theory", layer.longer)):
            series[f"{name}, {labels[kind]}"] = [begin, (2 * tokens, layer.milliseconds * factor)]
    return save_line_plot(series, target, title=labels["title"], across=labels["across"], vertical="ms")


def _draw_growth(config: Config, tokens: int | None, batch: int, target: str | Path, language: str) -> Path:
    """Draw the operations over the length of the text: all, and those of scores and mixture."""
    if tokens is None:
        raise ArgumentError(f"{config.family} reads images of one size; there is no cost over the length to draw")
    labels = TEXTS.select("growth_picture", language, family=config.family)
    attention = TEXTS("parts.scores and mixture").select(language)
    series: dict[str, list[tuple[float, float]]] = {labels["all"]: [], attention: []}
    for length in sorted({max(1, share * tokens // 8) for share in PLOTTED_SHARES}):
        cost, _ = compute_cost(config, length, batch)
        series[labels["all"]].append((length, cost.operation_count / 1e9))
        series[attention].append((length, cost.operations.get("scores and mixture", 0) / 1e9))
    return save_line_plot(series, target, title=labels["title"], across=labels["across"], vertical=labels["vertical"])


def format_bytes(number: int) -> str:
    """Return a size with a unit, in powers of 1,024.

    >>> format_bytes(4 * 4096**2), format_bytes(1600)
    ('64 MB', '1.6 KB')
    """
    return _format_unit(number, 1024, (" bytes", " KB", " MB", " GB", " TB"))


def format_count(number: int) -> str:
    """Return a large number with a unit, in powers of 1,000.

    >>> format_count(1_500_000_000)
    '1.5 G'
    """
    return _format_unit(number, 1000, ("", " k", " M", " G", " T", " P"))


def _format_unit(number: int, base: int, units: tuple[str, ...]) -> str:
    size = float(number)
    unit = 0
    while size >= base and unit < len(units) - 1:
        size, unit = size / base, unit + 1
    digits = f"{size:.1f}".removesuffix(".0") if size < 100 else f"{size:,.0f}"
    return digits + units[unit]
