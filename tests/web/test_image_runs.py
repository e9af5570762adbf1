"""Runs of models that read images: the picture, the positions of patches, and attention inside windows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from page_client import PageClient
from PIL import Image

import jumok
from jumok.checkpoint import Loaded
from jumok.data.images.preparation import Preparation
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models import Model
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.models.swin import Swin, SwinConfig
from jumok.models.vit import ViT, ViTConfig
from jumok.web.session import Session, Start
from transformers_folders import write_folder

ROWS, COLUMNS, PATCH_ROWS, PATCH_COLUMNS = 15, 28, 5, 4  # 3 x 7 patches
SIZES: dict[str, Any] = {"image": (ROWS, COLUMNS), "patch": (PATCH_ROWS, PATCH_COLUMNS), "channels": 1, "width": 8}
PREPARATION = Preparation((ROWS, 2 * COLUMNS), (ROWS, COLUMNS), mean=(0.5,), std=(0.5,))


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    generator = numpy.random.default_rng(5)
    pixels = generator.integers(0, 256, (30, 60), dtype=numpy.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    return tmp_path / "noise.png"


@contextmanager
def open_client(model: Any, text: str) -> Iterator[tuple[PageClient, str]]:
    session = Session(Start(model, text))
    client = PageClient(session)
    hello = client.ask("hello")
    assert hello["text"] == ""
    assert next(entry for entry in hello["models"] if entry["name"] == hello["model"])["reads"] == "image"
    yield client, hello["model"]
    session.close()


def enlarge(model: Model) -> Model:
    """Enlarge the parameters, so that heads attend to some patches more than to others."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.mul_(8)
    return model.eval()


def build_vit() -> Loaded:
    vit = enlarge(ViT(ViTConfig(**SIZES, heads=2, layers=2, hidden=3, classes=3)))
    return Loaded(vit, None, PREPARATION, ("cat", "dog", "bird"))


def build_swin() -> Loaded:
    config = SwinConfig(**SIZES, window=2, depths=(2, 2), heads=(2, 4), classes=3)
    swin = enlarge(Swin(config))
    return Loaded(swin, None, PREPARATION)


def test_vit_sends_the_picture_that_it_saw(picture) -> None:
    loaded = build_vit()
    with open_client(loaded, str(picture)) as (client, name):
        body, (png,) = client.wait(client.begin("run", model=name, text=None, edits=[]))
        image = numpy.asarray(Image.open(io.BytesIO(png)))
        numpy.testing.assert_array_equal(image, PREPARATION.restore(PREPARATION.apply(picture)))
        expected = {"width": COLUMNS, "height": ROWS, "png": 0, "rows": 3, "columns": 7, "prefix": 1}
        assert body["image"] == expected and body["text"] is None
        assert body["source"][:2] == ["[class]", "1,1"] and len(body["source"]) == 22
        assert body["sites"][0]["grid"] == {"rows": 3, "columns": 7, "prefix": 1}
        with torch.no_grad():
            shares = loaded.model(PREPARATION.apply(picture)[None]).logits[0].softmax(-1)
        (prediction,) = body["clean"]
        assert prediction["position"] == -1 and body["model"]["predicts"] == "class"
        for candidate in prediction["candidates"]:
            assert candidate["label"] == ("cat", "dog", "bird")[candidate["id"]]
            assert candidate["probability"] == pytest.approx(float(shares[candidate["id"]]), abs=1e-6)


def test_typed_text_is_no_path_of_an_image(picture) -> None:
    with open_client(build_vit(), str(picture)) as (client, name):
        assert client.fail("run", model=name, text=str(picture), edits=[]).reason == "invalid"
        assert client.ask("run", model=name, text="", edits=[])["image"]["rows"] == 3


def test_code_of_an_image_model(picture, tmp_path) -> None:
    folder = jumok.save(build_vit(), tmp_path / "vit")
    with open_client(str(folder), str(picture)) as (client, name):
        edit = {"edit": "KnockOut", "layer": 1, "head": 0, "query": 0, "key": 5}
        run = client.ask("run", model=name, text=None, edits=[edit])
        selection = {"site": 1, "head": 0, "query": 0, "key": 4}
        variables: dict[str, Any] = {}
        exec(client.ask("code", run=run["run"], selection=selection)["code"], variables)
        for show in ("clean", "edited"):
            shares = variables[show].logits[0].softmax(-1)
            for candidate in run[show][0]["candidates"]:
                assert candidate["probability"] == pytest.approx(float(shares[candidate["id"]]), abs=1e-6)
            line = client.ask_floats("line", run=run["run"], show=show, site=1, head=0, query=0)
            assert float(variables[show].row(1, 0, 0)[4]) == pytest.approx(float(line[4]), abs=1e-6)
        assert line[5] == 0


def compute_swin_map(loaded: Loaded, pixels: torch.Tensor, site: int, head: int) -> numpy.ndarray:
    """The weights between all patches of the image, by a loop over windows."""
    with jumok.Lens(loaded) as lens:
        capture = lens.run(pixels)
    name = capture.sites.names[site]
    layout = loaded.model.locate_patches(name, (ROWS, COLUMNS))
    weights = numpy.zeros([layout.grid[0] * layout.grid[1]] * 2)
    for window, patches in enumerate(layout.windows.tolist()):
        inside = capture.weights(name, head, batch=window).numpy()
        for row, query in enumerate(patches):
            for column, key in enumerate(patches):
                if query >= 0 and key >= 0:
                    weights[query, key] = inside[row, column]
    return weights


