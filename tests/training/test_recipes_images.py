"""The recipes image and caption on bars and dots of 12 x 12 pixels, and the functions that they share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import jumok
from catalogue_cache import CACHE, download_or_skip
from jumok.checkpoint import run_folder
from jumok.data.datasets import image_galleries
from jumok.data.images.preparation import Preparation
from jumok.draw import save_gallery
from jumok.errors import ArgumentError, DataError, DrawError, TrainingError
from jumok.models.gpt import GPT, GPTConfig
from jumok.recipes import TrainingRequest, get_recipe, resume_run, start_run
from jumok.recipes.images.captioner import parse_base_code_point
from jumok.recipes.images.image_arrays import measure_preparation, move_images, normalise, sample_moves
from jumok.recipes.images.image_classifier import GALLERIES
from jumok.recipes.shared.splits import hash_tensors, split_by_key
from jumok.training import TrainingTask
from toys import StopAt, skip_plots

Image = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.xdist_group("recipes_images")

CAPTIONS = {"across": "가로 막대", "down": "세로 막대", "spot": "작은 점"}
VIT = {"image": [12, 12], "patch": [4, 4], "channels": 1, "width": 16, "layers": 1, "heads": 2, "hidden": 32}
SWIN = {"model": "swin", "image": [12, 12], "patch": [2, 2], "width": 8, "depths": [2], "heads": [2], "window": 3}
CAPTIONER = {**VIT, "decoder_layers": 1, "vocabulary": 280, "dropout": 0.0}
SMALL = {"image": VIT, "caption": CAPTIONER}
SHORT = {"batch": 16, "evaluate_every": 10, "save_every": 10, "log_every": 1, "warmup": 5, "shift": 1, "turn": 0}


def draw_shape(kind: str, rng: numpy.random.Generator) -> Any:
    """Draw a bright shape at a random position on a dark, noisy ground."""
    pixels = rng.integers(0, 60, (12, 12)).astype(numpy.uint8)
    row, column = rng.integers(3, 9, 2)
    if kind == "across":
        pixels[row : row + 2, 1:11] = 230
    elif kind == "down":
        pixels[1:11, column : column + 2] = 230
    else:
        pixels[row : row + 2, column : column + 2] = 230
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 images of each class, in one folder for each class, and a file of captions."""
    folder, rng = tmp_path_factory.mktemp("shapes"), numpy.random.default_rng(7)
    lines = ["file\tcaption"]
    for kind, caption in CAPTIONS.items():
        (folder / kind).mkdir()
        for number in range(80):
            draw_shape(kind, rng).save(folder / kind / f"{number}.png")
            lines.append(f"{kind}/{number}.png\t{caption}")
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def create_request(
    name: str, run: Path, images: Path | None, changes: dict[str, Any], **options: Any
) -> TrainingRequest:
    return TrainingRequest(name, run, None if images is None else str(images), changes={**SHORT, **changes}, **options)


def create_task(name: str, run: Path, images: Path | None, changes: dict[str, Any], **options: Any) -> TrainingTask:
    run.mkdir(exist_ok=True)
    return get_recipe(name).build(create_request(name, run, images, changes, **options))


