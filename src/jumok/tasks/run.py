"""Run a model's task on user input: ``jumok.run`` and ``jumok run``. Some tasks generate text (continue, translate,
caption); the others answer in one forward pass (embed, fill, classify, score, predict)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok import defaults
from jumok.checkpoint import Loaded, load
from jumok.errors import ArgumentError
from jumok.generate import Sampling, greedy, stream_text
from jumok.generate.beam import BeamSettings, search_beams
from jumok.generate.decoding import create_single_decoder, find_end_tokens, pad_tokens, warn_about_context
from jumok.generate.loop import decode_steps
from jumok.generate.sampling import SAMPLING_SETTINGS, parse_sampling
from jumok.reporting import Report
from jumok.retrieval.search.embedding import embed_token_ids, normalize_rows

from .model_inputs import INPUT_NAMES, ModelInput, RawInput, read_input, split_batch
from .speech import parse_transcription_settings, transcribe
from .speech.audio_window import read_samples

OPTIONS = ("limit", "beams", "stops", "chat")
FILL_COUNT = 5  # tokens returned for each masked position


def run(model: str | Path | Loaded, inputs: RawInput, **options: Any) -> Any:
    """Run a model on its task: continue, translate, caption, transcribe, fill, classify, score, embed or predict.

    Args:
        model: A name from the catalogue, a folder, a .gguf file, or what ``jumok.load`` returned.
        inputs: One input, or a list of inputs. A text model reads a string; an image model reads the path of an image,
            a Pillow image, or a prepared tensor [channel, row, column]; a captioner of regions reads a tensor
            [region, feature] or the path of a .safetensors, .npy or .npz file that holds one ("FILE:NAME" for one of
            several); a speech model reads the path of an audio file, or a tensor [sample] at 16,000 samples per
            second; a numeric model reads numbers.
        **options: Settings of text generation: limit, beams, stops, chat, temperature, repetition, top_k, top_p,
            min_p, seed (see ``GenerationSettings`` and ``Sampling``). A speech model accepts those of
            ``TranscriptionSettings``: language, task, timestamps, beams and more. A model that generates no text
            accepts none.

    Returns:
        The answer to one input, or a list of answers (for embeddings a tensor [batch, width]):

        - continue, translate, caption, transcribe: the text (str);
        - embed: a vector of length 1 (Tensor);
        - fill: for each masked position the five most probable tokens, as {"token": ..., "share": ...};
        - classify: all classes, most probable first, as {"class": 3, "name": "cat", "share": 0.9};
        - score, predict: numbers (list of float).

    A ``ContextWarning`` says once if a text exceeds the model's context length: a language model then reads only the
    last tokens, and an encoder-decoder stops. It also names words that are not in the model's vocabulary, and says if
    a recording may be in a language that the model does not know, or numbers differ from those that it was trained on.

    Raises:
        ArgumentError: If the inputs do not fit the model, or an option is unknown or invalid.

    >>> import jumok
    >>> jumok.run("tiny", "the cat sat; the cat", limit=4)
    ' sat'
    """
    if isinstance(model, nn.Module):
        raise ArgumentError(
            f"this {type(model).__name__} comes without its tokenizer, image preparation and class names; pass the "
            "folder of the model, or what jumok.load(folder) or outcome.load() returned"
        )
    loaded = model if isinstance(model, Loaded) else load(model)
    batch = split_batch(loaded.model.reads, inputs)
    if batch == []:
        raise ArgumentError(f"no input; this {loaded.family} model reads {INPUT_NAMES[loaded.model.reads]}")

    raw_inputs = [inputs] if batch is None else batch
    if loaded.model.reads == "audio":
        transcription = parse_transcription_settings(options)
        transcripts = [transcribe(loaded, read_samples(audio), transcription) for audio in raw_inputs]
        _warn_about_inputs(transcript.warning for transcript in transcripts)
        return transcripts[0].text if batch is None else [transcript.text for transcript in transcripts]
    settings = parse_settings(loaded, options)
    model_inputs = [read_input(loaded, raw, chat=settings.chat) for raw in raw_inputs]
    _warn_about_inputs(model_input.warning for model_input in model_inputs)
    answers = run_task(loaded, model_inputs, settings)
    return answers[0] if batch is None else answers


def _warn_about_inputs(messages: Iterable[str | None]) -> None:
    for message in dict.fromkeys(messages):
        if message is not None:
            warn_about_context(message)


def run_task(
    loaded: Loaded, inputs: list[ModelInput], settings: GenerationSettings, report: Report = warn_about_context
) -> Any:
    """Return the model's answer to each input, from ``read_input``; for embeddings a tensor [batch, width].

    ``report`` receives one sentence when a text exceeds the model's context length, or numbers differ from those that
    the model was trained on.
    """
    if loaded.model.answers == "text":
        return ["".join(stream_answer(loaded, model_input, settings, report)) for model_input in inputs]
    for model_input in inputs:
        if message := loaded.model.describe_unlearned(model_input.source):
            report(message)
    return ANSWER_FUNCTIONS[loaded.model.task](loaded, inputs)


@torch.inference_mode()
def _embed(loaded: Loaded, inputs: list[ModelInput]) -> Float[Tensor, "batch width"]:
    """Return one vector of length 1 for each input.

    The vector of a text is the mean over its tokens. The vector of an image is the class token's, or the mean over its
    patches if the model has no class token.
    """
    if loaded.model.reads == "text":
        return embed_token_ids(loaded.model, [model_input.token_ids for model_input in inputs])
    hidden = torch.cat([loaded.model(model_input.source).hidden for model_input in inputs])
    return normalize_rows(hidden[:, 0] if loaded.model.prefix_tokens else hidden.mean(1))


@torch.inference_mode()
def _fill(loaded: Loaded, inputs: list[ModelInput]) -> list[list[list[dict[str, Any]]]]:
    """Return the most probable tokens for each masked position of each text."""
    tokenizer = loaded.require_tokenizer()
    tokens, token_mask = pad_tokens([model_input.token_ids for model_input in inputs], loaded.model.device)
    if tokenizer.mask is None:
        raise ArgumentError("this model's tokenizer has no mask token, so it cannot fill masks")
    is_masked = tokens == tokenizer.mask
    if not is_masked.any():
        name = tokenizer.id_to_token(tokenizer.mask)
        raise ArgumentError(f"the text contains no mask token; write {name} at the position to fill")

    logits = loaded.model(tokens, token_mask=token_mask).logits
    answers = []
    for text_logits, text_mask in zip(logits, is_masked, strict=True):
        positions = []
        for position_logits in text_logits[text_mask]:
            best = position_logits.softmax(-1).topk(FILL_COUNT)
            ranked = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            positions.append([{"token": tokenizer.decode([token]).strip(), "share": share} for share, token in ranked])
        answers.append(positions)
    return answers


@torch.inference_mode()
def _classify(loaded: Loaded, inputs: list[ModelInput]) -> list[list[dict[str, Any]]]:
    """Return all classes of each input with their probabilities, most probable first.

    The probabilities sum to 1, unless several classes may hold at once (``independent_classes``). A class has the name
    None if the model has no labels.
    """
    # A single class is an independent probability too: its softmax would always be 1.
    independent = loaded.model.independent_classes or loaded.model.class_count == 1
    answers = []
    for logits in _compute_logits(loaded, inputs):
        probabilities = logits.sigmoid() if independent else logits.softmax(-1)
        shares, classes = probabilities.sort(descending=True, stable=True)
        names = loaded.labels or dict.fromkeys(classes.tolist())
        ranked = zip(classes.tolist(), shares.tolist(), strict=True)
        answers.append([{"class": index, "name": names[index], "share": share} for index, share in ranked])
    return answers


@torch.inference_mode()
def _score(loaded: Loaded, inputs: list[ModelInput]) -> list[list[float]]:
    """Return the outputs of a regression head for each input."""
    return [logits.tolist() for logits in _compute_logits(loaded, inputs)]


@torch.inference_mode()
def _predict_numbers(loaded: Loaded, inputs: list[ModelInput]) -> list[list[float]]:
    """Return as many predicted numbers as each sequence has."""
    model = loaded.model
    return [model.predict(model_input.source, model_input.source.shape[1])[0].tolist() for model_input in inputs]


def _compute_logits(loaded: Loaded, inputs: list[ModelInput]) -> list[Float[Tensor, " classes"]]:
    if loaded.model.reads != "text":
        return [loaded.model(model_input.source).logits[0].float() for model_input in inputs]
    tokens, token_mask = pad_tokens([model_input.token_ids for model_input in inputs], loaded.model.device)
    return list(loaded.model(tokens, token_mask=token_mask).logits.float())


# The tasks that answer in one forward pass; the remaining ones generate text.
ANSWER_FUNCTIONS = {
    "embed": _embed,
    "fill": _fill,
    "classify": _classify,
    "score": _score,
    "predict": _predict_numbers,
}


@dataclass(frozen=True)
class GenerationSettings:
    """The settings of text generation."""

    limit: int = defaults.NEW_TOKENS  # new tokens; a text goes on beyond a context length, but not in encoder-decoders
    beams: int = defaults.BEAMS  # of beam search; 1 = no beam search
    stops: tuple[str, ...] = ()  # strings that end the text; they are not part of it
    chat: bool = False  # apply the tokenizer's chat template: the text is a message to an instruction-tuned model
    sampling: Sampling = greedy  # how each token is chosen; the default takes the most probable one

    def __post_init__(self) -> None:
        if not isinstance(self.limit, int) or self.limit < 1:
            raise ArgumentError(f"limit must be a number of new tokens, at least 1, not {self.limit!r}")
        if "" in self.stops:
            raise ArgumentError("a stop string is empty; it would end every text before its first character")


def parse_settings(loaded: Loaded, options: Mapping[str, Any]) -> GenerationSettings:
    """Return the generation settings that options by name describe.

    Options are the fields of ``GenerationSettings`` (except sampling) and of ``Sampling``; a model that generates no
    text accepts none. An option that only matters for random sampling (top_k, top_p, min_p, seed) sets the temperature
    to 1 by default.

    >>> import jumok
    >>> parse_settings(jumok.load("tiny"), {"limit": 8, "top_k": 5}).sampling.temperature
    1.0
    """
    if options and loaded.model.answers != "text":
        raise ArgumentError(f"{', '.join(options)} cannot be set for a model that does not generate text")
    for name in options:
        if name not in (*OPTIONS, *SAMPLING_SETTINGS):
            choices = ", ".join((*OPTIONS, *SAMPLING_SETTINGS))
            raise ArgumentError(f"unknown setting {name!r}; choose from {choices}")

    sampling = {name: options[name] for name in SAMPLING_SETTINGS if name in options}
    if sampling and options.get("beams", 1) > 1:
        raise ArgumentError(f"beam search does not sample; remove {', '.join(sampling)}, or use beams=1")

    settings = {name: options[name] for name in OPTIONS if name in options}
    return GenerationSettings(**settings, sampling=parse_sampling(sampling))


def stream_answer(
    loaded: Loaded, model_input: ModelInput, settings: GenerationSettings, report: Report = warn_about_context
) -> Iterator[str]:
    """Yield the text that a model generates, piece by piece, in complete characters.

    ``report`` receives one sentence when a text exceeds the model's context length.
    """
    tokens = stream_answer_tokens(loaded, model_input, settings, report)
    return stream_text(tokens, loaded.require_tokenizer(), settings.stops)


def stream_answer_tokens(
    loaded: Loaded, model_input: ModelInput, settings: GenerationSettings, report: Report = warn_about_context
) -> Iterator[int]:
    """Return the new tokens, without end tokens; unless there is beam search, they are computed one by one."""
    model = loaded.model
    ends = find_end_tokens(model, loaded.require_tokenizer())
    limit = settings.limit
    decoder = create_single_decoder(model, model_input.token_ids, model_input.source, limit, report)
    if settings.beams > 1:
        with torch.inference_mode():
            tokens = search_beams(decoder, 1, BeamSettings(settings.beams, limit, 1.0, ends))[0]
        return (token for token in tokens if token not in ends)

    texts = [[] if model.is_encoder_decoder else list(model_input.token_ids)]
    steps = decode_steps(decoder, texts, limit, settings.sampling, ends)
    return (token for (token,) in steps if token is not None and token not in ends)
