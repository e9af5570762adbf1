"""caption: a picture in, a sentence about it out. The pictures are emoji, their sentences the names that Unicode gives
them, in English or in Korean; or they are your own. What is held out is never a variant of what was learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import ShuffledEpochs, pad_sequences
from jumok.data.datasets import image_galleries
from jumok.data.images.preparation import Preparation
from jumok.data.readers import captioned_images
from jumok.data.readers.lines import ProblemLog
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer
from jumok.generate import greedy
from jumok.generate.decoding import CrossAttentionDecoder
from jumok.generate.token_stream import decode_steps
from jumok.models import Model
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.recipes.recipe import Defaults, Options, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.exact_match import exact, sacrebleu
from jumok.recipes.shared.learned_tokenizer import learn_tokenizer
from jumok.recipes.shared.splits import fingerprint, split_by_key
from jumok.training import IGNORE_INDEX, Batch, Task, select_part, token_loss

from .image_arrays import Bytes, Pictures, digests, drawn, measured, moved, normal, plain, sheet, small, to_try

HELD_OUT = 0.1  # of a folder of your own; emoji have their own part
CHOOSING = 0.1  # of the rest
LONGEST = 256  # tokens of a caption; what is beyond is not learned
SHOWN = 36  # pictures on the sheet
SPECIAL = {"pad": "<pad>", "begin": "<s>", "end": "</s>"}
PEOPLE = {"1f468": "1f9d1", "1f469": "1f9d1"}  # man and woman stand where person stands

Sides = tuple[Pictures, Pictures, Pictures]  # learned from, choosing the best checkpoint, held out for the report


@dataclass(frozen=True)
class CaptionOptions(Options):
    """Fields of the recipe caption."""

    without_data = ("language", "tones")
    without_start = ("vocabulary",)

    language: str = choice("en", ("en", "ko"), "language of the emoji's names")
    tones: str = choice("yes", ("yes", "no"), "also learn from emoji of other skin tones")
    vocabulary: int = integer(1000, "size of the vocabulary, learned on the captions", 259)
    shift: int = integer(2, "largest shift of a training image, in pixels", 0, 100)
    turn: int = integer(8, "largest rotation of a training image, in degrees", 0, 180)


def caption_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings."""
    settings = {**SETTINGS, "threads": torch.get_num_threads()}
    if request.start is not None:
        return Defaults(settings)
    return Defaults(settings, (CONFIG,), from_data=("pad", "start", "end"))


@recipe(caption_defaults, CaptionOptions)
def caption(asked: TrainingRequest) -> Task:
    """Names of emoji, or your own sentences about your own pictures."""
    sacrebleu()  # what is missing is said now, not after the training
    loaded = asked.load_start()
    config = asked.config(CONFIG if loaded is None else _config_of(asked, loaded))
    settings = asked.settings(**caption_defaults(asked).settings)
    options = asked.options(CaptionOptions)

    prepared = plain(config, loaded)
    sides = _emoji(asked, prepared) if asked.data is None else _folder(asked, prepared)
    train, choosing, held_out = sides
    prepared = measured(train.pixels, prepared) if loaded is None else prepared
    tokenizer = _tokenizer(asked, train.texts) if loaded is None else loaded.tokenizer
    if loaded is None:
        longest = max(len(tokenizer.encode(text)) for side in sides for text in side.texts)
        config = config.replace(
            vocabulary=tokenizer.vocabulary, length=max(config.length, min(longest, LONGEST) + 1),
            pad=tokenizer.pad, start=tokenizer.begin, end=tokenizer.end,
        )  # fmt: skip
    model = asked.model(Captioner, config, settings)
    if loaded is not None:
        model.load_state_dict(loaded.model.state_dict())
    rows = [tokenizer.encode(text)[: config.length - 1] for text in train.texts]
    order = ShuffledEpochs(len(rows), settings.seed)

    def batches(step: int, part: int, parts: int) -> Batch:
        chosen = select_part(order.batch_indices(step, settings.batch), part, parts)
        moves = drawn(settings.batch, settings.seed, step)[select_part(list(range(settings.batch)), part, parts)]
        images = moved(normal(train.pixels[chosen], prepared), moves, shift=options.shift, turn=options.turn)
        target, _ = pad_sequences([[config.start, *rows[one]] for one in chosen], config.pad)
        answer, _ = pad_sequences([[*rows[one], config.end] for one in chosen], IGNORE_INDEX)
        return Batch({"images": images, "target": target}, answer, int((answer != IGNORE_INDEX).sum()))

    def evaluate(model: Model) -> dict[str, float]:
        found = written(model, normal(choosing.pixels, prepared), tokenizer)
        return {"chrf": chrf(found, choosing.texts), "exact": exact(found, choosing.texts)}

    def report(model: Model, folder: Path) -> dict[str, Any]:
        found = written(model, normal(held_out.pixels, prepared), tokenizer)
        near = [train.texts[place] for place in nearest(held_out.pixels, train.pixels)]
        shown = held_out.pixels[:SHOWN], held_out.texts[:SHOWN], found[:SHOWN]
        drawn = sheet(asked, folder / "captioned_images.png", *shown, "the caption, and what was written")
        return _report(held_out.texts, found, near) | drawn | to_try(folder, held_out.pixels)

    data = {
        "pictures": [len(side.texts) for side in sides],
        "vocabulary": tokenizer.vocabulary,
        "fingerprint": fingerprint(one for side in sides for one in (*digests(side.pixels), *side.texts)),
    }
    return Task(
        model, settings, batches, token_loss, evaluate, "chrf", "higher", tokenizer=tokenizer, preparation=prepared,
        data=data, report=report,
    )  # fmt: skip


