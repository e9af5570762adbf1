"""Recipe ``caption``: train a model to caption images.

The images are emoji with their Unicode names, in English or Korean, or the user's own images and captions. All
variants of an emoji are in the same split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.datasets.image_galleries import Artist, load_emoji
from jumok.data.datasets.text_corpora import Language
from jumok.data.images.preparation import Preparation
from jumok.data.readers.labelled_files import read_captioned_images
from jumok.data.readers.lines import ProblemLog
from jumok.errors import ArgumentError
from jumok.models import Model
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.recipes.recipe import Defaults, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.data_source import select_dataset
from jumok.recipes.shared.splits import fingerprint, split_by_key
from jumok.recipes.shared.text_scores import require_sacrebleu
from jumok.training import Batch, DataSummary, Task, compute_token_loss, select_part

from .caption_parts import (
    HELD_OUT,
    REPORTED_SAMPLES,
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
from .image_arrays import (
    IMAGES_FILE,
    PARTS,
    LabelledPixels,
    PixelBytes,
    create_preparation,
    get_image_folder,
    hash_images,
    load_or_resize_images,
    measure_preparation,
    move_images,
    normalise,
    sample_moves,
    save_example_image,
    save_sheet,
)
from .region_captioner import REGION_CONFIG, create_region_task, has_region_features

EMOJI_ARTISTS: dict[str, Artist] = {"emoji": "google", "emoji-twitter": "twitter"}  # by catalogue entry
PERSON_CODES = {"1f468": "1f9d1", "1f469": "1f9d1"}  # man and woman are variants of person

CONFIG = CaptionerConfig(
    source="patches", image=(32, 32), patch=(4, 4), length=24, width=128, layers=3, decoder_layers=2, heads=4,
    hidden=256, dropout=0.2,
)  # fmt: skip

SplitImages = tuple[LabelledPixels, LabelledPixels, LabelledPixels]  # training, validation, held out


def get_caption_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings."""
    if request.start is not None:
        return Defaults(SETTINGS)
    if has_region_features(request):
        return Defaults(SETTINGS, (REGION_CONFIG,), from_data=("pad", "start", "end", "regions", "features"))
    return Defaults(SETTINGS, (CONFIG,), from_data=("pad", "start", "end"))


@recipe(get_caption_defaults, CaptionOptions, stored=IMAGES_FILE)
def caption(request: TrainingRequest) -> Task:
    """Train a captioner on the names of emoji, or on the user's own images or region features with captions."""
    require_sacrebleu()
    if has_region_features(request):
        return create_region_task(request)
    loaded = request.load_start()
    config = request.take_config(CONFIG if loaded is None else _require_captioner_config(loaded, request.start))
    settings = request.take_settings(**get_caption_defaults(request).settings)
    options = request.take_options(CaptionOptions)

    preparation = create_preparation(config, loaded)
    parts = _read_folder(request, preparation) if request.has_own_files else _read_emoji(request, preparation)
    train, validation, held_out = parts
    if loaded is None:
        preparation = measure_preparation(train.pixels, preparation)
        tokenizer = load_or_learn_tokenizer(request, train.texts)
        config = set_tokens(config, tokenizer, [text for part in parts for text in part.texts])
    else:
        tokenizer = loaded.require_tokenizer()
    model = request.create_model(Captioner, config, settings)
    if loaded is not None:
        model.load_state_dict(loaded.model.state_dict())
    captions = [tokenizer.encode(text)[: config.length - 1] for text in train.texts]
    order = ShuffledEpochs(len(captions), settings.seed)

    def batches(step: int, part: int, parts: int) -> Batch:
        indices = select_part(order.select_indices(step, settings.batch), part, parts)
        rows = select_part(list(range(settings.batch)), part, parts)
        moves = sample_moves(settings.batch, settings.seed, step)[rows]
        pixels = normalise(train.pixels[indices], preparation)
        images = move_images(pixels, moves, shift=options.shift, turn=options.turn)
        return create_caption_batch(images, [captions[index] for index in indices], config)

    def evaluate(model: Model) -> dict[str, float]:
        generated = generate_captions(model, normalise(validation.pixels, preparation), tokenizer)
        return score_captions(generated, validation.texts)

    def report(model: Model, folder: Path) -> dict[str, Any]:
        generated = generate_captions(model, normalise(held_out.pixels, preparation), tokenizer)
        nearest = [train.texts[index] for index in find_nearest_images(held_out.pixels, train.pixels)]
        sheet = save_sheet(
            request, folder / "captions.png", held_out.pixels[:REPORTED_SAMPLES], held_out.texts[:REPORTED_SAMPLES],
            generated[:REPORTED_SAMPLES], "the caption and the model's caption",
        )  # fmt: skip
        scores = build_caption_report(held_out.texts, generated, nearest, "with the most similar pixels")
        return {**scores, **sheet, **save_example_image(folder, held_out.pixels)}

    facts = {
        "pictures": [len(part.texts) for part in parts],
        "vocabulary": tokenizer.vocabulary,
        "fingerprint": fingerprint(text for part in parts for text in (*hash_images(part.pixels), *part.texts)),
    }
    summary = DataSummary(
        {
            f"{part} images": len(images.texts)
            for part, images in zip(PARTS, (train, validation, held_out), strict=True)
        },
        [{"caption": text} for text in train.texts[:3]],
    )
    return Task(
        model, settings, batches, compute_token_loss, evaluate, "chrf", "higher", tokenizer=tokenizer,
        preparation=preparation, data=facts, report=report, summary=summary, examples=len(captions),
    )  # fmt: skip


