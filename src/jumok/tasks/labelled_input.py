"""What a model sees of what it is given, for whoever looks inside: its inputs, and a label for each place.

A model that answers (translation, caption, numbers) answers first, by itself; its decoder then reads that answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from jumok.checkpoint import Loaded
from jumok.data.tokenizers.token_labels import group_words, label_tokens
from jumok.errors import ArgumentError
from jumok.generate import generate
from jumok.generate.decoding import CrossAttentionDecoder
from jumok.generate.sampling import greedy
from jumok.generate.token_stream import decode_steps

from .model_inputs import image_of, numbers_of, reads, regions_of, text_of, tokenizer_of, unknown_in
from .write_text import find_end_tokens

START = "<start>"
LIMIT = 32  # tokens of an answer; a map of more is hard to read
Words = list[tuple[str, range]]


@dataclass(frozen=True)
class LabelledInput:
    """``inputs`` are the model's own. ``source`` and ``target``: labels of what the encoder and the decoder read; a
    model of one stack has a source alone. ``answer``: what the model made of it, where it was asked first."""

    inputs: tuple[Any, ...]
    source: list[str]
    target: list[str] = field(default_factory=list)
    source_words: Words | None = None
    target_words: Words | None = None
    answer: str | None = None
    tokens: list[int] = field(default_factory=list)  # of a text: its ids
    unknown: int = 0  # so many of them the tokenizer does not know
    unfinished: bool = False  # a limit cut the answer

    def axes(self, site: str) -> tuple[list[str], list[str]]:
        """The labels of an attention's queries and keys."""
        rows, columns = self._sides(site)
        return (self.target if rows else self.source), (self.target if columns else self.source)

    def words(self, site: str) -> tuple[Words | None, Words | None]:
        rows, columns = self._sides(site)
        sides = self.source_words, self.target_words
        return sides[rows], sides[columns]

    def _sides(self, site: str) -> tuple[int, int]:
        """0: source, 1: target; of queries and of keys."""
        if not self.target:
            return 0, 0
        if "cross" in site:
            return 1, 0
        return (1, 1) if site.startswith("decoder") else (0, 0)


def prepare_input(loaded: Loaded, given: Any, limit: int = LIMIT) -> LabelledInput:
    """``limit``: how many tokens an answer may have."""
    kind = reads(loaded)
    answers = hasattr(loaded.model, "encode")
    if kind == "numbers":
        return _numbers(loaded, given)
    if kind == "text":
        ids = tokenizer_of(loaded).encode(text_of(loaded, given))
        if not ids:
            raise ArgumentError("the text is empty; give the model something to read")
        source, tokens = torch.tensor([ids], device=loaded.model.device), tokenizer_of(loaded)
        unknown = unknown_in(loaded, ids)
        if not answers:
            _refuse_long(loaded, len(ids))
            return LabelledInput(
                (source,), label_tokens(tokens, ids), source_words=group_words(tokens, ids), tokens=ids, unknown=unknown
            )
        found = generate(loaded.model, [ids], limit=limit, ends=find_end_tokens(loaded))[0]
        told = _answered(loaded, source, label_tokens(tokens, ids), group_words(tokens, ids), found, ids)
        return replace(
            told, unknown=unknown, unfinished=len(found) == limit and found[-1] not in find_end_tokens(loaded)
        )
    picture = image_of(loaded, given) if kind == "pictures" else regions_of(loaded, given)
    if not answers:
        return LabelledInput((picture,), _places(loaded))
    config: Any = loaded.config
    rows: list[list[int]] = [[]]
    room = min(limit, config.length)
    for _ in decode_steps(
        CrossAttentionDecoder(loaded.model, picture, config.start, room), rows, room, greedy, find_end_tokens(loaded)
    ):
        pass
    names = _places(loaded) if kind == "pictures" else [f"region {place}" for place in range(picture.shape[1])]
    told = _answered(loaded, picture, names, None, rows[0], [])
    return replace(told, unfinished=len(rows[0]) == limit and rows[0][-1] not in find_end_tokens(loaded))


def _answered(
    loaded: Loaded, source: Any, names: list[str], source_words: Words | None, found: list[int], tokens: list[int]
) -> LabelledInput:
    """The answer goes into the decoder behind the start token; what ends it does not."""
    config, tokenizer = loaded.config, tokenizer_of(loaded)
    ends = find_end_tokens(loaded)
    longest = getattr(config, "length", None)
    answer = [one for one in found if one not in ends][: None if longest is None else longest - 1]
    text = tokenizer.decode(answer).replace("\N{REPLACEMENT CHARACTER}", "")  # a limit may cut a character in two
    target = torch.tensor([[config.start, *answer]], device=loaded.model.device)  # type: ignore[attr-defined]
    own = [(START, range(1)), *((text, range(r.start + 1, r.stop + 1)) for text, r in group_words(tokenizer, answer))]
    return LabelledInput(
        (source, target),
        names,
        [START, *label_tokens(tokenizer, answer)],
        source_words,
        own,
        text,
        tokens,
    )


def _numbers(loaded: Loaded, given: Any) -> LabelledInput:
    source = numbers_of(loaded, given)
    model: Any = loaded.model
    with torch.inference_mode():
        found = model.predict(source, source.shape[1])
    shown = [f"{number:g}" for number in found[0].tolist()]
    names = [f"{number:g}" for number in source[0].tolist()]
    # the decoder reads what it gave so far; the last number is read by nobody
    return LabelledInput((source, found[:, :-1].clone()), names, [START, *shown[:-1]], answer=" ".join(shown))


def _places(loaded: Loaded) -> list[str]:
    """The patches of a picture by row and column, from 1; before them the class token, where there is one."""
    config: Any = loaded.config
    rows, columns = (config.image[axis] // config.patch[axis] for axis in (0, 1))
    patches = [f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns)]
    special = ["[class]", "[distilled]"] if getattr(config, "distilled", False) else ["[class]"]
    return [*(special if hasattr(loaded.model, "class_token") else []), *patches]


def _refuse_long(loaded: Loaded, count: int) -> None:
    length = getattr(loaded.config, "length", None)
    if length is not None and count > length:
        raise ArgumentError(f"the text has {count:,} tokens, and this {loaded.family} reads at most {length:,}")