CONFIG = CaptionerConfig(
    source="patches", image=(32, 32), patch=(4, 4), length=24, width=128, layers=3, decoder_layers=2, heads=4,
    hidden=256, dropout=0.2,
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "steps": 3000, "batch": 64, "learning_rate": 1e-3, "final_rate": 0.0, "warmup": 100, "beta2": 0.99, "decay": 0.1,
    "average": 0.998, "evaluate_every": 300, "save_every": 600,
}  # fmt: skip


def _config_of(asked: TrainingRequest, loaded: Loaded) -> CaptionerConfig:
    config = loaded.config
    if not isinstance(config, CaptionerConfig) or config.source != "patches" or loaded.tokenizer is None:
        raise ArgumentError(
            f"the recipe caption goes on with a captioner that reads patches and has a tokenizer; {asked.start} is none"
        )
    return config


def _emoji(asked: TrainingRequest, how: Preparation) -> Sides:
    options = asked.options(CaptionOptions)
    language: Any = options.language
    tones = options.tones == "yes"
    known = list(image_galleries.load_emoji("train", asked.report, language, tones))
    # other skin colours are more to learn from; they are not judged, because they would count one emoji six times
    judged = {path for side in ("train", "held-out") for path, _ in image_galleries.load_emoji(side, None, language)}
    held = list(image_galleries.load_emoji("held-out", asked.report, language))
    found = small(asked, [*known, *held], how, ProblemLog())
    train, choosing, _ = split_by_key([_family(path) for path, _ in known], 0.0, CHOOSING / 2)
    choosing = [place for place in choosing if known[place][0] in judged]
    return found.some(train), found.some(choosing), found.some(range(len(known), len(found.texts)))


def _family(path: Path) -> str:
    """Emoji that begin alike ("1f468-1f3fd-200d-2695-fe0f": man, tone, ...), which are variants, or near enough."""
    first = path.stem.split("-")[0]
    return PEOPLE.get(first, first)


def _folder(asked: TrainingRequest, how: Preparation) -> Sides:
    assert asked.data is not None
    problems = ProblemLog(skip=asked.skip_bad)
    found = small(asked, captioned_images.read_captioned_images(asked.data, problems), how, problems)
    train, choosing, held_out = split_by_key(digests(found.pixels), HELD_OUT, CHOOSING)
    return found.some(train), found.some(choosing), found.some(held_out)


def _tokenizer(asked: TrainingRequest, texts: list[str]) -> Tokenizer:
    """Pieces of words, learned on the training side alone."""
    known = asked.folder / "tokenizer"
    if known.is_dir():  # a run that is taken up again
        return Tokenizer.load(known)
    made = learn_tokenizer(texts, asked.options(CaptionOptions).vocabulary, SPECIAL)
    made.save(known)
    return made


def written(model: Model, images: Tensor, tokenizer: Tokenizer) -> list[str]:
    """The captions that the model writes by itself, the likeliest token at each place."""
    assert isinstance(model, Captioner)
    limit, ends = model.config.length, frozenset({model.config.end})
    texts: list[str] = []
    for some in images.split(256):
        seen: list[list[int]] = [[] for _ in some]
        with torch.inference_mode():
            steps = CrossAttentionDecoder(model, some.to(model.device), limit)
            for _ in decode_steps(steps, seen, limit, greedy, ends):
                pass
        texts += [tokenizer.decode([one for one in row if one not in ends]) for row in seen]
    return texts


def _report(wanted: list[str], found: list[str], near: list[str]) -> dict[str, Any]:
    rows = list(zip(wanted, found, near, strict=True))[:SHOWN]
    return {
        "chrf": chrf(found, wanted),
        "exact": exact(found, wanted),
        "nearest_chrf": chrf(near, wanted),
        "nearest_exact": exact(near, wanted),
        "what": f"chrF (0 to 100) and the share of equal captions, of {len(wanted):,} held-out pictures; none was "
        "learned from, and none chose the checkpoint. nearest, for comparison: the caption of the learned picture that "
        "is most similar, pixel by pixel",
        "samples": [{"caption": one, "written": other, "nearest": third} for one, other, third in rows],
    }


def chrf(found: list[str], wanted: list[str]) -> float:
    """How many letters, and runs of up to six, captions share with what they should be (Popovic 2015); 0 to 100."""
    return round(float(sacrebleu().CHRF().corpus_score(found, [wanted]).score), 2)


def nearest(pixels: Bytes, known: UInt8[Tensor, "known channel row column"]) -> list[int]:
    """For each picture which of the known ones is most similar, pixel by pixel."""
    flat = known.flatten(1).float()
    return [int(torch.cdist(one.flatten()[None].float(), flat).argmin()) for one in pixels]
