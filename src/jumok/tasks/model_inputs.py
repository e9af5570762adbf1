"""Convert user input (text, image, regions, audio, numbers) into model inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.checkpoint.tensor_files import read_tensor
from jumok.checkpoint.transformers_folder import LoadedTransformers
from jumok.data.audio.audio_files import is_audio_path
from jumok.data.images.image_files import is_existing_file, is_image_path
from jumok.data.readers.region_features import is_region_file, read_region_file
from jumok.data.tokenizers.passage_tokens import encode_passages, split_question
from jumok.data.tokenizers.token_labels import (
    count_unknown,
    describe_unknown_tokens,
    list_unknown_words,
    require_all_words,
    require_known_words,
)
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, describe_type
from jumok.models.fusion import Fusion
from jumok.models.speech import Speech

from .speech.audio_window import AudioWindow, cut_window, read_samples

# What a user passed. It may be of any type; read_input checks it.
RawInput = Any

# What a model reads, in the words of an error message.
INPUT_NAMES = {
    "text": "text",
    "image": "images",
    "regions": "image regions",
    "audio": "audio",
    "numbers": "numbers",
}
NAMES_IN_ERROR = 8  # images of a file
# The number of axes of a tensor that holds a batch of inputs.
BATCH_AXES = {"image": 4, "regions": 3, "audio": 2, "numbers": 2}


@dataclass(frozen=True)
class ModelInput:
    """One input of a model."""

    source: Tensor  # the model's first argument, a batch of one: token ids, an image, regions, a spectrogram or numbers
    token_ids: list[int] = field(default_factory=list)  # of a text; [] for other inputs
    unknown_count: int = 0  # the number of these tokens that the tokenizer does not know
    unknown_words: tuple[str, ...] = ()  # the words or characters that these tokens stand for
    audio: AudioWindow | None = None  # the window of a recording that the model reads

    @property
    def warning(self) -> str | None:
        """A sentence that names the unknown words; None if there are none."""
        if not self.unknown_count:
            return None
        return describe_unknown_tokens(self.unknown_count, len(self.token_ids), self.unknown_words)


def read_input(loaded: Loaded, raw: RawInput, *, chat: bool = False, begin: float = 0.0) -> ModelInput:
    """Convert one input of the user into a model input on the model's device.

    It is a text, an image (path, Pillow image or tensor), regions (path or tensor), audio (path, or a tensor of samples
    at 16 kHz) or numbers, as the model needs. ``chat`` applies the tokenizer's chat template to a text; ``begin`` is
    the second at which the window of audio that is read begins.
    """
    reads = loaded.model.reads
    if reads == "text":
        return _read_text(loaded, raw, chat)
    if chat:
        raise ArgumentError(f"chat is for models that read text; this {loaded.family} model reads {INPUT_NAMES[reads]}")
    if reads == "audio":
        if not isinstance(loaded.model, Speech):
            raise ArgumentError(f"this {loaded.family} model does not say how long its windows of audio are")
        features, window = cut_window(loaded.model, read_samples(raw), begin)
        return ModelInput(features.to(loaded.model.device)[None], audio=window)
    read_functions = {"image": _read_image, "regions": _read_regions, "numbers": _read_numbers}
    source = read_functions[reads](loaded, raw)
    return ModelInput(source.to(loaded.model.device)[None])


def split_batch(reads: str, inputs: RawInput) -> list[RawInput] | None:
    """Return the inputs of a batch, a list or tuple or a tensor with a batch axis, as a list; None for a single input.

    >>> split_batch("text", ["a", "b"]), split_batch("numbers", [10, 20])
    (['a', 'b'], None)
    """
    if isinstance(inputs, Tensor):
        return list(inputs) if inputs.dim() == BATCH_AXES.get(reads) else None
    if not isinstance(inputs, list | tuple):
        return None
    if reads == "numbers" and inputs and isinstance(inputs[0], int | float):
        return None  # a list of numbers is one sequence
    return list(inputs)


def _read_text(loaded: Loaded, raw: RawInput, chat: bool) -> ModelInput:
    name = f"this {loaded.family} model"
    check_text(name, raw)
    if is_audio_path(raw) and is_existing_file(Path(raw)):
        raise ArgumentError(f"{raw} is audio, but {name} reads text")
    if chat:
        raw = loaded.require_tokenizer().apply_chat_template([{"role": "user", "content": raw}])
    return encode_text(loaded, raw)


def check_text(model: str, raw: RawInput) -> None:
    """Raise an ArgumentError for an input that is not a text; ``model`` is the model's name in the message."""
    if not isinstance(raw, str):
        raise ArgumentError(f"{model} reads text, not {describe_type(raw)}")
    if is_image_path(raw):
        raise ArgumentError(f"{raw} is an image, but {model} reads text")


