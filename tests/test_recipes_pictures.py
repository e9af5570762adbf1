"""Recipes on pictures: image and caption, on bars and dots of 12 x 12 pixels; and what they share."""

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
from jumok.recipes.images.image_arrays import draw_moves, hash_images, measure_preparation, move_images, normalise
from jumok.recipes.images.image_captioner import _get_first_code
from jumok.recipes.shared.splits import split_by_key
from toys import StopAt

Image = pytest.importorskip("PIL.Image")

KINDS = {"across": "가로 막대", "down": "세로 막대", "spot": "작은 점"}
VIT = {"image": [12, 12], "patch": [4, 4], "channels": 1, "width": 16, "layers": 1, "heads": 2, "hidden": 32}
SWIN = {"model": "swin", "image": [12, 12], "patch": [2, 2], "width": 8, "depths": [2], "heads": [2], "window": 3}
WRITER = {**VIT, "decoder_layers": 1, "vocabulary": 280, "dropout": 0.0}
SHORT = {"batch": 16, "evaluate_every": 10, "save_every": 10, "log_every": 1, "warmup": 5, "shift": 1, "turn": 0}


def shape(kind: str, draw: numpy.random.Generator) -> Any:
    """A bright shape somewhere on a dark, noisy ground."""
    pixels = draw.integers(0, 60, (12, 12)).astype(numpy.uint8)
    row, column = draw.integers(3, 9, 2)
    if kind == "across":
        pixels[row : row + 2, 1:11] = 230
    elif kind == "down":
        pixels[1:11, column : column + 2] = 230
    else:
        pixels[row : row + 2, column : column + 2] = 230
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 pictures of each class, one folder a class, and captions for all of them."""
    place, draw = tmp_path_factory.mktemp("shapes"), numpy.random.default_rng(7)
    lines = ["file\tcaption"]
    for kind, told in KINDS.items():
        (place / kind).mkdir()
        for number in range(80):
            shape(kind, draw).save(place / kind / f"{number}.png")
            lines.append(f"{kind}/{number}.png\t{told}")
    (place / "captions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return place


def asked(name: str, run: Path, data: Path | None, changes: dict[str, Any], **more: Any) -> TrainingRequest:
    return TrainingRequest(name, run, None if data is None else str(data), changes={**SHORT, **changes}, **more)


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("image") / "run"
    start_run(asked("image", run, folder, {**VIT, "steps": 120, "optimizer": "adamw"}))
    return run


@pytest.fixture(scope="module")
def written(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("caption") / "run"
    start_run(asked("caption", run, folder, {**WRITER, "steps": 120, "learning_rate": 3e-3, "average": 0.0}))
    return run


# image


def test_image_learns_and_tells_about_what_it_never_saw(trained: Path) -> None:
    told = json.loads((trained / "report.json").read_text())
    assert told["accuracy"] > 0.8
    counts = json.loads((trained / "run.json").read_text())["data_facts"]["pictures"]
    judged = sum(row[f"called {kind}"] for kind in KINDS for row in told["confusion"])
    assert sum(counts) == 240 and counts[2] == judged
    assert [row["is"] for row in told["confusion"]] == sorted(KINDS)
    assert {"run.json", "metrics.jsonl", "report.md", "loss.png", "pictures.safetensors"} <= set(os.listdir(trained))
    assert told["wrong"] == 0 or (trained / "wrong.png").is_file()


def test_image_is_run_at_once(trained: Path, folder: Path) -> None:
    loaded = jumok.load(trained)
    assert loaded.labels == ("across", "down", "spot")
    assert loaded.preparation is not None and loaded.preparation.channels == 1
    for kind in KINDS:
        pictures = [str(folder / kind / f"{number}.png") for number in range(5)]
        best = [one[0]["name"] for one in jumok.run(loaded, pictures)]
        assert best.count(kind) >= 4, kind
    # what run makes of a file is what training made of it
    kept = json.loads((trained / "run.json").read_text())["data_facts"]
    assert kept["set"] == "folder"
    file = folder / "across" / "0.png"
    bytes_of = torch.from_numpy(numpy.array(Image.open(file)))[None, None]
    torch.testing.assert_close(loaded.preparation.apply(file)[None], normalise(bytes_of, loaded.preparation))


def test_image_goes_to_hugging_face_and_back(trained: Path, folder: Path, tmp_path: Path) -> None:
    file = str(folder / "down" / "3.png")
    jumok.save(jumok.load(trained), tmp_path / "theirs", format="huggingface")
    again = jumok.run(tmp_path / "theirs", file)
    for one, other in zip(again, jumok.run(trained, file), strict=True):
        assert one["name"] == other["name"] and one["share"] == pytest.approx(other["share"], abs=1e-5)


@pytest.mark.parametrize("name", ["image", "caption"])
def test_a_stop_changes_nothing(name: str, folder: Path, tmp_path: Path) -> None:
    changes = {**(VIT if name == "image" else WRITER), "steps": 12, "evaluate_every": 6, "save_every": 6}
    changes |= {"dropout": 0.1, "optimizer": "muon", "average": 0.9}
    assert start_run(asked(name, tmp_path / "whole", folder, changes)).progress.finished
    outcome = start_run(asked(name, tmp_path / "cut", folder, changes), display=StopAt(8))
    assert outcome.progress.step == 8
    assert resume_run(tmp_path / "cut").progress.finished
    one, other = (jumok.load(run_folder.list_checkpoints(tmp_path / run)[0][1]).model for run in ("whole", "cut"))
    for (key, left), right in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(left, right), key
    for file in ("metrics.jsonl", "report.json"):
        assert (tmp_path / "whole" / file).read_text() == (tmp_path / "cut" / file).read_text()


def test_other_pictures_are_not_gone_on_with(folder: Path, tmp_path: Path) -> None:
    start_run(asked("image", tmp_path / "run", folder, {**VIT, "steps": 2}))
    from safetensors.torch import load_file, save_file

    place = tmp_path / "run" / "pictures.safetensors"
    pixels = load_file(place)["pixels"]
    pixels[5, 0, 3, 3] ^= 1
    texts = [kind for kind in KINDS for _ in range(80)]
    save_file({"pixels": pixels}, place, {"texts": json.dumps(texts)})
    with pytest.raises(TrainingError, match="not what this run began with: fingerprint"):
        resume_run(tmp_path / "run", steps=4)
    place.write_bytes(b"{" * 50)
    with pytest.raises(DataError, match=r"pictures.safetensors is damaged"):
        resume_run(tmp_path / "run", steps=4)


@pytest.mark.parametrize("name", ["image", "caption"])
def test_parts_of_a_batch_are_the_batch(name: str, folder: Path, tmp_path: Path) -> None:
    tmp_path.joinpath("run").mkdir()
    task = get_recipe(name).build(asked(name, tmp_path / "run", folder, VIT if name == "image" else WRITER))
    whole, again = task.batches(3, 0, 1), task.batches(3, 0, 1)
    halves = [task.batches(3, part, 2) for part in range(2)]
    assert torch.equal(whole.inputs["images"], again.inputs["images"])
    torch.testing.assert_close(torch.cat([one.inputs["images"] for one in halves]), whole.inputs["images"])
    assert sum(one.count for one in halves) == whole.count
    assert not torch.equal(task.batches(4, 0, 1).inputs["images"], whole.inputs["images"])


def test_swin_learns_too(folder: Path, tmp_path: Path) -> None:
    start_run(asked("image", tmp_path / "run", folder, {**SWIN, "steps": 10}))
    assert jumok.load(tmp_path / "run").family == "swin"
    told = json.loads((tmp_path / "run" / "report.json").read_text())
    assert told["steps"] == 10 and 0 <= told["accuracy"] <= 1


def test_image_starts_from_another(trained: Path, folder: Path, tmp_path: Path) -> None:
    """The same classes: nothing is lost. Others: only the map to classes is new."""
    (tmp_path / "run").mkdir()
    same = get_recipe("image").build(asked("image", tmp_path / "run", folder, {}, start=str(trained)))
    theirs = jumok.load(trained).model.state_dict()
    assert all(torch.equal(one, theirs[name]) for name, one in same.model.state_dict().items())
    other, draw = tmp_path / "other", numpy.random.default_rng(1)
    for kind in ("across", "down"):
        (other / kind).mkdir(parents=True)
        for number in range(12):
            shape(kind, draw).save(other / kind / f"{number}.png")
    (tmp_path / "two").mkdir()
    task = get_recipe("image").build(asked("image", tmp_path / "two", other, {}, start=str(trained)))
    for name, one in task.model.state_dict().items():
        assert torch.equal(one, theirs[name]) is not name.startswith("output."), name
    assert task.preparation == jumok.load(trained).preparation

    jumok.save(GPT(GPTConfig(vocabulary=8, length=8, width=8, layers=1, heads=1, hidden=8)), tmp_path / "gpt")
    with pytest.raises(ArgumentError, match=r"continues a vit or a swin; .*gpt is a gpt"):
        get_recipe("image").build(asked("image", tmp_path / "none", folder, {}, start=str(tmp_path / "gpt")))
    with pytest.raises(ArgumentError, match="classes is 7, but the data has 3"):
        get_recipe("image").build(asked("image", tmp_path / "run", folder, {**VIT, "classes": 7}))


def test_pictures_that_cannot_be_read_are_named(folder: Path, tmp_path: Path) -> None:
    for kind in ("a", "b"):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for number in range(8):
            (tmp_path / "data" / kind / f"{number}.png").write_bytes((folder / "down" / f"{number}.png").read_bytes())
    shape("spot", numpy.random.default_rng(0)).save(tmp_path / "data" / "a" / "9.png")
    (tmp_path / "data" / "a" / "8.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"8\.png: is not a readable image.*--skip-bad"):
        start_run(asked("image", tmp_path / "run", tmp_path / "data", {**VIT, "steps": 1}))
    assert not (tmp_path / "run").exists()
    said: list[str] = []
    start_run(
        asked("image", tmp_path / "run", tmp_path / "data", {**VIT, "steps": 1}, skip_bad=True, report=said.append)
    )
    assert any(line.startswith("1 skipped; first: ") and "8.png" in line for line in said)
    with pytest.raises(DataError, match="contains no images"):
        start_run(asked("image", tmp_path / "none", tmp_path / "data" / "a", {**VIT, "steps": 1}, skip_bad=True))


@pytest.mark.parametrize("source", ["mnist", "cifar10"])
def test_real_pictures_keep_their_test_part(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if source == "mnist":
        download_or_skip("mnist")
        monkeypatch.setenv("JUMOK_CACHE", str(CACHE))
        size = (60_000, 10_000)
    else:  # 139 MB are not fetched for this
        small = image_galleries.LabelledImages(
            torch.arange(400 * 3 * 64, dtype=torch.uint8).view(400, 3, 8, 8) % 251,
            torch.arange(400) % 10,
            image_galleries.CIFAR10,
        )
        small.pixels[:, 0, 0, :2] = torch.stack([torch.arange(400) // 256, torch.arange(400) % 256], 1).byte()
        monkeypatch.setattr(image_galleries, "load_cifar10", lambda side, report: small)
        size = (400, 400)
    task = get_recipe("image").build(
        asked("image", tmp_path, None, {"set": source, "width": 16, "hidden": 16, "layers": 1})
    )
    learned, choosing, held_out = task.data["pictures"]
    assert learned + choosing == size[0] and held_out == size[1]
    assert 0.02 < choosing / size[0] < 0.05
    batch = task.batches(0, 0, 1)
    assert tuple(batch.inputs["images"].shape[1:]) == (task.model.config.channels, *task.model.config.image)
    assert set(task.evaluate(task.model)) == {"loss", "accuracy"}
    if source == "mnist":
        assert task.preparation.mean[0] == pytest.approx(0.1307, abs=1e-3)
        assert task.preparation.std[0] == pytest.approx(0.3081, abs=1e-3)


# caption


def test_caption_learns_korean_sentences(written: Path, folder: Path) -> None:
    told = json.loads((written / "report.json").read_text())
    assert told["exact"] > 0.6 and told["chrf"] > 60
    assert {row["caption"] for row in told["samples"]} == set(KINDS.values())
    assert (written / "captions.png").read_bytes().startswith(b"\x89PNG")
    model = jumok.load(written)
    right = [jumok.run(model, str(folder / kind / "2.png")) == text for kind, text in KINDS.items()]
    assert sum(right) >= 2


def test_caption_is_told_by_the_same_words_as_run(written: Path, folder: Path, tmp_path: Path) -> None:
    """The report's answers are those that jumok run gives to the same pictures."""
    told = json.loads((written / "report.json").read_text())
    paths = [folder / kind / f"{number}.png" for kind in KINDS for number in range(80)]
    pixels = torch.stack([torch.from_numpy(numpy.array(Image.open(path)))[None] for path in paths])
    _, _, held_out = split_by_key(hash_images(pixels), 0.1, 0.1)
    loaded = jumok.load(written)
    assert [jumok.run(loaded, str(paths[one])) for one in held_out] == [row["written"] for row in told["samples"]]


