"""Parts that the captioners of images and of region features share: options, tokens, decoding and scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data.batches.batch_order import pad_sequences
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.fields import choice, integer
from jumok.generate import greedy
from jumok.generate.decoding import CrossAttentionDecoder
from jumok.generate.token_stream import decode_steps
from jumok.models import Model
from jumok.models.captioner import Captioner, CaptionerConfig
from jumok.recipes.recipe import Options, column_field, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import learn_tokenizer, load_or_create_tokenizer
from jumok.recipes.shared.text_scores import compute_chrf, compute_exact_match
from jumok.training import IGNORE_INDEX, Batch

HELD_OUT = 0.1  # of the user's own images; the emoji have a fixed held-out split
VALIDATION = 0.1  # of the examples that are not held out
MAX_TOKENS = 256  # longer captions are truncated
REPORTED_SAMPLES = 36
EVALUATION_BATCH = 256
SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<s>", "end": "</s>"}
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


def set_tokens(config: CaptionerConfig, tokenizer: Tokenizer, texts: list[str]) -> CaptionerConfig:
    """Return the config with the tokenizer's tokens and a length that fits the longest caption."""
    longest = max(len(tokenizer.encode(text)) for text in texts)
    return config.replace(
        vocabulary=tokenizer.vocabulary, length=max(config.length, min(longest, MAX_TOKENS) + 1), pad=tokenizer.pad,
        start=tokenizer.begin, end=tokenizer.end,
    )  # fmt: skip


def load_or_learn_tokenizer(request: TrainingRequest, texts: list[str]) -> Tokenizer:
    """Load the run's tokenizer, or learn one from the training captions."""
    vocabulary = request.take_options(CaptionOptions).vocabulary
    return load_or_create_tokenizer(request, lambda: learn_tokenizer(texts, vocabulary, SPECIAL_TOKENS))


def create_caption_batch(images: Tensor, captions: list[list[int]], config: CaptionerConfig) -> Batch:
    """Return a batch for training: the decoder reads a caption behind the start token and predicts the next tokens."""
    target, _ = pad_sequences([[config.start, *tokens] for tokens in captions], config.pad)
    answers, _ = pad_sequences([[*tokens, config.end] for tokens in captions], IGNORE_INDEX)
    return Batch({"images": images, "target": target}, answers, int((answers != IGNORE_INDEX).sum()))


def generate_captions(model: Model, images: Float[Tensor, image * axes], tokenizer: Tokenizer) -> list[str]:
    """Generate a caption for each image by greedy decoding."""
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


def score_captions(captions: list[str], references: list[str]) -> dict[str, float]:
    """Return chrF and the share of identical captions."""
    return {
        "chrf": round(compute_chrf(captions, references), 2),
        "exact": compute_exact_match(captions, references),
    }


def build_caption_report(
    references: list[str], captions: list[str], nearest: list[str], similarity: str
) -> dict[str, Any]:
    """Return the scores of held-out captions and some examples."""
    rows = list(zip(references, captions, nearest, strict=True))[:REPORTED_SAMPLES]
    return {
        **score_captions(captions, references),
        **{f"nearest_{name}": score for name, score in score_captions(nearest, references).items()},
        "what": f"chrF (0 to 100) and share of identical captions over {len(references):,} held-out images, used "
        "neither for training nor to choose the checkpoint; nearest, for comparison: the caption of the training image "
        f"{similarity}",
        "samples": [
            {"caption": reference, "written": generated, "nearest": copied} for reference, generated, copied in rows
        ],
    }
