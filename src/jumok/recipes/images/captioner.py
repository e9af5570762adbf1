"""Recipe ``caption``: train a model to caption images, or the region features of images.

The images are emoji with their Unicode names, in English or Korean, or the user's own images and captions. All
variants of an emoji are in the same split. Region features are the vectors that an object detector gives for the
regions of an image; with 36 regions of 2,048 numbers they are those of Anderson et al. 2018 ("bottom-up attention").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs
from jumok.data.datasets.image_galleries import Artist, load_emoji
from jumok.data.datasets.text_corpora import Language
from jumok.data.images.preparation import Preparation
from jumok.data.readers.labelled_files import read_captioned_images
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.region_features import list_region_files, read_captioned_regions
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.defaults import IMAGE_EXTENSIONS
from jumok.errors import ArgumentError
from jumok.fields import choice, integer
from jumok.models import Model
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.recipes.recipe import Defaults, Options, Recipe, column_field, create_model, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import load_or_create_tokenizer
from jumok.recipes.shared.seq2seq import create_seq2seq_batch, generate_from_tensors
from jumok.recipes.shared.splits import PARTS, SplitIndices, fingerprint, hash_tensors, split_by_key
from jumok.recipes.shared.text_scores import compute_chrf, compute_exact_match, require_sacrebleu
from jumok.training import Batch, DataSummary, Settings, TrainingTask, compute_token_loss, select_part

from . import image_arrays
from .image_arrays import IMAGES_FILE, LabelledPixels, Moves

EMOJI_ARTISTS: dict[str, Artist] = {"emoji": "google", "emoji-twitter": "twitter"}  # by catalogue entry
PERSON_CODES = {"1f468": "1f9d1", "1f469": "1f9d1"}  # man and woman are variants of person
HELD_OUT = 0.1  # of the user's own images; the emoji have a fixed held-out split
VALIDATION = 0.1  # of the examples that are not held out
MAX_TOKENS = 256  # longer captions are truncated
REPORTED_SAMPLES = 36
EVALUATION_BATCH = 256
EXAMPLE_FILE = "example.safetensors"  # of region features
SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<s>", "end": "</s>"}
SIZES: dict[str, Any] = {
    "length": 24, "width": 128, "layers": 3, "decoder_layers": 2, "heads": 4, "hidden": 256, "dropout": 0.2,
}  # fmt: skip
IMAGE_CONFIG = CaptionerConfig(source="patches", image=(32, 32), patch=(4, 4), **SIZES)
REGION_CONFIG = CaptionerConfig(source="regions", **SIZES)
SETTINGS: dict[str, Any] = {
    "steps": 3000, "batch": 64, "learning_rate": 1e-3, "final_rate": 0.0, "warmup": 100, "beta2": 0.99, "decay": 0.1,
    "average": 0.998, "evaluate_every": 300, "save_every": 600,
}  # fmt: skip


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


def get_caption_defaults(request: TrainingRequest, options: CaptionOptions, loaded: Loaded | None) -> Defaults:
    """Return the default config and settings."""
    start_configs = () if loaded is None else (loaded.config,)
    regions = ("regions", "features") if has_region_features(request) else ()
    config = REGION_CONFIG if regions else IMAGE_CONFIG
    return Defaults(SETTINGS, (config,), ("pad", "start", "end", *regions), start_configs=start_configs)


def has_region_features(request: TrainingRequest) -> bool:
    """Return whether the user's data is a folder with files of region features and without images."""
    folder = Path(str(request.data))
    if not request.has_own_files or not folder.is_dir() or not list_region_files(folder):
        return False
    return not any(path.suffix.lower() in IMAGE_EXTENSIONS for path in folder.iterdir())


