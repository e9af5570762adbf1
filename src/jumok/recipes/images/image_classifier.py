"""image: a ViT or a Swin learns to say of which class a picture is: handwritten digits, photographs, or your own, in
one folder a class. Pictures are moved a little at each step, so that none is seen twice the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.datasets import image_galleries
from jumok.data.datasets.image_galleries import LabelledImages
from jumok.data.images.preparation import Preparation
from jumok.data.readers import captioned_images
from jumok.data.readers.lines import ProblemLog
from jumok.errors import ArgumentError
from jumok.fields import choice, integer, optional
from jumok.models import Model
from jumok.models.swin import Swin, SwinConfig
from jumok.models.vit import ViT, ViTConfig
from jumok.recipes.recipe import Defaults, Options, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.class_scores import accuracy, class_names, confusion, set_class_count, told
from jumok.recipes.shared.splits import fingerprint, split_by_key
from jumok.training import Batch, Task, select_part, token_loss

from .image_arrays import Bytes, digests, drawn, in_bytes, measured, moved, normal, plain, sheet, small, to_try

HELD_OUT = 0.1  # of a folder of your own; mnist and cifar10 come with their own test part
CHOOSING = {"mnist": 1 / 30, "cifar10": 1 / 25, "folder": 0.1}  # of the rest
SHOWN = 30  # pictures that were called wrong, on the sheet

Configs = ViTConfig | SwinConfig
Sides = tuple[
    LabelledImages, LabelledImages, LabelledImages
]  # learned from, choosing the best checkpoint, held out for the report


@dataclass(frozen=True)
class ImageOptions(Options):
    """Fields of the recipe image."""

    without_data = ("set",)

    set: str = choice("mnist", ("mnist", "cifar10"), "the images to learn from")
    model: str = choice("vit", ("vit", "swin"), "architecture")
    shift: int = integer(2, "largest shift of a training image, in pixels", 0, 100)
    turn: int = integer(10, "largest rotation of a training image, in degrees", 0, 180)
    flip: str | None = optional(choice("no", ("yes", "no"), "mirror every other image; None = yes for cifar10 alone"))


def image_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings of the chosen images and architecture."""
    options = request.options(ImageOptions)
    source = options.set if request.data is None else "folder"
    settings = {**SHARED, "steps": STEPS[source, options.model], "threads": torch.get_num_threads()}
    if request.start is not None:
        return Defaults(settings)
    return Defaults(settings, (CONFIGS[source, options.model],), from_data=("classes",))


@recipe(image_defaults, ImageOptions)
def image(asked: TrainingRequest) -> Task:
    """MNIST by a small ViT, or what else was asked for."""
    options, defaults = asked.options(ImageOptions), image_defaults(asked)
    source = options.set if asked.data is None else "folder"
    loaded = asked.load_start()
    config = asked.config(CONFIGS[source, options.model]) if loaded is None else _config_of(asked, loaded)
    settings = asked.settings(**defaults.settings)
    flip = options.flip == "yes" if options.flip is not None else source == "cifar10"

    prepared = plain(config, loaded)
    sides = _folder(asked, prepared) if source == "folder" else _gallery(asked, source, prepared)
    train, choosing, held_out = sides
    prepared = measured(train.pixels, prepared) if loaded is None else prepared
    config = set_class_count(asked, config, train.classes)
    model = asked.model(Swin if isinstance(config, SwinConfig) else ViT, config, settings)
    if loaded is not None:
        _take(model, loaded, train.classes)
    order = ShuffledEpochs(len(train.labels), settings.seed)

    def batches(step: int, part: int, parts: int) -> Batch:
        chosen = select_part(order.batch_indices(step, settings.batch), part, parts)
        moves = drawn(settings.batch, settings.seed, step)[select_part(list(range(settings.batch)), part, parts)]
        images = moved(normal(train.pixels[chosen], prepared), moves, shift=options.shift, turn=options.turn, flip=flip)
        return Batch({"images": images}, train.labels[chosen], len(chosen))

    def evaluate(model: Model) -> dict[str, float]:
        logits = scores(model, choosing.pixels, prepared)
        right = (logits.argmax(-1) == choosing.labels).float().mean()
        return {"loss": float(functional.cross_entropy(logits, choosing.labels)), "accuracy": float(right)}

    def report(model: Model, folder: Path) -> dict[str, Any]:
        found = scores(model, held_out.pixels, prepared).argmax(-1)
        return _report(found, held_out) | _wrong(asked, found, held_out, folder) | to_try(folder, held_out.pixels)

    data = {
        "set": source,
        "classes": list(train.classes),
        "pictures": [len(side.labels) for side in sides],
        "fingerprint": fingerprint(one for side in sides for one in digests(side.pixels)),
    }
    return Task(
        model, settings, batches, token_loss, evaluate, preparation=prepared, labels=train.classes, data=data,
        report=report,
    )  # fmt: skip