def _require_captioner_config(loaded: Loaded, start: str | None) -> CaptionerConfig:
    config = loaded.config
    if not isinstance(config, CaptionerConfig) or config.source != "patches" or loaded.tokenizer is None:
        raise ArgumentError(
            "the caption recipe can start only from a captioner that reads patches and has a tokenizer; "
            f"{start} is not one"
        )
    return config


def _read_emoji(request: TrainingRequest, preparation: Preparation) -> SplitImages:
    options = request.take_options(CaptionOptions)
    language: Language = "ko" if options.language == "ko" else "en"
    artist = EMOJI_ARTISTS[select_dataset(request, "emoji", EMOJI_ARTISTS) or "emoji"]
    report = request.download_report
    emoji = list(load_emoji("train", report, language, options.tones == "yes", artist))
    # skin tones are used for training only: in the scores they would count the same emoji six times
    without_tones = {
        path for side in ("train", "held-out") for path, _ in load_emoji(side, None, language, False, artist)
    }
    held_out = list(load_emoji("held-out", report, language, False, artist))
    images = load_or_resize_images(request, [*emoji, *held_out], preparation, ProblemLog())
    train, validation, _ = split_by_key([_parse_base_code_point(path) for path, _ in emoji], 0.0, VALIDATION / 2)
    validation = [index for index in validation if emoji[index][0] in without_tones]
    return images.select(train), images.select(validation), images.select(range(len(emoji), len(images.texts)))


def _parse_base_code_point(image_path: Path) -> str:
    """Return the code point that all variants of an emoji share, from its file name ("1f468-1f3fd-200d": 1f468)."""
    first = image_path.stem.split("-")[0]
    return PERSON_CODES.get(first, first)


def _read_folder(request: TrainingRequest, preparation: Preparation) -> SplitImages:
    problems = request.create_problem_log()
    options = request.take_options(CaptionOptions)
    file_format = request.create_file_format(options.header)
    files = read_captioned_images(get_image_folder(request), problems, options.file, options.caption, file_format)
    images = load_or_resize_images(request, files, preparation, problems)
    train, validation, held_out = split_by_key(hash_images(images.pixels), HELD_OUT, VALIDATION)
    return images.select(train), images.select(validation), images.select(held_out)


def find_nearest_images(pixels: PixelBytes, train_pixels: UInt8[Tensor, "train channel row column"]) -> list[int]:
    """Return for each image the index of the training image with the smallest pixel distance."""
    train_rows = train_pixels.flatten(1).float()
    return [int(torch.cdist(image.flatten()[None].float(), train_rows).argmin()) for image in pixels]
