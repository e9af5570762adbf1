"""Recipe ``image``: train a ViT or a Swin to classify images: handwritten digits, photographs or the user's own.

The user's images are in one folder for each class. Training images are randomly shifted and rotated at each step, so
that the model rarely sees the same pixels twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.datasets import image_galleries
from jumok.data.datasets.image_galleries import LabelledImages
from jumok.data.images.preparation import Preparation
from jumok.data.readers.labelled_files import read_image_folder
from jumok.errors import ArgumentError
from jumok.fields import choice, integer, optional
from jumok.models import Model
from jumok.models.swin import Swin, SwinConfig
from jumok.models.vit import ViT, ViTConfig
from jumok.recipes.recipe import Defaults, Options, Recipe, copy_parameters, create_model
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared import class_scores
from jumok.recipes.shared.splits import PARTS, fingerprint, hash_tensors, split_by_key
from jumok.training import Batch, DataSummary, Settings, TrainingTask, compute_token_loss, select_part

from . import image_arrays
from .image_arrays import IMAGES_FILE, PixelBytes

HELD_OUT = 0.1  # of the user's own images; mnist and cifar10 have a test set
VALIDATION = {"mnist": 1 / 30, "cifar10": 1 / 25, "folder": 0.1}  # of the examples that are not held out
REPORTED_MISTAKES = 30
EVALUATION_BATCH = 500
GALLERIES = {"mnist": image_galleries.load_mnist, "cifar10": image_galleries.load_cifar10}

ClassifierConfig = ViTConfig | SwinConfig
VIT: dict[str, Any] = {"width": 96, "layers": 4, "heads": 4, "hidden": 192, "classes": 10}
SWIN: dict[str, Any] = {"depths": (2, 2), "heads": (2, 4), "classes": 10}
CONFIGS: dict[tuple[str, str], ClassifierConfig] = {
    ("mnist", "vit"): ViTConfig(image=(28, 28), patch=(7, 7), channels=1, **VIT),
    ("mnist", "swin"): SwinConfig(image=(28, 28), patch=(2, 2), channels=1, width=32, window=7, **SWIN),
    ("cifar10", "vit"): ViTConfig(image=(32, 32), patch=(4, 4), channels=3, **VIT),
    ("cifar10", "swin"): SwinConfig(image=(32, 32), patch=(4, 4), channels=3, width=64, window=4, **SWIN),
}
CONFIGS |= {("folder", family): CONFIGS["cifar10", family] for family in ("vit", "swin")}
SETTINGS: dict[str, Any] = {
    "batch": 128, "optimizer": "muon", "learning_rate": 3e-3, "matrix_rate": 2e-2, "final_rate": 0.0, "warmup": 100,
    "beta2": 0.99, "decay": 0.05, "clip": 1.0, "evaluate_every": 500, "save_every": 500,
}  # fmt: skip
STEPS = {
    ("mnist", "vit"): 4000, ("mnist", "swin"): 2000, ("cifar10", "vit"): 3000, ("cifar10", "swin"): 3000,
    ("folder", "vit"): 2000, ("folder", "swin"): 2000,
}  # fmt: skip


@dataclass(frozen=True)
class ImageOptions(Options):
    """Fields of the image recipe."""

    without_data = ("set",)

    set: str = choice("mnist", ("mnist", "cifar10"), "the images to train on")
    model: str = choice("vit", ("vit", "swin"), "architecture")
    shift: int = integer(2, "largest shift of a training image, in pixels", 0, 100)
    turn: int = integer(10, "largest rotation of a training image, in degrees", 0, 180)
    flip: str | None = optional(choice("no", ("yes", "no"), "mirror images at random; None = yes for cifar10 only"))


def get_image_defaults(request: TrainingRequest, options: ImageOptions, loaded: Loaded | None) -> Defaults:
    """Return the default config and settings of the chosen images and architecture."""
    source = request.select_dataset(options.set, GALLERIES) or "folder"
    return Defaults(
        SETTINGS | {"steps": STEPS[source, options.model]},
        (CONFIGS[source, options.model],),
        from_data=("classes",),
        start_configs=() if loaded is None else (loaded.config,),
    )


def create_image_task(
    request: TrainingRequest, options: ImageOptions, settings: Settings, loaded: Loaded | None
) -> TrainingTask:
    """Train a ViT on MNIST, or another model on other images."""
    if request.data is not None and "set" in request.changes:
        raise ArgumentError("set of the image recipe applies only without --data; remove it")
    source = request.select_dataset(options.set, GALLERIES) or "folder"
    config = CONFIGS[source, options.model]
    if loaded is not None:
        assert isinstance(loaded.config, ViTConfig | SwinConfig)
        config = loaded.config.replace(head="classes") if loaded.config.head == "none" else loaded.config
    config = request.change(config)
    flip = source == "cifar10" if options.flip is None else options.flip == "yes"

    preparation = image_arrays.create_preparation(config, loaded)
    parts = train, validation, held_out = _read_parts(request, source, preparation)
    if loaded is None:
        preparation = image_arrays.measure_preparation(train.pixels, preparation)
    config = class_scores.set_class_count(request, config, train.classes)
    model = create_model(Swin if isinstance(config, SwinConfig) else ViT, config, settings.seed)
    if loaded is not None:  # the output layer is new if the classes differ
        output_layers = () if loaded.labels == train.classes else ("output.", "teacher_output.")
        parameters = loaded.model.state_dict().items()
        copy_parameters(model, {name: tensor for name, tensor in parameters if not name.startswith(output_layers)})
    order = ShuffledEpochs(len(train.labels), settings.seed)

    def batches(step: int, part: int, parts: int) -> Batch:
        indices = select_part(order.select_indices(step, settings.batch), part, parts)
        rows = select_part(list(range(settings.batch)), part, parts)
        moves = image_arrays.sample_moves(settings.batch, settings.seed, step)[rows]
        pixels = image_arrays.normalise(train.pixels[indices], preparation)
        images = image_arrays.move_images(pixels, moves, shift=options.shift, turn=options.turn, flip=flip)
        return Batch({"images": images}, train.labels[indices], len(indices))

    def evaluate(model: Model) -> dict[str, float]:
        logits = compute_logits(model, validation.pixels, preparation)
        accuracy = (logits.argmax(-1) == validation.labels).float().mean()
        return {"loss": float(functional.cross_entropy(logits, validation.labels)), "accuracy": float(accuracy)}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        predictions = compute_logits(model, held_out.pixels, preparation).argmax(-1)
        table = class_scores.count_confusions(held_out.labels, predictions, len(held_out.classes))
        wrong = (predictions != held_out.labels).nonzero().flatten()
        drawn = wrong[:REPORTED_MISTAKES]
        expected, predicted = (
            [held_out.classes[int(labels[index])] for index in drawn] for labels in (held_out.labels, predictions)
        )
        sheet, title = folder / "wrong.png", "the class and the predicted class"
        return {
            "accuracy": class_scores.compute_accuracy(table),
            "wrong": len(wrong),
            "what": f"{len(predictions):,} held-out images, used neither for training nor to choose the checkpoint",
            "confusion": class_scores.format_confusions(table, held_out.classes),
            **image_arrays.save_sheet(request, sheet, held_out.pixels[drawn], expected, predicted, title),
            **image_arrays.save_example_image(folder, held_out.pixels),
        }

    data = {
        "set": source,
        "classes": list(train.classes),
        "pictures": [len(part.labels) for part in parts],
        "fingerprint": fingerprint(digest for part in parts for digest in hash_tensors(part.pixels)),
    }
    counts = {f"{part} images": len(images.labels) for part, images in zip(PARTS, parts, strict=True)}
    summary = DataSummary(counts, [{"class": train.classes[int(label)]} for label in train.labels[:3]])
    return TrainingTask(
        Loaded(model, preparation=preparation, labels=train.classes), settings, batches, compute_token_loss, evaluate,
        data=data, build_report=build_report, summary=summary, examples=len(train.labels),
    )  # fmt: skip


image = Recipe(
    create_image_task, get_image_defaults, (ViT, Swin), ImageOptions, stored=IMAGES_FILE, needs_tokenizer=False
)


def _read_parts(request: TrainingRequest, source: str, preparation: Preparation) -> list[LabelledImages]:
    """Return the training, the validation and the held-out images."""
    if source == "folder":
        problems = request.create_problem_log()
        path = image_arrays.get_image_folder(request)
        files = image_arrays.load_or_resize_images(request, read_image_folder(path, problems), preparation, problems)
        names = class_scores.list_class_names(files.texts, path)
        images = LabelledImages(files.pixels, torch.tensor([names.index(text) for text in files.texts]), names)
        split = split_by_key(hash_tensors(files.pixels), HELD_OUT, VALIDATION["folder"])
        return [_select_images(images, indices, preparation) for indices in split]
    images, held_out = (GALLERIES[source](side, request.show_download) for side in ("train", "held-out"))
    train, validation, _ = split_by_key(hash_tensors(images.pixels), 0.0, VALIDATION[source])
    parts = ((images, train), (images, validation), (held_out, range(len(held_out.labels))))
    return [_select_images(gallery, indices, preparation) for gallery, indices in parts]


def _select_images(images: LabelledImages, indices: Sequence[int], preparation: Preparation) -> LabelledImages:
    """Return the selected images, resized for the model."""
    chosen = torch.tensor(list(indices))
    pixels = images.pixels[chosen]
    if pixels.shape[1:] != (preparation.channels, *(preparation.size or ())) or preparation.crop is not None:
        from PIL import Image

        pixels = torch.stack(
            [
                image_arrays.convert_to_bytes(Image.fromarray(image_arrays.convert_to_array(row).numpy()), preparation)
                for row in pixels
            ]
        )
    return LabelledImages(pixels, images.labels[chosen], images.classes)


@torch.inference_mode()
def compute_logits(model: Model, pixels: PixelBytes, preparation: Preparation) -> Float[Tensor, "image classes"]:
    """Return the class logits of every image."""
    batches = (image_arrays.normalise(batch, preparation).to(model.device) for batch in pixels.split(EVALUATION_BATCH))
    return torch.cat([model(batch).logits.float().cpu() for batch in batches])
