"""Maps that a session sends: compared with a softmax in float64, and with the overview of the lens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest
import torch
from page_client import PageClient

import jumok
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.lens import Ablate, KnockOut
from jumok.models.gpt import GPT, GPTConfig
from jumok.web.maps import tiles as tiles_module
from jumok.web.maps.tiles import encode_differences, encode_weights
from jumok.web.session import Session, Start

TEXT = "the cat sat on the mat; the dog ran. " * 9  # 333 bytes: more than one tile
EDITS = [Ablate(layer=0, head=1), KnockOut(layer=1, head=0, query=300, key=(7, 9))]


@pytest.fixture(scope="module")
def run(client: PageClient) -> int:
    return client.ask("run", model="tiny", text=TEXT, edits=[edit.to_json() for edit in EDITS])["run"]


@pytest.fixture(scope="module")
def captures() -> tuple[jumok.lens.Capture, jumok.lens.Capture]:
    with jumok.Lens("tiny") as lens:
        return lens.run(TEXT), lens.run(TEXT, edits=EDITS)


def compute_map(capture: jumok.lens.Capture, site: int, head: int) -> numpy.ndarray:
    """The weights of a causal head, by a softmax in float64 over the recorded queries and keys."""
    call = capture.attention(site).calls[0]
    query, key = call.query[0, head].double(), call.key[0, head].double()
    scores = query @ key.T / query.shape[-1] ** 0.5
    later = torch.ones_like(scores).triu(1).bool()
    return scores.masked_fill(later, -torch.inf).softmax(-1).numpy()


def pool(weights: numpy.ndarray, size: int) -> numpy.ndarray:
    """The number with the largest absolute value of each cell, by loops."""
    rows, columns = (range(0, length, size) for length in weights.shape)
    cells = [[weights[row : row + size, column : column + size] for column in columns] for row in rows]
    return numpy.array([[cell.flat[numpy.abs(cell).argmax()] for cell in line] for line in cells])


@pytest.mark.parametrize(("level", "row", "column"), [(0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 0)])
def test_tile_is_the_pooled_softmax(client, run, captures, level, row, column) -> None:
    expected = pool(compute_map(captures[0], 1, 0), 2**level)
    expected = expected[256 * row : 256 * (row + 1), 256 * column : 256 * (column + 1)]
    body, content = client.ask_bytes(
        "tiles", run=run, show="clean", site=1, head=0, level=level, row=row, column=column, preview=False
    )
    assert body == {"rows": expected.shape[0], "columns": expected.shape[1], "is_preview": False}
    tile = numpy.frombuffer(content, numpy.uint8).reshape(expected.shape)
    assert numpy.abs(tile - 255 * numpy.sqrt(expected)).max() <= 0.51


@pytest.mark.parametrize("level", [0, 1])
def test_difference_tile_has_the_sign_of_the_larger_change(client, run, captures, level) -> None:
    clean, edited = (capture.weights(1, 0).double().numpy() for capture in captures)
    difference = edited - clean
    expected = pool(difference, 2**level)[:256, :256]
    _, content = client.ask_bytes(
        "tiles", run=run, show="difference", site=1, head=0, level=level, row=0, column=0, preview=False
    )
    tile = numpy.frombuffer(content, numpy.uint8).reshape(expected.shape)
    roots = numpy.sqrt(numpy.abs(expected))
    assert numpy.abs(numpy.abs(tile - 128.0) - 127 * roots).max() <= 0.51
    # in a row of two keys both change by the same size; there either sign is right
    increase, decrease = (pool(numpy.clip(sign * difference, 0, 1), 2**level)[:256, :256] for sign in (1, -1))
    is_clear = numpy.abs(increase - decrease) > 1e-4
    assert (numpy.sign(tile - 128.0) == numpy.sign(expected))[is_clear].all() and is_clear.sum() > 1000
    assert tile.min() < 120 and tile.max() > 136


def test_values_are_exact(client, run, captures) -> None:
    rows, columns = [290, 320], [1, 60]
    numbers = client.ask_floats("values", run=run, show="edited", site=1, head=0, rows=rows, columns=columns).reshape(
        30, 59
    )
    expected = captures[1].weights(1, 0).numpy()[290:320, 1:60]
    numpy.testing.assert_allclose(numbers, expected, atol=1e-7)
    assert numbers[10, 6] == numbers[10, 8] == 0 and numbers[10, 7] > 0  # query 300, keys 7, 9 and 8


def test_difference_values(client, run, captures) -> None:
    numbers = client.ask_floats(
        "values", run=run, show="difference", site=1, head=1, rows=[50, 60], columns=[0, 50]
    ).reshape(10, 50)
    clean, edited = (capture.weights(1, 1).numpy()[50:60, :50] for capture in captures)
    numpy.testing.assert_allclose(numbers, edited - clean, atol=1e-7)
    assert numpy.abs(numbers).max() > 1e-3


def test_lines_are_a_row_and_a_column(client, run, captures) -> None:
    expected = compute_map(captures[0], 0, 1)
    row = client.ask_floats("line", run=run, show="clean", site=0, head=1, query=200)
    numpy.testing.assert_allclose(row, expected[200], atol=1e-6)
    column = client.ask_floats("line", run=run, show="clean", site=0, head=1, key=5)
    numpy.testing.assert_allclose(column, expected[:, 5], atol=1e-6)
    assert len(row) == len(column) == 333


def test_thumbnails_are_the_overview(client, run, captures) -> None:
    body, content = client.ask_bytes("thumbnails", run=run, show="edited", site=1, size=48)
    assert body == {"heads": 2, "rows": 48, "columns": 48, "is_preview": False}
    thumbnails = numpy.frombuffer(content, numpy.uint8).reshape(2, 48, 48)
    for head in range(2):
        overview = captures[1].overview(1, head, 48).largest.numpy()
        assert numpy.abs(thumbnails[head] - 255 * numpy.sqrt(overview)).max() <= 0.51


@pytest.fixture(scope="module")
def long_run() -> Iterator[tuple[PageClient, int, jumok.lens.Capture]]:
    """2,100 positions: 4 levels, and rows that do not fill the last cells."""
    torch.manual_seed(7)
    model = GPT(GPTConfig(vocabulary=256, length=2100, width=8, layers=1, heads=1, hidden=8, positions="rotary"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)
    tokenizer, text = Tokenizer.for_bytes(), ("the cat sat; " * 162)[:2100]
    session = Session(Start(model, text, tokenizer=tokenizer))
    client = PageClient(session)
    number = client.ask("run", model="GPT", text=text, edits=[])["run"]
    with jumok.Lens(model, tokenizer) as lens:
        yield client, number, lens.run(text)
    session.close()


@pytest.mark.parametrize("level", [2, 3, 4])
def test_pooled_tiles_of_a_long_text(long_run, level) -> None:
    client, number, capture = long_run
    expected = pool(capture.weights(0, 0).numpy(), 2**level)
    tiles = {"run": number, "show": "clean", "site": 0, "head": 0, "level": level, "preview": True}
    for row in range(-(-len(expected) // 256)):
        for column in range(-(-len(expected) // 256)):
            body, content = client.ask_bytes("tiles", **tiles, row=row, column=column)
            part = expected[256 * row : 256 * (row + 1), 256 * column : 256 * (column + 1)]
            tile = numpy.frombuffer(content, numpy.uint8).reshape(part.shape)
            assert numpy.abs(tile - 255 * numpy.sqrt(part)).max() <= 0.51
            assert not body["is_preview"]  # the exact tile is as fast
    assert client.fail("tiles", **{**tiles, "level": 5}, row=0, column=0).reason == "invalid"


def test_tile_without_the_first_key(long_run) -> None:
    client, number, capture = long_run
    weights = capture.weights(0, 0).numpy().copy()
    weights[:, 0] = 0
    expected = pool(weights, 16)
    tile = {"run": number, "show": "clean", "site": 0, "head": 0, "level": 4, "row": 0, "column": 0}
    _, content = client.ask_bytes("tiles", **tile, skip_first=True)
    cells = numpy.frombuffer(content, numpy.uint8).reshape(expected.shape)
    assert numpy.abs(cells - 255 * numpy.sqrt(expected)).max() <= 0.51
    _, complete = client.ask_bytes("tiles", **tile)
    assert complete != content


def test_preview_reads_two_rows_of_each_cell(long_run, monkeypatch) -> None:
    client, number, capture = long_run
    monkeypatch.setattr(tiles_module, "EXACT_TILE_WEIGHTS", 0)
    client.session._answerer = None  # with its tiles
    weights = capture.weights(0, 0).numpy()
    middle = [[(begin + min(begin + 8, 2100) - 2) // 2 + index for index in (0, 1)] for begin in range(0, 2048, 8)]
    expected = numpy.stack([pool(weights[rows].max(0, keepdims=True), 8)[0, :256] for rows in middle])
    body, content = client.ask_bytes(
        "tiles", run=number, show="clean", site=0, head=0, level=3, row=0, column=0, preview=True
    )
    assert body["is_preview"]
    tile = numpy.frombuffer(content, numpy.uint8).reshape(256, 256)
    assert numpy.abs(tile - 255 * numpy.sqrt(expected)).max() <= 0.51


def test_thumbnails_of_a_large_map_are_previews(long_run, monkeypatch) -> None:
    client, number, capture = long_run
    monkeypatch.setattr(tiles_module, "EXACT_THUMBNAIL_WEIGHTS", 3 * 30 * 2100)
    body, content = client.ask_bytes("thumbnails", run=number, show="clean", site=0, size=30)
    assert body == {"heads": 1, "rows": 30, "columns": 30, "is_preview": True}
    expected = capture.overview(0, 0, 30, rows_per_cell=3).largest.numpy()
    thumbnail = numpy.frombuffer(content, numpy.uint8).reshape(30, 30)
    assert numpy.abs(thumbnail - 255 * numpy.sqrt(expected)).max() <= 0.51


def test_bytes_of_extreme_weights() -> None:
    weights = numpy.array([[0, 1, 0.25, 1 + 1e-6]], numpy.float32)
    assert encode_weights(weights).tolist() == [[0, 255, 128, 255]]
    differences = numpy.array([[-1, 0, 1, 0.25, -0.25]], numpy.float32)
    assert encode_differences(differences).tolist() == [[1, 128, 255, 192, 64]]
