"""The dispatcher: run a model's task on user input. ``jumok.run`` and ``jumok run`` both use it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from jumok.checkpoint import Loaded, load
from jumok.errors import ArgumentError, Report
from jumok.generate.decoding import warn_about_context

from .generate_text import GenerationSettings, parse_settings, stream_answer
from .model_inputs import INPUT_NAMES, ModelInput, RawInput, read_input, split_batch
from .predict import classify, embed, fill, predict_numbers, score
from .speech import parse_transcription_settings, transcribe
from .speech.audio_window import read_samples

# The tasks that answer in one forward pass; the remaining ones generate text.
TASKS = {"embed": embed, "fill": fill, "classify": classify, "score": score, "predict": predict_numbers}


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

    texts = [inputs] if batch is None else batch
    if loaded.model.reads == "audio":
        transcription = parse_transcription_settings(options)
        transcripts = [transcribe(loaded, read_samples(audio), transcription) for audio in texts]
        _warn_about_inputs(transcript.warning for transcript in transcripts)
        return transcripts[0].text if batch is None else [transcript.text for transcript in transcripts]
    settings = parse_settings(loaded, options)
    model_inputs = [read_input(loaded, text, chat=settings.chat) for text in texts]
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
    """Return the model's answer to each input.

    Args:
        inputs: Inputs that ``read_input`` returned.
        settings: Settings of text generation; ignored by the tasks that generate no text.
        report: Receives one sentence when a text exceeds the model's context length, or numbers differ from those that
            the model was trained on; by default a ``ContextWarning``.

    Returns:
        A list with one answer for each input; for embeddings a tensor [batch, width].
    """
    if loaded.model.answers == "text":
        return ["".join(stream_answer(loaded, model_input, settings, report)) for model_input in inputs]
    for model_input in inputs:
        if message := loaded.model.describe_unlearned(model_input.source):
            report(message)
    return TASKS[loaded.model.task](loaded, inputs)