@pytest.mark.parametrize("site", range(4))
def test_swin_has_one_row_for_each_patch(picture, site) -> None:
    loaded = build_swin()
    pixels = PREPARATION.apply(picture)[None]
    with open_client(loaded, str(picture)) as (client, name):
        run = client.ask("run", model=name, text=None, edits=[])
        expected = compute_swin_map(loaded, pixels, site, 1)
        grid = run["sites"][site]["grid"]
        assert (grid["rows"], grid["columns"]) == ((3, 7) if site < 2 else (2, 4))
        assert run["sites"][site]["queries"] == run["sites"][site]["keys"] == len(expected)
        end = len(expected)
        numbers = client.ask_floats(
            "values", run=run["run"], show="clean", site=site, head=1, rows=[0, end], columns=[0, end]
        )
        numpy.testing.assert_allclose(numbers.reshape(end, end), expected, atol=1e-6)
        _, tile = client.ask_bytes(
            "tiles", run=run["run"], show="clean", site=site, head=1, level=0, row=0, column=0, preview=False
        )
        cells = numpy.frombuffer(tile, numpy.uint8).reshape(end, end)
        assert numpy.abs(cells - 255 * numpy.sqrt(expected)).max() <= 0.51
        steps = client.ask("steps", run=run["run"], show="clean", site=site, head=1, query=end - 1, language="en")
        assert [key["weight"] for key in steps["keys"]] == pytest.approx(
            [expected[-1, key["key"]] for key in steps["keys"]], abs=1e-6
        )
        assert steps["difference"] < 1e-4
        facts = client.ask("kinds", run=run["run"])["heads"]
        entropy = -(expected * numpy.log(expected, where=expected > 0, out=numpy.zeros_like(expected))).sum(-1).mean()
        assert next(row for row in facts if (row["site"], row["head"]) == (site, 1))["entropy"] == pytest.approx(
            entropy, abs=1e-4
        )


def test_edges_of_swin_are_inside_windows(picture) -> None:
    with open_client(build_swin(), str(picture)) as (client, name):
        edit = {"edit": "KnockOut", "layer": 0, "head": 0, "query": 16, "key": [14, 15, 17]}
        run = client.ask("run", model=name, text=None, edits=[edit])
        assert run["edits"][0]["query"] == 16 and run["edits"][0]["key"] == [14, 15, 17]
        clean, edited = (
            client.ask_floats("values", run=run["run"], show=show, site=0, head=0, rows=[0, 21], columns=[0, 21])
            for show in ("clean", "edited")
        )
        clean, edited = clean.reshape(21, 21), edited.reshape(21, 21)
        changed = {tuple(cell) for cell in numpy.argwhere(numpy.abs(clean - edited) > 1e-7).tolist()}
        assert changed and {row for row, _ in changed} == {16}
        assert edited[16, 17] == 0 and clean[16, 17] > 0
        far = {"edit": "KnockOut", "layer": 0, "head": 0, "query": 0, "key": 20}
        failure = client.fail("run", model=name, text=None, edits=[far])
        assert failure.reason == "invalid" and "window" in str(failure)
        outside = {"edit": "KnockOut", "layer": 0, "head": 0, "query": 0, "key": 21}
        assert client.fail("run", model=name, text=None, edits=[outside]).reason == "invalid"


def test_token_of_swin_is_the_larger_patch_of_later_stages(picture) -> None:
    with open_client(build_swin(), str(picture)) as (client, name):
        run = client.ask("run", model=name, text=None, edits=[])
        token = client.ask("token", run=run["run"], show="clean", sequence="source", position=20)  # row 2, column 6
        tops = {(row["site"], row["head"]): row["top"] for row in token["as_query"]}
        for site, position in ((0, 20), (3, 7)):
            line = client.ask_floats("line", run=run["run"], show="clean", site=site, head=1, query=position)
            assert tops[site, 1][0][1] == pytest.approx(float(line.max()), abs=1e-6)


def test_captioner_has_patches_and_words(picture) -> None:
    tokenizer = Tokenizer.for_bytes()
    config = CaptionerConfig(
        **SIZES, source="patches", heads=2, layers=1, decoder_layers=2, hidden=3, vocabulary=256, length=8
    )
    captioner = enlarge(Captioner(config))
    with open_client(Loaded(captioner, tokenizer, PREPARATION), str(picture)) as (client, name):
        run = client.ask("run", model=name, text=None, edits=[])
        assert run["image"]["rows"] == 3 and run["target"][0] == "<start>" and run["generated"] == 1
        cross = next(site for site in run["sites"] if site["key_sequence"] != site["query_sequence"])
        assert cross["keys"] == 21 + run["image"]["prefix"] and cross["queries"] == len(run["target"])
        assert cross["grid"]["columns"] == 7


def test_image_model_of_transformers(picture, tmp_path) -> None:
    folder = write_folder(tmp_path / "dinov2", "dinov2")
    with open_client(str(folder), str(picture)) as (client, name):
        run = client.ask("run", model=name, text=None, edits=[{"edit": "Ablate", "layer": 1, "head": 0}])
        assert run["image"]["rows"] == run["image"]["columns"] == 4 and run["image"]["prefix"] == 1
        assert run["image"]["width"] == 28 and run["change"] > 0
        assert len(run["clean"][0]["candidates"]) == 3
