"""Train a captioner on region features: the vectors that an object detector gives for the regions of an image.

With 36 regions of 2,048 numbers these are the features of Anderson et al. 2018 ("bottom-up attention").
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.images.image_files import IMAGE_EXTENSIONS
from jumok.data.readers.region_features import list_region_files, read_captioned_regions
from jumok.errors import ArgumentError
from jumok.models import Model
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.data_source import require_files
from jumok.recipes.shared.splits import fingerprint, split_by_key
from jumok.training import Batch, DataSummary, Task, compute_token_loss, select_part

from .caption_parts import (
    HELD_OUT,
    SETTINGS,
    VALIDATION,
    CaptionOptions,
    build_caption_report,
    create_caption_batch,
    generate_captions,
    load_or_learn_tokenizer,
    score_captions,
    set_tokens,
)
from .image_arrays import PARTS

EXAMPLE_FILE = "example.safetensors"
REGION_CONFIG = CaptionerConfig(
    source="regions", length=24, width=128, layers=3, decoder_layers=2, heads=4, hidden=256, dropout=0.2
)

RegionBatch = Float[Tensor, "image region feature"]


def has_region_features(request: TrainingRequest) -> bool:
    """Return whether the user's data is a folder with files of region features and without images."""
    folder = Path(str(request.data))
    if not request.has_own_files or not folder.is_dir() or not list_region_files(folder):
        return False
    return not any(path.suffix.lower() in IMAGE_EXTENSIONS for path in folder.iterdir())


def create_region_task(request: TrainingRequest) -> Task:
    """Build the training task of a captioner that reads regions."""
    for name in ("shift", "turn"):
        if name in request.changes:
            raise ArgumentError(f"{name} moves the pixels of images; it does not apply to features of regions")
    options = request.take_options(CaptionOptions)
    settings = request.take_settings(**SETTINGS)
    problems = request.create_problem_log()
    file_format = request.create_file_format(options.header)
    folder = Path(require_files(request))
    examples = read_captioned_regions(folder, problems, options.file, options.caption, file_format)
    if problems.count:
        request.report(str(problems))
    keys = [hashlib.sha256(matrix.numpy().tobytes()).hexdigest() for matrix, _ in examples]
    parts = [[examples[index] for index in part] for part in split_by_key(keys, HELD_OUT, VALIDATION)]
    texts = [[text for _, text in part] for part in parts]
    # the training features are not stacked: captions of one image share them
    train = [matrix for matrix, _ in parts[0]]
    validation, held_out = (torch.stack([matrix for matrix, _ in part]) for part in parts[1:])

    regions, features = train[0].shape
    loaded = request.load_start()
    if loaded is None:
        config = request.take_config(REGION_CONFIG.replace(regions=regions, features=features))
        tokenizer = load_or_learn_tokenizer(request, texts[0])
        config = set_tokens(config, tokenizer, [text for part in texts for text in part])
    else:
        config = request.take_config(_require_region_config(loaded, request.start))
        tokenizer = loaded.require_tokenizer()
    if config.source != "regions" or config.features != features or config.regions < regions:
        raise ArgumentError(
            f"the data has {regions} regions of {features} features, but the model reads "
            f"{config.regions if config.source == 'regions' else 'no'} regions of {config.features}; leave out source, "
            "regions and features, which are taken from the data"
        )
    model = request.create_model(Captioner, config, settings)
    if loaded is not None:
        model.load_state_dict(loaded.model.state_dict())
    captions = [tokenizer.encode(text)[: config.length - 1] for text in texts[0]]
    order = ShuffledEpochs(len(captions), settings.seed)

    def batches(step: int, part: int, parts: int) -> Batch:
        indices = select_part(order.select_indices(step, settings.batch), part, parts)
        images = torch.stack([train[index] for index in indices])
        return create_caption_batch(images, [captions[index] for index in indices], config)

    def evaluate(model: Model) -> dict[str, float]:
        return score_captions(generate_captions(model, validation, tokenizer), texts[1])

    def report(model: Model, folder: Path) -> dict[str, Any]:
        nearest = [texts[0][index] for index in _find_nearest(held_out, train)]
        save_file({"regions": held_out[0].clone()}, folder / EXAMPLE_FILE)
        generated = generate_captions(model, held_out, tokenizer)
        scores = build_caption_report(texts[2], generated, nearest, "with the most similar mean over its regions")
        return {**scores, "try": EXAMPLE_FILE}

    facts = {
        "pictures": [len(part) for part in texts],
        "regions": [regions, features],
        "vocabulary": tokenizer.vocabulary,
        "fingerprint": fingerprint([*keys, *(text for part in texts for text in part)]),
    }
    counts = {f"{name} captions": len(part) for name, part in zip(PARTS, texts, strict=True)}
    summary = DataSummary(
        {**counts, "regions": regions, "features": features}, [{"caption": text} for text in texts[0][:3]]
    )
    return Task(
        model, settings, batches, compute_token_loss, evaluate, "chrf", "higher", tokenizer=tokenizer,
        data=facts, report=report, summary=summary, examples=len(captions),
    )  # fmt: skip


def _require_region_config(loaded: Loaded, start: str | None) -> CaptionerConfig:
    config = loaded.config
    if not isinstance(config, CaptionerConfig) or config.source != "regions" or loaded.tokenizer is None:
        raise ArgumentError(
            "training on region features can start only from a captioner that reads regions and has a tokenizer; "
            f"{start} is not one"
        )
    return config


def _find_nearest(regions: RegionBatch, train: list[Tensor]) -> list[int]:
    """Return for each image the index of the training image with the closest mean over its regions."""
    nearest: list[int] = (
        torch.cdist(regions.mean(1), torch.stack([matrix.mean(0) for matrix in train])).argmin(1).tolist()
    )
    return nearest