def test_caption_goes_on_with_its_own(written: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    task = get_recipe("caption").build(asked("caption", tmp_path / "run", folder, {}, start=str(written)))
    theirs = jumok.load(written)
    assert all(torch.equal(one, theirs.model.state_dict()[name]) for name, one in task.model.state_dict().items())
    assert task.tokenizer.encode("가로") == theirs.tokenizer.encode("가로")
    jumok.save(GPT(GPTConfig(vocabulary=8, length=8, width=8, layers=1, heads=1, hidden=8)), tmp_path / "gpt")
    with pytest.raises(ArgumentError, match=r"continues a captioner that reads patches"):
        get_recipe("caption").build(asked("caption", tmp_path / "none", folder, {}, start=str(tmp_path / "gpt")))


def test_captions_that_cannot_be_used_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shape("spot", numpy.random.default_rng(0)).save(tmp_path / "data" / "a.png")
    (tmp_path / "data" / "captions.tsv").write_text("file\tcaption\na.png\ta spot\nb.png\ta bar\n")
    with pytest.raises(DataError, match=r"captions\.tsv:3: there is no image 'b.png'"):
        start_run(asked("caption", tmp_path / "run", tmp_path / "data", {**WRITER, "steps": 1}))
    with pytest.raises(ArgumentError, match="none is left for training"):
        start_run(asked("caption", tmp_path / "run", tmp_path / "data", {**WRITER, "steps": 1}, skip_bad=True))


def test_variants_of_an_emoji_stand_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Man, woman and person, in any skin colour: none chooses the checkpoint while another is learned."""
    download_or_skip("emoji")
    monkeypatch.setenv("JUMOK_CACHE", str(CACHE))
    known = [path for path, _ in image_galleries.load_emoji("train", tones=True)]
    train, choosing, _ = split_by_key([_get_first_code(path) for path in known], 0.0, 0.05)
    tones = {"1f3fb", "1f3fc", "1f3fd", "1f3fe", "1f3ff", "fe0f", "200d", "2640", "2642", "27a1"}

    def bare(path: Path) -> tuple[str, ...]:
        codes = [code for code in path.stem.split("-") if code not in tones]
        return tuple("1f9d1" if code in ("1f468", "1f469") else code for code in codes)

    assert len(known) > 3000 and 0.02 < len(choosing) / len(known) < 0.15
    assert not {bare(known[one]) for one in train} & {bare(known[one]) for one in choosing}


def test_emoji_are_learned_in_either_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download_or_skip("emoji")
    monkeypatch.setenv("JUMOK_CACHE", str(CACHE))
    korean = {**WRITER, "language": "ko", "tones": "no", "image": [8, 8]}
    task = get_recipe("caption").build(asked("caption", tmp_path, None, korean))
    learned, choosing, held_out = task.data["pictures"]
    assert learned + choosing == 1724 and held_out == 187
    answer = [one for one in task.batches(0, 0, 1).targets[0].tolist() if one >= 0]
    assert any("가" <= letter <= "힣" for letter in task.tokenizer.decode(answer[:-1]))
    assert answer[-1] == task.tokenizer.end


# what they share


def test_moves_do_what_they_say() -> None:
    torch.manual_seed(3)
    images = torch.rand(2, 3, 7, 5)
    still = torch.zeros(2, 4)
    torch.testing.assert_close(move_images(images, still, shift=3, turn=45), images)
    aside = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0]])
    found = move_images(images, aside, shift=2)
    torch.testing.assert_close(found[0, :, :, :3], images[0, :, :, 2:], atol=1e-5, rtol=0)
    torch.testing.assert_close(found[0, :, :, 3:], images[0, :, :, 4:].expand(-1, -1, 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[1, :, 2:], images[1, :, :5], atol=1e-5, rtol=0)
    mirror = torch.tensor([[0.0, 0.0, 0.0, -0.5], [0.0, 0.0, 0.0, 0.5]])
    found = move_images(images, mirror, flip=True)
    torch.testing.assert_close(found[0], images[0].flip(-1), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[1], images[1], atol=1e-5, rtol=0)
    quarter = torch.tensor([[1.0, 0.0, 0.0, 0.0]] * 2)
    square = torch.rand(2, 1, 5, 5)
    found = move_images(square, quarter, turn=90)
    assert torch.allclose(found, square.rot90(1, (2, 3)), atol=1e-4) or torch.allclose(
        found, square.rot90(-1, (2, 3)), atol=1e-4
    )
    # a wide picture is turned, not sheared: a quarter turn of its middle square is that square's
    wide = torch.zeros(2, 1, 5, 9)
    wide[..., 2:7] = square
    torch.testing.assert_close(move_images(wide, quarter, turn=90)[..., 2:7], found, atol=1e-4, rtol=0)


def test_moves_follow_from_seed_and_step() -> None:
    assert torch.equal(draw_moves(5, 1, 7), draw_moves(5, 1, 7)) and torch.equal(
        draw_moves(9, 1, 7)[:5], draw_moves(5, 1, 7)
    )
    assert not torch.equal(draw_moves(5, 1, 8), draw_moves(5, 1, 7)) and not torch.equal(
        draw_moves(5, 2, 7), draw_moves(5, 1, 7)
    )
    many = draw_moves(4000, 0, 0)
    assert many.min() >= -1 and many.max() <= 1
    assert many.mean().abs() < 0.05 and many.std() == pytest.approx(0.577, abs=0.02)


def test_measured_pictures_have_mean_0_and_deviation_1() -> None:
    pixels = torch.randint(20, 200, (50, 3, 6, 6), dtype=torch.uint8)
    pixels[:, 1] //= 2
    how = measure_preparation(pixels, Preparation((6, 6)))
    found = normalise(pixels, how).transpose(0, 1).flatten(1)
    torch.testing.assert_close(found.mean(1), torch.zeros(3), atol=2e-3, rtol=0)
    torch.testing.assert_close(found.std(1), torch.ones(3), atol=2e-3, rtol=0)


def test_parts_follow_from_the_keys() -> None:
    keys = [f"key {number % 300}" for number in range(900)]
    train, choosing, held_out = split_by_key(keys, 0.1, 0.1)
    assert sorted(train + choosing + held_out) == list(range(900))
    sides = [{keys[one] for one in part} for part in (train, choosing, held_out)]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]
    assert 15 < len(sides[1]) < 45 and 15 < len(sides[2]) < 45
    fewer = [{keys[one] for one in part} for part in split_by_key(keys[:150], 0.1, 0.1)]
    assert all(few <= side for few, side in zip(fewer, sides, strict=True))  # no example moves because others are gone
    assert [len(part) for part in split_by_key(["a", "b", "c"], 0.01, 0.01)] == [1, 1, 1]
    with pytest.raises(ArgumentError, match="has 2 different examples"):
        split_by_key(["a", "b", "b"], 0.1, 0.1)


def test_a_sheet_of_pictures(tmp_path: Path) -> None:
    pictures = [numpy.full((9, 9), 200, numpy.uint8), numpy.zeros((9, 9, 3), numpy.uint8)]
    wanted = ["a very long caption that needs more than one line, and more than two", "검은 그림"]
    first = save_gallery(tmp_path / "a.png", pictures, wanted, ["short", "검은 그림"], title="pictures").read_bytes()
    assert first.startswith(b"\x89PNG")
    again = save_gallery(tmp_path / "b.png", pictures, wanted, ["short", "검은 그림"], title="pictures").read_bytes()
    other = save_gallery(tmp_path / "c.png", pictures, wanted, ["short", "흰 그림"], title="pictures").read_bytes()
    assert first == again and first != other
    with pytest.raises(DrawError, match="2 images, 1 expected texts and 2 predicted texts"):
        save_gallery(tmp_path / "d.png", pictures, ["one"], ["a", "b"])
    with pytest.raises(DrawError, match=r"Image 0 is float64 \(2, 2\)"):
        save_gallery(tmp_path / "d.png", [numpy.zeros((2, 2))], ["one"], ["a"])