CONFIGS: dict[tuple[str, str], Configs] = {
    ("mnist", "vit"): ViTConfig(
        image=(28, 28), patch=(7, 7), channels=1, width=96, layers=4, heads=4, hidden=192, classes=10
    ),
    ("mnist", "swin"): SwinConfig(
        image=(28, 28), patch=(2, 2), channels=1, width=32, depths=(2, 2), heads=(2, 4), window=7, classes=10
    ),
    ("cifar10", "vit"): ViTConfig(
        image=(32, 32), patch=(4, 4), channels=3, width=96, layers=4, heads=4, hidden=192, classes=10
    ),
    ("cifar10", "swin"): SwinConfig(
        image=(32, 32), patch=(4, 4), channels=3, width=64, depths=(2, 2), heads=(2, 4), window=4, classes=10
    ),
}
CONFIGS |= {("folder", family): CONFIGS["cifar10", family] for family in ("vit", "swin")}
SHARED: dict[str, Any] = {
    "batch": 128, "optimizer": "muon", "learning_rate": 3e-3, "matrix_rate": 2e-2, "final_rate": 0.0, "warmup": 100,
    "beta2": 0.99, "decay": 0.05, "clip": 1.0, "evaluate_every": 500, "save_every": 500,
}  # fmt: skip
STEPS = {
    ("mnist", "vit"): 4000, ("mnist", "swin"): 2000, ("cifar10", "vit"): 3000, ("cifar10", "swin"): 3000,
    ("folder", "vit"): 2000, ("folder", "swin"): 2000,
}  # fmt: skip


def _gallery(asked: TrainingRequest, source: str, how: Preparation) -> Sides:
    read = {"mnist": image_galleries.load_mnist, "cifar10": image_galleries.load_cifar10}[source]
    whole = read("train", asked.report)
    train, choosing, _ = split_by_key(digests(whole.pixels), 0.0, CHOOSING[source])
    held_out = read("held-out", asked.report)
    return _part(whole, train, how), _part(whole, choosing, how), _part(held_out, range(len(held_out.labels)), how)


def _part(whole: LabelledImages, places: Any, how: Preparation) -> LabelledImages:
    """Some of them, in the size that the model reads."""
    chosen = torch.tensor(list(places))
    pixels = whole.pixels[chosen]
    if pixels.shape[1:] != (how.channels, *(how.size or ())) or how.crop is not None:
        from PIL import Image

        rows = (Image.fromarray(one.permute(1, 2, 0).squeeze(-1).numpy()) for one in pixels)
        pixels = torch.stack([in_bytes(row, how) for row in rows])
    return LabelledImages(pixels, whole.labels[chosen], whole.classes)


def _folder(asked: TrainingRequest, how: Preparation) -> Sides:
    assert asked.data is not None
    problems = ProblemLog(skip=asked.skip_bad)
    found = small(asked, captioned_images.read_image_folder(asked.data, problems), how, problems)
    names = class_names(found.texts, asked.data)
    whole = LabelledImages(found.pixels, torch.tensor([names.index(text) for text in found.texts]), names)
    train, choosing, held_out = split_by_key(digests(found.pixels), HELD_OUT, CHOOSING["folder"])
    return _part(whole, train, how), _part(whole, choosing, how), _part(whole, held_out, how)


def _config_of(asked: TrainingRequest, loaded: Loaded) -> Configs:
    """The config of what was loaded, if it reads pictures."""
    config = loaded.config
    if not isinstance(config, ViTConfig | SwinConfig):
        raise ArgumentError(f"the recipe image goes on with a vit or a swin; {asked.start} is a {loaded.family}")
    return asked.config(config.replace(head="classes") if config.head == "none" else config)


def _take(model: Model, loaded: Loaded, names: tuple[str, ...]) -> None:
    """The parameters of the other model; the map to classes is a new one where the classes are others."""
    theirs = loaded.model.state_dict()
    if loaded.labels != names:
        theirs = {name: one for name, one in theirs.items() if not name.startswith(("output.", "teacher_output."))}
    ours = model.state_dict()
    odd = next((name for name in theirs if name not in ours or ours[name].shape != theirs[name].shape), None)
    if odd is not None:
        raise ArgumentError(f"the model to start from has another {odd}; leave its sizes as they are")
    model.load_state_dict(theirs, strict=False)


@torch.inference_mode()
def scores(model: Model, pixels: Bytes, how: Preparation) -> Tensor:
    """Every class's score for every picture."""
    parts = [model(normal(some, how).to(model.device)).logits.float().cpu() for some in pixels.split(500)]
    return torch.cat(parts)


def _report(found: Tensor, held_out: LabelledImages) -> dict[str, Any]:
    table = confusion(held_out.labels, found, len(held_out.classes))
    return {
        "accuracy": accuracy(table),
        "wrong": int((found != held_out.labels).sum()),
        "what": f"of {len(found):,} held-out pictures; none was learned from, and none chose the checkpoint",
        "confusion": told(table, held_out.classes),
    }


def _wrong(asked: TrainingRequest, found: Tensor, held_out: LabelledImages, folder: Path) -> dict[str, Any]:
    """A sheet of pictures that were called something else."""
    wrong = (found != held_out.labels).nonzero().flatten()[:SHOWN]
    wanted, called = ([held_out.classes[int(kind[one])] for one in wrong] for kind in (held_out.labels, found))
    return sheet(
        asked, folder / "wrong.png", held_out.pixels[wrong], wanted, called, "what each is, and what it was called"
    )