def create_caption_task(
    request: TrainingRequest, options: CaptionOptions, settings: Settings, loaded: Loaded | None
) -> TrainingTask:
    """Train a captioner on the names of emoji, or on the user's own images or region features with captions."""
    require_sacrebleu()
    source = "regions" if has_region_features(request) else "patches"
    if loaded is not None:
        assert isinstance(loaded.config, CaptionerConfig)
        if loaded.config.source != source:
            raise request.explain_start(f"a captioner that reads {source} and has a tokenizer", loaded)
    kind = CaptionedRegions if source == "regions" else CaptionedPixels
    examples: CaptionedRegions | CaptionedPixels = kind(request, options, loaded)
    train_texts, validation_texts, held_out_texts = examples.texts

    config = examples.config
    if loaded is None:
        tokenizer = load_or_create_tokenizer(
            request, lambda: Tokenizer.train(train_texts, options.vocabulary, SPECIAL_TOKENS)
        )
        longest = max(len(tokenizer.encode(text)) for texts in examples.texts for text in texts)
        config = config.replace(
            vocabulary=tokenizer.vocabulary, length=max(config.length, min(longest, MAX_TOKENS) + 1),
            pad=tokenizer.pad, start=tokenizer.begin, end=tokenizer.end,
        )  # fmt: skip
    else:
        tokenizer = loaded.require_tokenizer()
    model = create_model(Captioner, config, settings.seed)
    if loaded is not None:
        model.load_state_dict(loaded.model.state_dict())
    captions = [[*tokenizer.encode(text)[: config.length - 1], config.end] for text in train_texts]
    order = ShuffledEpochs(len(captions), settings.seed)

    def batches(step: int, part: int, parts: int) -> Batch:
        indices = select_part(order.select_indices(step, settings.batch), part, parts)
        rows = select_part(list(range(settings.batch)), part, parts)
        images = examples.read_training(indices, image_arrays.sample_moves(settings.batch, settings.seed, step)[rows])
        targets = [captions[index] for index in indices]
        return create_seq2seq_batch({"source": images}, targets, config.start, config.pad)

    def evaluate(model: Model) -> dict[str, float]:
        return _score(_generate(model, examples.read_part("validation"), tokenizer), validation_texts)

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        generated = _generate(model, examples.read_part("held-out"), tokenizer)
        nearest = [train_texts[index] for index in examples.find_nearest()]
        rows = list(zip(held_out_texts, generated, nearest, strict=True))[:REPORTED_SAMPLES]
        return {
            **_score(generated, held_out_texts),
            **{f"nearest_{name}": score for name, score in _score(nearest, held_out_texts).items()},
            "what": f"chrF (0 to 100) and share of identical captions over {len(held_out_texts):,} held-out images, "
            "used neither for training nor to choose the checkpoint; nearest, for comparison: the caption of the "
            f"training image {examples.similarity}",
            "samples": [
                {"caption": reference, "written": caption, "nearest": copied} for reference, caption, copied in rows
            ],
            **examples.save_example(folder, generated),
        }

    pictures = [len(texts) for texts in examples.texts]
    facts = {"pictures": pictures, **examples.facts, "vocabulary": tokenizer.vocabulary}
    counts = {f"{part} {examples.noun}": len(texts) for part, texts in zip(PARTS, examples.texts, strict=True)}
    summary = DataSummary({**counts, **examples.counts}, [{"caption": text} for text in train_texts[:3]])
    return TrainingTask(
        Loaded(model, tokenizer, preparation=examples.preparation), settings, batches, compute_token_loss, evaluate,
        "chrf", "higher", data=facts, build_report=build_report, summary=summary, examples=len(captions),
    )  # fmt: skip


caption = Recipe(create_caption_task, get_caption_defaults, (Captioner,), CaptionOptions, stored=IMAGES_FILE)


def _generate(model: Model, images: Tensor, tokenizer: Tokenizer) -> list[str]:
    """Return a caption for each image, by greedy decoding."""
    assert isinstance(model, Captioner)
    return [
        tokenizer.decode(tokens)
        for batch in images.split(EVALUATION_BATCH)
        for tokens in generate_from_tensors(model, batch, model.config.length, model.config.end)
    ]


def _score(captions: list[str], references: list[str]) -> dict[str, float]:
    exact = compute_exact_match(captions, references)
    return {"chrf": round(compute_chrf(captions, references), 2), "exact": exact}


class CaptionedPixels:
    """Images with captions: emoji, or the user's own.

    ``texts`` are the captions of each part, and ``facts`` describe the data, with which a run resumes.
    """

    noun = "images"
    similarity = "with the most similar pixels"
    counts: Mapping[str, int] = MappingProxyType({})  # further counts for a dry run

    def __init__(self, request: TrainingRequest, options: CaptionOptions, loaded: Loaded | None) -> None:
        start = IMAGE_CONFIG if loaded is None else loaded.config
        assert isinstance(start, CaptionerConfig)
        self.request, self.options = request, options
        self.config = request.change(start)
        self.preparation = image_arrays.create_preparation(self.config, loaded)
        read = _read_folder if request.has_own_files else _read_emoji
        images, split = read(request, options, self.preparation)
        parts = [images.select(indices) for indices in split]
        self.parts = dict(zip(PARTS, parts, strict=True))
        self.texts = [part.texts for part in parts]
        if loaded is None:
            self.preparation = image_arrays.measure_preparation(parts[0].pixels, self.preparation)
        texts = (text for part in parts for text in (*hash_tensors(part.pixels), *part.texts))
        self.facts = {"fingerprint": fingerprint(texts)}

    def read_training(self, indices: list[int], moves: Moves) -> Tensor:
        """Return training images, moved at random."""
        pixels = image_arrays.normalise(self.parts["training"].pixels[indices], self.preparation)
        return image_arrays.move_images(pixels, moves, shift=self.options.shift, turn=self.options.turn)

    def read_part(self, part: str) -> Tensor:
        """Return all images of a part."""
        return image_arrays.normalise(self.parts[part].pixels, self.preparation)

    def find_nearest(self) -> list[int]:
        """Return for each held-out image the most similar training image."""
        train = self.parts["training"].pixels.flatten(1).float()
        held_out = self.parts["held-out"].pixels.flatten(1).float()
        return [int(torch.cdist(image[None], train).argmin()) for image in held_out]

    def save_example(self, folder: Path, captions: Sequence[str]) -> dict[str, str]:
        """Draw held-out images with their captions, and save one to try the model on."""
        pixels, texts = self.parts["held-out"]
        sheet = image_arrays.save_sheet(
            self.request, folder / "captions.png", pixels[:REPORTED_SAMPLES], texts[:REPORTED_SAMPLES],
            list(captions[:REPORTED_SAMPLES]), "the caption and the model's caption",
        )  # fmt: skip
        return {**sheet, **image_arrays.save_example_image(folder, pixels)}


