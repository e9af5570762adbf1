"""Models that write: a text that goes on, an answer to a text, a caption of a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.generate import Sampling, stream_text
from jumok.generate.beam import search_beams
from jumok.generate.decoding import CrossAttentionDecoder, IncrementalDecoder, create_decoder
from jumok.generate.token_stream import decode_steps

from .model_inputs import image_of, reads, regions_of, text_of, tokenizer_of


def pieces(
    loaded: Loaded,
    given: object,
    *,
    limit: int = 128,
    beams: int = 1,
    stops: tuple[str, ...] = (),
    chat: bool = False,
    **sampling: Any,
) -> Iterator[str]:
    """New text as it comes, in whole characters, for a text or a picture."""
    tokenizer = tokenizer_of(loaded)
    if not isinstance(limit, int) or limit < 1:
        raise ArgumentError(f"limit is how many tokens may come, at least 1, not {limit!r}")
    if "" in stops:
        raise ArgumentError("a stop string is empty, and would end every text before it begins")
    if any(name in sampling for name in ("top_k", "top_p", "min_p", "seed")):
        sampling.setdefault("temperature", 1.0)  # whoever says how to draw wants something drawn
    known = [one.name for one in fields(Sampling)]
    for name in sampling:
        if name not in known:
            raise ArgumentError(
                f"there is no setting {name!r}; known are limit, beams, stops, chat, {', '.join(known)}"
            )
    how = Sampling(**{"temperature": 0.0, **sampling})
    if beams > 1 and sampling:
        raise ArgumentError("beam search takes the likeliest text; temperature and the like cannot be set with it")
    ends = find_end_tokens(loaded)
    with torch.inference_mode():
        steps, seen, room = _steps(loaded, given, limit, chat)
        if beams > 1:
            tokens = iter(search_beams(steps, 1, beams, room, 1.0, ends)[0])
        else:
            tokens = (row[0] for row in decode_steps(steps, [seen], room, how, ends) if row[0] is not None)
    return stream_text((token for token in tokens if token not in ends), tokenizer, stops)


def _steps(loaded: Loaded, given: object, limit: int, chat: bool) -> tuple[IncrementalDecoder, list[int], int]:
    """The model with what it was given, the tokens there are already, and how many may come."""
    kind = reads(loaded)
    if kind == "text":
        prompt = _prompt(loaded, text_of(loaded, given), chat)
        room = _room(loaded, len(prompt), limit)
        answers = hasattr(loaded.model, "encode")
        return create_decoder(loaded.model, [prompt], room), [] if answers else prompt, room
    if chat:
        raise ArgumentError(f"chat is for a model that reads text; this {loaded.family} reads {kind}")
    source = image_of(loaded, given) if kind == "pictures" else regions_of(loaded, given)
    room = _room(loaded, 0, limit)
    config: Any = loaded.config
    return CrossAttentionDecoder(loaded.model, source, config.start, room), [], room


def _prompt(loaded: Loaded, text: str, chat: bool) -> list[int]:
    tokenizer = tokenizer_of(loaded)
    if chat:
        text = tokenizer.apply_chat_template([{"role": "user", "content": text}])
    prompt: list[int] = tokenizer.encode(text)
    if not prompt:
        raise ArgumentError("the text is empty; give the model something to go on with")
    return prompt


def find_end_tokens(loaded: Loaded) -> frozenset[int]:
    """The tokens that end a text: the tokenizer's, and where answers are written the model's own."""
    own = getattr(loaded.config, "end", None) if hasattr(loaded.model, "encode") else None
    return frozenset(tokenizer_of(loaded).ends) | ({own} if own is not None else set())


def _room(loaded: Loaded, prompt: int, limit: int) -> int:
    """As many new tokens as were asked for, or as fit: a default must not be an error."""
    length = getattr(loaded.config, "length", None)
    if length is None:
        return limit
    taken = 0 if hasattr(loaded.model, "encode") else prompt  # an answer's start token stands where its last would
    return limit if taken >= length else min(limit, int(length) - taken)
