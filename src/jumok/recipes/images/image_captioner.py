"""Recipe ``caption``: train a model to caption images.

The images are emoji with their Unicode names, in English or Korean, or the user's own images and captions. All
variants of an emoji are in the same split.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs, pad_sequences
from jumok.data.datasets.image_galleries import Artist, load_emoji
from jumok.data.datasets.text_corpora import Language
from jumok.data.images.preparation import Preparation
from jumok.data.readers.captioned_images import read_captioned_images
from jumok.data.readers.lines import ProblemLog
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer
from jumok.generate import greedy
from jumok.generate.decoding import CrossAttentionDecoder
from jumok.generate.token_stream import decode_steps
from jumok.models import Model
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.recipes.recipe import Defaults, Options, column_field, header_field, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.data_source import select_dataset
from jumok.recipes.shared.run_tokenizer import learn_tokenizer, load_or_create_tokenizer
from jumok.recipes.shared.splits import fingerprint, split_by_key
from jumok.recipes.shared.text_scores import compute_chrf, compute_exact_match, require_sacrebleu
from jumok.training import IGNORE_INDEX, Batch, DataSummary, Task, compute_token_loss, select_part

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

HELD_OUT = 0.1  # of the user's own images; the emoji have a fixed held-out split
VALIDATION = 0.1  # of the examples that are not held out
MAX_TOKENS = 256  # longer captions are truncated
REPORTED_SAMPLES = 36
EVALUATION_BATCH = 256
SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<s>", "end": "</s>"}
EMOJI_ARTISTS: dict[str, Artist] = {"emoji": "google", "emoji-twitter": "twitter"}  # by catalogue entry
PERSON_CODES = {"1f468": "1f9d1", "1f469": "1f9d1"}  # man and woman are variants of person

CONFIG = CaptionerConfig(
    source="patches", image=(32, 32), patch=(4, 4), length=24, width=128, layers=3, decoder_layers=2, heads=4,
    hidden=256, dropout=0.2,
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "steps": 3000, "batch": 64, "learning_rate": 1e-3, "final_rate": 0.0, "warmup": 100, "beta2": 0.99, "decay": 0.1,
    "average": 0.998, "evaluate_every": 300, "save_every": 600,
}  # fmt: skip

SplitImages = tuple[LabelledPixels, LabelledPixels, LabelledPixels]  # training, validation, held out


@dataclass(frozen=True)
class CaptionOptions(Options):
    """Fields of the caption recipe."""

    with_data = ("file", "caption", "header")
    without_data = ("language", "tones")
    without_start = ("vocabulary",)

    language: str = choice("en", ("en", "ko"), "language of the emoji's names")
    tones: str = choice("yes", ("yes", "no"), "also train on emoji of other skin tones")
    vocabulary: int = integer(1000, "size of the vocabulary, learned on the captions", 256 + len(SPECIAL_TOKENS))
    shift: int = integer(2, "largest shift of a training image, in pixels", 0, 100)
    turn: int = integer(8, "largest rotation of a training image, in degrees", 0, 180)
    file: str | None = column_field("column of your table that has the names of the image files")
    caption: str | None = column_field("column of your table that has the captions")
    header: str = header_field()


def get_caption_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings.

    Args:
        request: The training request.
    """
    if request.start is not None:
        return Defaults(SETTINGS)
    return Defaults(SETTINGS, (CONFIG,), from_data=("pad", "start", "end"))