class CaptionedRegions:
    """Region features with captions, from a folder of the user; the attributes are those of ``CaptionedPixels``."""

    noun = "captions"
    similarity = "with the most similar mean over its regions"
    preparation = None

    def __init__(self, request: TrainingRequest, options: CaptionOptions, loaded: Loaded | None) -> None:
        for name in ("shift", "turn"):
            if name in request.changes:
                raise ArgumentError(f"{name} moves the pixels of images; it does not apply to features of regions")
        problems = request.create_problem_log()
        file_format = request.create_file_format(options.header)
        folder = Path(request.require_files())
        examples = read_captioned_regions(folder, problems, options.file, options.caption, file_format)
        request.show_problems(problems)
        keys = hash_tensors(matrix for matrix, _ in examples)
        split = split_by_key(keys, HELD_OUT, VALIDATION)
        self.texts = [[examples[index][1] for index in indices] for indices in split]
        # the features are not stacked: captions of one image share them
        self.parts = {
            part: [examples[index][0] for index in indices] for part, indices in zip(PARTS, split, strict=True)
        }
        regions, features = examples[0][0].shape
        self.counts = {"regions": regions, "features": features}
        self.facts = {
            "regions": [regions, features],
            "fingerprint": fingerprint([*keys, *(text for texts in self.texts for text in texts)]),
        }
        start = REGION_CONFIG.replace(**self.counts) if loaded is None else loaded.config
        assert isinstance(start, CaptionerConfig)
        self.config = config = request.change(start)
        if config.source != "regions" or config.features != features or config.regions < regions:
            raise ArgumentError(
                f"the data has {regions} regions of {features} features, but the model reads "
                f"{config.regions if config.source == 'regions' else 'no'} regions of {config.features}; leave out "
                "source, regions and features, which are taken from the data"
            )

    def read_training(self, indices: list[int], moves: Moves) -> Tensor:
        """Return the features of training images."""
        return torch.stack([self.parts["training"][index] for index in indices])

    def read_part(self, part: str) -> Tensor:
        """Return the features of all images of a part."""
        return torch.stack(self.parts[part])

    def find_nearest(self) -> list[int]:
        """Return for each held-out image the training image with the closest mean over its regions."""
        held_out, train = (
            torch.stack([matrix.mean(0) for matrix in self.parts[part]]) for part in ("held-out", "training")
        )
        nearest: list[int] = torch.cdist(held_out, train).argmin(1).tolist()
        return nearest

    def save_example(self, folder: Path, captions: Sequence[str]) -> dict[str, str]:
        """Save the features of a held-out image to try the model on."""
        save_file({"regions": self.parts["held-out"][0].clone()}, folder / EXAMPLE_FILE)
        return {"try": EXAMPLE_FILE}


def _read_emoji(
    request: TrainingRequest, options: CaptionOptions, preparation: Preparation
) -> tuple[LabelledPixels, SplitIndices]:
    language: Language = "ko" if options.language == "ko" else "en"
    artist = EMOJI_ARTISTS[request.select_dataset("emoji", EMOJI_ARTISTS) or "emoji"]
    emoji = list(load_emoji("train", request.show_download, language, options.tones == "yes", artist))
    # skin tones are used for training only: in the scores they would count the same emoji six times
    without_tones = {
        path for side in ("train", "held-out") for path, _ in load_emoji(side, None, language, False, artist)
    }
    held_out = list(load_emoji("held-out", request.show_download, language, False, artist))
    images = image_arrays.load_or_resize_images(request, [*emoji, *held_out], preparation, ProblemLog())
    train, validation, _ = split_by_key([parse_base_code_point(path) for path, _ in emoji], 0.0, VALIDATION / 2)
    validation = [index for index in validation if emoji[index][0] in without_tones]
    return images, SplitIndices(train, validation, list(range(len(emoji), len(images.texts))))


def parse_base_code_point(image_path: Path) -> str:
    """Return the code point that all variants of an emoji share, from its file name ("1f468-1f3fd-200d": 1f468)."""
    first = image_path.stem.split("-")[0]
    return PERSON_CODES.get(first, first)


def _read_folder(
    request: TrainingRequest, options: CaptionOptions, preparation: Preparation
) -> tuple[LabelledPixels, SplitIndices]:
    problems = request.create_problem_log()
    file_format = request.create_file_format(options.header)
    folder = image_arrays.get_image_folder(request)
    files = read_captioned_images(folder, problems, options.file, options.caption, file_format)
    images = image_arrays.load_or_resize_images(request, files, preparation, problems)
    return images, split_by_key(hash_tensors(images.pixels), HELD_OUT, VALIDATION)
