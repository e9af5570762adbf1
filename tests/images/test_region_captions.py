"""The recipe caption on region features, from files to ``jumok.run``: the regions determine the words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

import jumok
from jumok.cli import cli
from jumok.errors import ArgumentError, JumokError
from jumok.recipes import TrainingRequest
from jumok.recipes.images.captioner import has_region_features
from recipe_runs import SHORT, load_report, train
from toys import skip_plots

COLOURS, ANIMALS = ("red", "green", "blue"), ("cat", "dog", "fox", "owl")
REGIONS, FEATURES = 5, 11
SIZES: dict[str, Any] = {"width": 32, "layers": 1, "decoder_layers": 1, "heads": 2, "hidden": 48, "vocabulary": 280}


def write_regions(folder: Path, count: int, ending: str = ".npz") -> Path:
    """Write features in which one region holds the colour and another the animal; the others are noise."""
    folder.mkdir()
    generator = numpy.random.default_rng(3)
    arrays, rows = {}, []
    for number in range(count):
        colour, animal = int(generator.integers(len(COLOURS))), int(generator.integers(len(ANIMALS)))
        features = generator.normal(0, 0.1, (REGIONS, FEATURES)).astype(numpy.float32)
        first, second = generator.choice(REGIONS, 2, replace=False)
        features[first, colour] += 3
        features[second, len(COLOURS) + animal] += 3
        arrays[f"image{number}"] = features
        rows.append(f"image{number}.jpg\ta {COLOURS[colour]} {ANIMALS[animal]}")
    if ending == ".npz":
        numpy.savez(folder / "features.npz", **arrays)
    else:
        save_file(arrays, folder / "features.safetensors")
    (folder / "captions.tsv").write_text("image\tcaption\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return folder


def test_captions_of_held_out_regions_are_right(tmp_path: Path) -> None:
    folder = write_regions(tmp_path / "data", 500)
    fields = {**SIZES, "steps": 70, "batch": 64, "learning_rate": 5e-3, "warmup": 10, "dropout": 0.0}
    fields |= {"evaluate_every": 70, "save_every": 70, "average": 0.9}
    with skip_plots():
        train("caption", tmp_path / "run", folder, **fields)
    report = load_report(tmp_path / "run")
    assert report["exact"] >= 0.95 and report["exact"] > report["nearest_exact"] - 0.05, report["samples"][:5]
    example = tmp_path / "run" / report["try"]
    expected = report["samples"][0]["written"]
    assert jumok.run(tmp_path / "run", example) == expected

    # the same answer from the command line, also for one image of a file of several
    process = CliRunner().invoke(cli, ["run", str(tmp_path / "run"), str(example)], catch_exceptions=False)
    assert process.stdout.strip() == expected
    arrays = numpy.load(folder / "features.npz")
    caption = jumok.run(tmp_path / "run", f"{folder / 'features.npz'}:image7")
    numpy.save(tmp_path / "seven.npy", arrays["image7"])
    assert jumok.run(tmp_path / "run", tmp_path / "seven.npy") == caption
    rows = (folder / "captions.tsv").read_text(encoding="utf-8").splitlines()
    assert f"image7.jpg\t{caption}" in rows
    with pytest.raises(ArgumentError, match=r"holds 500 images; name one, such as .*its images are image0, image1"):
        jumok.run(tmp_path / "run", folder / "features.npz")
    with pytest.raises(ArgumentError, match="has no image 'image900'; its images are image0"):
        jumok.run(tmp_path / "run", f"{folder / 'features.npz'}:image900")

    shown = CliRunner().invoke(cli, ["look", str(tmp_path / "run"), str(example), "--json"], catch_exceptions=False)
    assert json.loads(shown.stdout)["source"] == [f"region {index}" for index in range(REGIONS)]


def test_sizes_come_from_the_data_and_runs_continue(tmp_path: Path) -> None:
    folder = write_regions(tmp_path / "data", 60, ".safetensors")
    with skip_plots():
        train("caption", tmp_path / "run", folder, **SHORT, **SIZES)
        config = jumok.load(tmp_path / "run").config
        assert (config.source, config.regions, config.features) == ("regions", REGIONS, FEATURES)
        train("caption", tmp_path / "next", folder, start=str(tmp_path / "run"), **SHORT)
    assert jumok.load(tmp_path / "next").config == config
    facts = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert str(REGIONS) in json.dumps(facts) and load_report(tmp_path / "run")["samples"]


def test_images_beside_features_are_images(tmp_path: Path) -> None:
    folder = write_regions(tmp_path / "data", 20)
    assert has_region_features(TrainingRequest("caption", tmp_path / "run", str(folder)))
    (folder / "cat.png").write_bytes(b"")
    assert not has_region_features(TrainingRequest("caption", tmp_path / "run", str(folder)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shift": 3}, "shift moves the pixels of images; it does not apply to features of regions"),
        ({"features": 7}, "the data has 5 regions of 11 features, but the model reads 5 regions of 7"),
        ({"source": "patches"}, "but the model reads no regions"),
        ({"caption": "title"}, "title"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write_regions(tmp_path / "data", 60)
    with pytest.raises(JumokError, match=message):
        train("caption", tmp_path / "run", folder, **SHORT, **SIZES, **fields)
    assert not (tmp_path / "run").exists()