@recipe(get_caption_defaults, CaptionOptions, stored=IMAGES_FILE)
def caption(request: TrainingRequest) -> Task:
    """Train a captioner on the names of emoji, or on the user's own images and captions.

    Args:
        request: The training request; ``--data`` is a folder of images with captions, by default emoji.
    """
    require_sacrebleu()
    loaded = request.load_start()
    config = request.take_config(CONFIG if loaded is None else _require_captioner_config(loaded, request.start))
    settings = request.take_settings(**get_caption_defaults(request).settings)
    options = request.take_options(CaptionOptions)

    preparation = create_preparation(config, loaded)
    parts = _read_folder(request, preparation) if request.has_own_files else _read_emoji(request, preparation)
    train, validation, held_out = parts
    if loaded is None:
        preparation = measure_preparation(train.pixels, preparation)
        tokenizer = _load_or_learn_tokenizer(request, train.texts)
        config = _set_tokens(config, tokenizer, [text for part in parts for text in part.texts])
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
        target, _ = pad_sequences([[config.start, *captions[index]] for index in indices], config.pad)
        answers, _ = pad_sequences([[*captions[index], config.end] for index in indices], IGNORE_INDEX)
        return Batch({"images": images, "target": target}, answers, int((answers != IGNORE_INDEX).sum()))

    def evaluate(model: Model) -> dict[str, float]:
        generated = generate_captions(model, normalise(validation.pixels, preparation), tokenizer)
        return _score(generated, validation.texts)

    def report(model: Model, folder: Path) -> dict[str, Any]:
        generated = generate_captions(model, normalise(held_out.pixels, preparation), tokenizer)
        nearest = [train.texts[index] for index in find_nearest_images(held_out.pixels, train.pixels)]
        sheet = save_sheet(
            request, folder / "captions.png", held_out.pixels[:REPORTED_SAMPLES], held_out.texts[:REPORTED_SAMPLES],
            generated[:REPORTED_SAMPLES], "the caption and the model's caption",
        )  # fmt: skip
        return _build_report(held_out.texts, generated, nearest) | sheet | save_example_image(folder, held_out.pixels)

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


def _set_tokens(config: CaptionerConfig, tokenizer: Tokenizer, texts: list[str]) -> CaptionerConfig:
    """Return the config with the tokenizer's tokens and a length that fits the longest caption."""
    longest = max(len(tokenizer.encode(text)) for text in texts)
    return config.replace(
        vocabulary=tokenizer.vocabulary, length=max(config.length, min(longest, MAX_TOKENS) + 1), pad=tokenizer.pad,
        start=tokenizer.begin, end=tokenizer.end,
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


def _load_or_learn_tokenizer(request: TrainingRequest, texts: list[str]) -> Tokenizer:
    """Load the run's tokenizer, or learn one from the training captions."""
    vocabulary = request.take_options(CaptionOptions).vocabulary
    return load_or_create_tokenizer(request, lambda: learn_tokenizer(texts, vocabulary, SPECIAL_TOKENS))


def generate_captions(
    model: Model, images: Float[Tensor, "image channel row column"], tokenizer: Tokenizer
) -> list[str]:
    """Generate a caption for each image by greedy decoding.

    Args:
        model: A captioner that reads patches.
        images: The normalised images.
        tokenizer: The model's tokenizer.
    """
    assert isinstance(model, Captioner)
    limit, ends = model.config.length, frozenset({model.config.end})
    captions: list[str] = []
    for batch in images.split(EVALUATION_BATCH):
        tokens: list[list[int]] = [[] for _ in batch]
        with torch.inference_mode():
            decoder = CrossAttentionDecoder(model, batch.to(model.device), limit)
            for step in decode_steps(decoder, [[] for _ in batch], limit, greedy, ends):
                for row, token in zip(tokens, step, strict=True):
                    row += [] if token is None else [token]
        captions += [tokenizer.decode([token for token in row if token not in ends]) for row in tokens]
    return captions


def _score(captions: list[str], references: list[str]) -> dict[str, float]:
    return {
        "chrf": round(compute_chrf(captions, references), 2),
        "exact": compute_exact_match(captions, references),
    }


def _build_report(references: list[str], captions: list[str], nearest: list[str]) -> dict[str, Any]:
    rows = list(zip(references, captions, nearest, strict=True))[:REPORTED_SAMPLES]
    return {
        **_score(captions, references),
        **{f"nearest_{name}": score for name, score in _score(nearest, references).items()},
        "what": f"chrF (0 to 100) and share of identical captions over {len(references):,} held-out images, used "
        "neither for training nor to choose the checkpoint; nearest, for comparison: the caption of the training image "
        "with the most similar pixels",
        "samples": [
            {"caption": reference, "written": generated, "nearest": copied} for reference, generated, copied in rows
        ],
    }


def find_nearest_images(pixels: PixelBytes, train_pixels: UInt8[Tensor, "train channel row column"]) -> list[int]:
    """Return for each image the index of the training image with the smallest pixel distance.

    Args:
        pixels: The images to compare.
        train_pixels: The training images.
    """
    train_rows = train_pixels.flatten(1).float()
    return [int(torch.cdist(image.flatten()[None].float(), train_rows).argmin()) for image in pixels]