def load_report(run: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((run / "report.json").read_text(encoding="utf-8"))
    return report


@pytest.fixture(scope="module")
def classifier_run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("image") / "run"
    start_run(create_request("image", run, shapes, {**VIT, "steps": 100, "optimizer": "adamw"}))
    return run


@pytest.fixture(scope="module")
def captioner_run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("caption") / "run"
    changes = {**CAPTIONER, "steps": 120, "learning_rate": 3e-3, "average": 0.0}
    start_run(create_request("caption", run, shapes, changes))
    return run


@pytest.fixture(scope="module")
def gpt_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that reads no images."""
    folder = tmp_path_factory.mktemp("model") / "gpt"
    jumok.save(GPT(GPTConfig(vocabulary=8, length=8, width=8, layers=1, heads=1, hidden=8)), folder)
    return folder


# image


def test_image_learns_to_classify_held_out_images(classifier_run: Path) -> None:
    report = load_report(classifier_run)
    assert report["accuracy"] > 0.8
    counts = json.loads((classifier_run / "run.json").read_text())["data_facts"]["pictures"]
    reported = sum(row[f"called {kind}"] for kind in CAPTIONS for row in report["confusion"])
    assert sum(counts) == 240 and counts[2] == reported
    assert [row["is"] for row in report["confusion"]] == sorted(CAPTIONS)
    files = set(os.listdir(classifier_run))
    assert {"run.json", "metrics.jsonl", "report.md", "loss.png", "pictures.safetensors"} <= files
    assert report["wrong"] == 0 or "wrong.png" in files


def test_trained_classifier_runs_on_files(classifier_run: Path, shapes: Path) -> None:
    loaded = jumok.load(classifier_run)
    assert loaded.labels == ("across", "down", "spot")
    assert loaded.preparation is not None and loaded.preparation.channels == 1
    for kind in CAPTIONS:
        files = [str(shapes / kind / f"{number}.png") for number in range(5)]
        predictions = [classes[0]["name"] for classes in jumok.run(loaded, files)]
        assert predictions.count(kind) >= 4, kind
    # jumok.run prepares a file as the training did
    assert json.loads((classifier_run / "run.json").read_text())["data_facts"]["set"] == "folder"
    file = shapes / "across" / "0.png"
    pixels = torch.from_numpy(numpy.array(Image.open(file)))[None, None]
    torch.testing.assert_close(loaded.preparation.apply(file)[None], normalise(pixels, loaded.preparation))


def test_classifier_survives_the_huggingface_format(classifier_run: Path, shapes: Path, tmp_path: Path) -> None:
    file = str(shapes / "down" / "3.png")
    jumok.save(jumok.load(classifier_run), tmp_path / "huggingface", format="huggingface")
    classes, expected = jumok.run(tmp_path / "huggingface", file), jumok.run(classifier_run, file)
    for row, expected_row in zip(classes, expected, strict=True):
        assert row["name"] == expected_row["name"]
        assert row["share"] == pytest.approx(expected_row["share"], abs=1e-5)


@pytest.mark.parametrize("name", ["image", "caption"])
def test_resumed_run_equals_uninterrupted_run(name: str, shapes: Path, tmp_path: Path) -> None:
    changes = {**SMALL[name], "steps": 6, "evaluate_every": 3, "save_every": 3}
    changes |= {"dropout": 0.1, "optimizer": "muon", "average": 0.9}
    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    with skip_plots():
        assert start_run(create_request(name, finished, shapes, changes)).progress.finished
        outcome = start_run(create_request(name, interrupted, shapes, changes), display=StopAt(4))
        assert outcome.progress.step == 4
        assert resume_run(interrupted).progress.finished
    parameters, expected = (
        jumok.load(run_folder.list_checkpoints(run)[0][1]).model.state_dict() for run in (interrupted, finished)
    )
    assert parameters.keys() == expected.keys()
    for key in expected:
        assert torch.equal(parameters[key], expected[key]), key
    for file in ("metrics.jsonl", "report.json"):
        assert (interrupted / file).read_text() == (finished / file).read_text()


def test_resume_refuses_changed_images(shapes: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    with skip_plots():
        start_run(create_request("image", tmp_path / "run", shapes, {**VIT, "steps": 2}))
    path = tmp_path / "run" / "pictures.safetensors"
    pixels = load_file(path)["pixels"]
    pixels[5, 0, 3, 3] ^= 1
    texts = [kind for kind in CAPTIONS for _ in range(80)]
    save_file({"pixels": pixels}, path, {"texts": json.dumps(texts)})
    with pytest.raises(TrainingError, match="since this run started: fingerprint"):
        resume_run(tmp_path / "run", steps=4)
    path.write_bytes(b"{" * 50)
    with pytest.raises(DataError, match=r"pictures.safetensors is damaged"):
        resume_run(tmp_path / "run", steps=4)


@pytest.mark.parametrize(("name", "key"), [("image", "images"), ("caption", "source")])
def test_parts_of_a_batch_join_to_the_batch(name: str, key: str, shapes: Path, tmp_path: Path) -> None:
    task = create_task(name, tmp_path / "run", shapes, SMALL[name])
    batch, again = task.batches(3, 0, 1), task.batches(3, 0, 1)
    halves = [task.batches(3, part, 2) for part in range(2)]
    assert torch.equal(batch.inputs[key], again.inputs[key])
    torch.testing.assert_close(torch.cat([half.inputs[key] for half in halves]), batch.inputs[key])
    assert sum(half.count for half in halves) == batch.count
    assert not torch.equal(task.batches(4, 0, 1).inputs[key], batch.inputs[key])


def test_swin_trains(shapes: Path, tmp_path: Path) -> None:
    with skip_plots():
        start_run(create_request("image", tmp_path / "run", shapes, {**SWIN, "steps": 4}))
    assert jumok.load(tmp_path / "run").family == "swin"
    report = load_report(tmp_path / "run")
    assert report["steps"] == 4 and 0 <= report["accuracy"] <= 1


def test_image_continues_a_classifier(classifier_run: Path, shapes: Path, tmp_path: Path) -> None:
    """With the same classes every parameter is copied; with other classes the output layer is new."""
    same = create_task("image", tmp_path / "same", shapes, {}, start=str(classifier_run))
    loaded = jumok.load(classifier_run)
    expected = loaded.model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in same.model.state_dict().items())

    two_classes, rng = tmp_path / "two classes", numpy.random.default_rng(1)
    for kind in ("across", "down"):
        (two_classes / kind).mkdir(parents=True)
        for number in range(12):
            draw_shape(kind, rng).save(two_classes / kind / f"{number}.png")
    task = create_task("image", tmp_path / "two", two_classes, {}, start=str(classifier_run))
    for name, tensor in task.model.state_dict().items():
        assert torch.equal(tensor, expected[name]) is not name.startswith("output."), name
    assert task.loaded.preparation == loaded.preparation


def test_image_refuses_wrong_model_and_class_count(shapes: Path, gpt_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"can start only from a vit or swin model; .*gpt is gpt"):
        create_task("image", tmp_path / "run", shapes, {}, start=str(gpt_folder))
    with pytest.raises(ArgumentError, match="classes is 7, but the data has 3"):
        create_task("image", tmp_path / "run", shapes, {**VIT, "classes": 7})


def test_error_names_the_unreadable_image(shapes: Path, tmp_path: Path) -> None:
    for kind in ("a", "b"):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for number in range(8):
            content = (shapes / "down" / f"{number}.png").read_bytes()
            (tmp_path / "data" / kind / f"{number}.png").write_bytes(content)
    draw_shape("spot", numpy.random.default_rng(0)).save(tmp_path / "data" / "a" / "9.png")
    (tmp_path / "data" / "a" / "8.png").write_bytes(b"no picture")
    changes = {**VIT, "steps": 1}
    with pytest.raises(DataError, match=r"8\.png: is not a readable image.*--skip-bad"):
        start_run(create_request("image", tmp_path / "run", tmp_path / "data", changes))
    assert not (tmp_path / "run").exists()

    messages: list[str] = []
    options = {"skip_bad": True, "show_message": messages.append}
    with skip_plots():
        start_run(create_request("image", tmp_path / "run", tmp_path / "data", changes, **options))
    assert any(line.startswith("1 skipped; first: ") and "8.png" in line for line in messages)
    with pytest.raises(DataError, match="contains no images"):
        start_run(create_request("image", tmp_path / "none", tmp_path / "data" / "a", changes, skip_bad=True))


@pytest.mark.parametrize("source", ["mnist", "cifar10"])
def test_galleries_keep_their_test_part(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if source == "mnist":
        download_or_skip("mnist")
        monkeypatch.setenv("JUMOK_CACHE", str(CACHE))
        train_count, test_count = 60_000, 10_000
    else:  # generated images, because a test must not download 139 MB
        images = image_galleries.LabelledImages(
            torch.arange(400 * 3 * 64, dtype=torch.uint8).view(400, 3, 8, 8) % 251,
            torch.arange(400) % 10,
            image_galleries.CIFAR10,
        )
        images.pixels[:, 0, 0, :2] = torch.stack([torch.arange(400) // 256, torch.arange(400) % 256], 1).byte()
        monkeypatch.setitem(GALLERIES, "cifar10", lambda side, report: images)
        train_count, test_count = 400, 400
    task = create_task("image", tmp_path, None, {"set": source, "width": 16, "hidden": 16, "layers": 1})
    train, validation, held_out = task.data["pictures"]
    assert train + validation == train_count and held_out == test_count
    assert 0.02 < validation / train_count < 0.05
    batch = task.batches(0, 0, 1)
    assert tuple(batch.inputs["images"].shape[1:]) == (task.model.image_channels, *task.model.image_size)
    assert set(task.evaluate(task.model)) == {"loss", "accuracy"}
    if source == "mnist":
        assert task.loaded.preparation.mean[0] == pytest.approx(0.1307, abs=1e-3)
        assert task.loaded.preparation.std[0] == pytest.approx(0.3081, abs=1e-3)


# caption


def test_caption_learns_korean_captions(captioner_run: Path, shapes: Path) -> None:
    report = load_report(captioner_run)
    assert report["exact"] > 0.6 and report["chrf"] > 60
    assert {row["caption"] for row in report["samples"]} == set(CAPTIONS.values())
    assert (captioner_run / "captions.png").read_bytes().startswith(b"\x89PNG")
    loaded = jumok.load(captioner_run)
    correct = [jumok.run(loaded, str(shapes / kind / "2.png")) == caption for kind, caption in CAPTIONS.items()]
    assert sum(correct) >= 2


def test_reported_captions_are_those_of_jumok_run(captioner_run: Path, shapes: Path) -> None:
    paths = [shapes / kind / f"{number}.png" for kind in CAPTIONS for number in range(80)]
    pixels = torch.stack([torch.from_numpy(numpy.array(Image.open(path)))[None] for path in paths])
    _, _, held_out = split_by_key(hash_tensors(pixels), 0.1, 0.1)
    loaded = jumok.load(captioner_run)
    captions = [jumok.run(loaded, str(paths[index])) for index in held_out]
    assert captions == [row["written"] for row in load_report(captioner_run)["samples"]]


def test_caption_continues_a_captioner(captioner_run: Path, shapes: Path, gpt_folder: Path, tmp_path: Path) -> None:
    task = create_task("caption", tmp_path / "run", shapes, {}, start=str(captioner_run))
    loaded = jumok.load(captioner_run)
    expected = loaded.model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in task.model.state_dict().items())
    assert task.loaded.tokenizer.encode("가로") == loaded.tokenizer.encode("가로")
    with pytest.raises(ArgumentError, match=r"can start only from a captioner model with a tokenizer; .* is gpt"):
        create_task("caption", tmp_path / "none", shapes, {}, start=str(gpt_folder))


def test_error_names_the_missing_image_of_a_caption(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    draw_shape("spot", numpy.random.default_rng(0)).save(tmp_path / "data" / "a.png")
    (tmp_path / "data" / "captions.tsv").write_text("file\tcaption\na.png\ta spot\nb.png\ta bar\n")
    changes = {**CAPTIONER, "steps": 1}
    with pytest.raises(DataError, match=r"captions\.tsv:3: there is no image 'b.png'"):
        start_run(create_request("caption", tmp_path / "run", tmp_path / "data", changes))
    with pytest.raises(ArgumentError, match="none is left for training"):
        start_run(create_request("caption", tmp_path / "run", tmp_path / "data", changes, skip_bad=True))


def test_variants_of_an_emoji_are_in_the_same_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Man, woman and person in any skin tone are never split between training and validation."""
    download_or_skip("emoji")
    monkeypatch.setenv("JUMOK_CACHE", str(CACHE))
    paths = [path for path, _ in image_galleries.load_emoji("train", tones=True)]
    train, validation, _ = split_by_key([parse_base_code_point(path) for path in paths], 0.0, 0.05)
    modifiers = {"1f3fb", "1f3fc", "1f3fd", "1f3fe", "1f3ff", "fe0f", "200d", "2640", "2642", "27a1"}

    def remove_modifiers(path: Path) -> tuple[str, ...]:
        codes = [code for code in path.stem.split("-") if code not in modifiers]
        return tuple("1f9d1" if code in ("1f468", "1f469") else code for code in codes)

    assert len(paths) > 3000 and 0.02 < len(validation) / len(paths) < 0.15
    trained = {remove_modifiers(paths[index]) for index in train}
    assert not trained & {remove_modifiers(paths[index]) for index in validation}


def test_caption_trains_on_korean_emoji_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download_or_skip("emoji")
    monkeypatch.setenv("JUMOK_CACHE", str(CACHE))
    task = create_task("caption", tmp_path, None, {**CAPTIONER, "language": "ko", "tones": "no", "image": [8, 8]})
    train, validation, held_out = task.data["pictures"]
    assert train + validation == 1724 and held_out == 187
    answer = [token for token in task.batches(0, 0, 1).targets[0].tolist() if token >= 0]
    assert any("가" <= letter <= "힣" for letter in task.loaded.tokenizer.decode(answer[:-1]))
    assert answer[-1] == task.loaded.tokenizer.end


# shared functions


def test_move_images_shifts_and_mirrors() -> None:
    torch.manual_seed(3)
    images = torch.rand(2, 3, 7, 5)
    torch.testing.assert_close(move_images(images, torch.zeros(2, 4), shift=3, turn=45), images)

    shifts = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0]])
    shifted = move_images(images, shifts, shift=2)
    torch.testing.assert_close(shifted[0, :, :, :3], images[0, :, :, 2:], atol=1e-5, rtol=0)
    torch.testing.assert_close(shifted[0, :, :, 3:], images[0, :, :, 4:].expand(-1, -1, 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(shifted[1, :, 2:], images[1, :, :5], atol=1e-5, rtol=0)

    mirror = torch.tensor([[0.0, 0.0, 0.0, -0.5], [0.0, 0.0, 0.0, 0.5]])
    mirrored = move_images(images, mirror, flip=True)
    torch.testing.assert_close(mirrored[0], images[0].flip(-1), atol=1e-5, rtol=0)
    torch.testing.assert_close(mirrored[1], images[1], atol=1e-5, rtol=0)


def test_move_images_rotates_without_shearing() -> None:
    quarter_turn = torch.tensor([[1.0, 0.0, 0.0, 0.0]] * 2)
    square = torch.rand(2, 1, 5, 5)
    rotated = move_images(square, quarter_turn, turn=90)
    rotations = [square.rot90(direction, (2, 3)) for direction in (1, -1)]
    assert any(torch.allclose(rotated, rotation, atol=1e-4) for rotation in rotations)
    # the middle square of a wide image rotates as the square alone does
    wide = torch.zeros(2, 1, 5, 9)
    wide[..., 2:7] = square
    torch.testing.assert_close(move_images(wide, quarter_turn, turn=90)[..., 2:7], rotated, atol=1e-4, rtol=0)


def test_moves_are_a_function_of_seed_and_step() -> None:
    moves = sample_moves(5, 1, 7)
    assert torch.equal(sample_moves(5, 1, 7), moves) and torch.equal(sample_moves(9, 1, 7)[:5], moves)
    assert not torch.equal(sample_moves(5, 1, 8), moves) and not torch.equal(sample_moves(5, 2, 7), moves)
    many = sample_moves(4000, 0, 0)
    assert many.min() >= -1 and many.max() <= 1
    assert many.mean().abs() < 0.05 and many.std() == pytest.approx(0.577, abs=0.02)


def test_measured_preparation_gives_mean_0_and_deviation_1() -> None:
    pixels = torch.randint(20, 200, (50, 3, 6, 6), dtype=torch.uint8)
    pixels[:, 1] //= 2
    preparation = measure_preparation(pixels, Preparation((6, 6)))
    channels = normalise(pixels, preparation).transpose(0, 1).flatten(1)
    torch.testing.assert_close(channels.mean(1), torch.zeros(3), atol=2e-3, rtol=0)
    torch.testing.assert_close(channels.std(1), torch.ones(3), atol=2e-3, rtol=0)


def test_split_is_a_function_of_the_keys() -> None:
    keys = [f"key {number % 300}" for number in range(900)]
    indices = split_by_key(keys, 0.1, 0.1)
    assert sorted(index for part in indices for index in part) == list(range(900))
    train, validation, held_out = ({keys[index] for index in part} for part in indices)
    assert not train & validation and not train & held_out and not validation & held_out
    assert 15 < len(validation) < 45 and 15 < len(held_out) < 45
    # no example changes its part because others are missing
    fewer = [{keys[index] for index in part} for part in split_by_key(keys[:150], 0.1, 0.1)]
    assert fewer[0] <= train and fewer[1] <= validation and fewer[2] <= held_out
    assert [len(part) for part in split_by_key(["a", "b", "c"], 0.01, 0.01)] == [1, 1, 1]
    with pytest.raises(ArgumentError, match="has 2 different examples"):
        split_by_key(["a", "b", "b"], 0.1, 0.1)


def test_gallery_draws_images_with_texts(tmp_path: Path) -> None:
    images = [numpy.full((9, 9), 200, numpy.uint8), numpy.zeros((9, 9, 3), numpy.uint8)]
    expected = ["a very long caption that needs more than one line, and more than two", "검은 그림"]
    first = save_gallery(tmp_path / "a.png", images, expected, ["short", "검은 그림"], title="images").read_bytes()
    assert first.startswith(b"\x89PNG")
    again = save_gallery(tmp_path / "b.png", images, expected, ["short", "검은 그림"], title="images").read_bytes()
    other = save_gallery(tmp_path / "c.png", images, expected, ["short", "흰 그림"], title="images").read_bytes()
    assert first == again and first != other
    with pytest.raises(DrawError, match="2 images, 1 expected texts and 2 predicted texts"):
        save_gallery(tmp_path / "d.png", images, ["a"], ["a", "b"])
    with pytest.raises(DrawError, match=r"image 0 is float64 \(2, 2\)"):
        save_gallery(tmp_path / "d.png", [numpy.zeros((2, 2))], ["a"], ["a"])
