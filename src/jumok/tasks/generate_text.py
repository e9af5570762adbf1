"""Tasks that generate text: continue a text, answer a text (translate), caption an image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from jumok import defaults
from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.generate import Sampling, greedy, stream_text
from jumok.generate.beam import BeamSettings, search_beams
from jumok.generate.decoding import create_single_decoder, find_end_tokens, warn_about_context
from jumok.generate.loop import decode_steps
from jumok.generate.sampling import SAMPLING_SETTINGS, parse_sampling
from jumok.reporting import Report

from .model_inputs import ModelInput

OPTIONS = ("limit", "beams", "stops", "chat")


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