def encode_text(loaded: Loaded | LoadedTransformers, text: str) -> ModelInput:
    """Convert a text into a model input. It is always read as text, even if a file has this name.

    A question of a Fusion-in-Decoder and its passages are separated by "|".
    """
    tokenizer = loaded.require_tokenizer()
    if isinstance(loaded.model, Fusion):
        separator = loaded.model.config.separator
        passages = encode_passages(tokenizer, separator, *split_question(text))
        token_ids = [token for passage in passages for token in passage]
    else:
        token_ids = tokenizer.encode(text)
    if not token_ids:
        raise ArgumentError("the text is empty; give the model an input")

    unknown_count = count_unknown(tokenizer, text, token_ids)
    unknown_words = list_unknown_words(tokenizer, text) if unknown_count else ()
    is_translator = isinstance(loaded, Loaded) and loaded.model.task == "translate"
    if unknown_words and is_translator and isinstance(tokenizer, Tokenizer) and tokenizer.word_pieces:
        require_all_words(tokenizer, unknown_words)
    require_known_words(tokenizer, text, unknown_count)
    source = torch.tensor([token_ids], device=loaded.model.device)
    return ModelInput(source, token_ids, unknown_count, unknown_words)


def _read_image(loaded: Loaded, raw: RawInput) -> Float[Tensor, "channel row column"]:
    """Return a prepared image; a tensor is expected to be prepared already."""
    if isinstance(raw, Tensor):
        return _check_tensor(raw, "an image", "channel", "row", "column")
    if isinstance(raw, str | Path) and not is_existing_file(Path(raw)):
        raise ArgumentError(
            f"this {loaded.family} model reads images, but there is no file {str(raw)[:200]!r}; give the path of an "
            "image"
        )
    if loaded.preparation is None:
        raise ArgumentError(
            f"this {loaded.family} model does not say how images are prepared (size, mean, deviation); pass a tensor "
            "[channel, row, column], or load the model with a preparation"
        )
    return loaded.preparation.apply(raw)


def _read_regions(loaded: Loaded, raw: RawInput) -> Float[Tensor, "region feature"]:
    """Return the regions that a detector found in an image, from a tensor or a file."""
    regions = _load_regions(loaded, str(raw)) if isinstance(raw, str | Path) else raw
    if not isinstance(regions, Tensor):
        raise ArgumentError(f"regions must be a tensor [region, feature], not {describe_type(raw)}")
    return _check_tensor(regions, "regions", "region", "feature")


def _load_regions(loaded: Loaded, location: str) -> Tensor:
    """Read regions from a file of one image, or those of one image from a file of several: "features.npz:cat"."""
    path, name = Path(location), ""
    if not is_existing_file(path) and ":" in location:
        file, name = location.rsplit(":", 1)
        path = Path(file)
    if not is_region_file(path) or not is_existing_file(path):
        raise ArgumentError(
            f"this {loaded.family} model reads image regions; give a .safetensors file with one tensor "
            f"[region, feature], a .npy or .npz file, or FILE:NAME for one image of several, not {location[:200]!r}"
        )
    if path.suffix == ".safetensors" and not name:
        return read_tensor(path)
    names = []
    for stored_name, features in read_region_file(path):
        if name in (stored_name, Path(stored_name).stem):
            return features
        names.append(stored_name)
    if not name and len(names) == 1:
        return features
    listed = ", ".join(names[:NAMES_IN_ERROR]) + (", ..." if len(names) > NAMES_IN_ERROR else "")
    problem = f"has no image {name!r}" if name else f"holds {len(names)} images; name one, such as {path}:NAME"
    raise ArgumentError(f"{path} {problem}; its images are {listed}")


def _read_numbers(loaded: Loaded, raw: RawInput) -> Float[Tensor, " length"]:
    """Return numbers from text such as "10, 20, 30", a list or a tensor."""
    if isinstance(raw, str):
        raw = raw.replace(",", " ").split()
    if isinstance(raw, list | tuple):
        try:
            raw = torch.tensor([float(number) for number in raw])
        except (TypeError, ValueError, OverflowError):
            text = " ".join(str(number) for number in raw)[:80]
            raise ArgumentError(f"this {loaded.family} model reads numbers, such as 10,20,30, not {text!r}") from None
    if not isinstance(raw, Tensor) or not raw.numel():
        raise ArgumentError(f"this {loaded.family} model reads a sequence of at least one number, such as 10,20,30")
    return _check_tensor(raw.float(), "numbers", "length")


def _check_tensor(tensor: Tensor, name: str, *axes: str) -> Tensor:
    if not tensor.is_floating_point() or tensor.dim() != len(axes):
        raise ArgumentError(
            f"{name} must be floating-point numbers [{', '.join(axes)}], not {tensor.dtype}{list(tensor.shape)}"
        )
    if not bool(torch.isfinite(tensor).all()):
        raise ArgumentError(f"{name} must be finite; the input contains NaN or an infinity")
    return tensor
