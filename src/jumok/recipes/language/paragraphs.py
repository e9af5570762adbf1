"""Texts in paragraphs, as an encoder learns them: each between empty lines, one line long, its tokens on disk."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jumok.checkpoint import run_folder
from jumok.checkpoint.tensor_files import read_json
from jumok.data.batches import token_shards
from jumok.data.batches.split import Side, side_of
from jumok.data.datasets import text_corpora
from jumok.data.readers import documents as texts
from jumok.data.readers.lines import Problems
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.recipes.request import Asked
from jumok.recipes.shared.learned_tokenizer import learned

SPECIAL = {"pad": "[PAD]", "classify": "[CLS]", "separator": "[SEP]", "mask": "[MASK]"}
LONGEST = 4_000  # characters; a text without empty lines is cut at the line end behind them
SHORTEST = 4  # tokens; a shorter paragraph tells nothing of what is hidden in it


def tokenizer_for(asked: Asked) -> Tokenizer:
    """A vocabulary learned on the training side alone."""
    size = asked.number("vocabulary", 8192, 256 + len(SPECIAL))
    known = asked.folder / "tokenizer"
    if known.is_dir():  # a run that is taken up again
        return Tokenizer.load(known)
    found = _paragraphs(asked, "train", Problems(skip=asked.skip_bad))
    return learned(found, size, SPECIAL, ["classify"], ["separator"], one_space=True)


def prepared(
    asked: Asked, tokenizer: Tokenizer, room: int
) -> tuple[token_shards.Shards, token_shards.Shards, dict[str, Any]]:
    """The examples of both sides, each of at most ``room`` tokens, made once; and what there is to tell of them."""
    place = asked.folder / "tokens"
    if (asked.folder / "prepared.json").is_file():
        both = token_shards.Shards(place / "train"), token_shards.Shards(place / "held-out")
        for one in both:
            one.verify()
        return *both, read_json(asked.folder, "prepared.json")
    problems = Problems(skip=asked.skip_bad)
    train = _written(asked, tokenizer, "train", place / "train", room, problems)
    held_out = _written(asked, tokenizer, "held-out", place / "held-out", room, Problems(skip=asked.skip_bad))
    if problems.count:
        asked.report(str(problems))
    (asked.folder / "tokenizer").mkdir(exist_ok=True)
    tokenizer.save(asked.folder / "tokenizer")
    told = {"skipped": problems.count} if asked.skip_bad else {}
    run_folder.write_whole(asked.folder / "prepared.json", json.dumps(told) + "\n")
    return train, held_out, told


def _written(
    asked: Asked, tokenizer: Tokenizer, side: Side, place: Path, room: int, problems: Problems
) -> token_shards.Shards:
    found = _cut(_paragraphs(asked, side, problems), tokenizer, room)
    first = next(found, None)
    if first is None:
        raise ArgumentError(
            f"there is no paragraph of {SHORTEST} tokens or more for the {side} side: a tenth of the paragraphs is "
            "held out, chosen by a hash of each; give more text"
        )
    return token_shards.write(
        itertools.chain([first], found), place, tokenizer.vocabulary, unknown=tokenizer.unknown,
        fingerprint=token_shards.fingerprint(tokenizer), report=asked.report,
    )  # fmt: skip


def _cut(found: Iterable[str], tokenizer: Tokenizer, room: int) -> Iterator[list[int]]:
    for paragraph in found:
        ids = tokenizer.encode(paragraph, special=False)
        for start in range(0, len(ids), room):
            if len(ids) - start >= SHORTEST:
                yield ids[start : start + room]


def _paragraphs(asked: Asked, side: Side, problems: Problems) -> Iterator[str]:
    if asked.data is None:
        yield from paragraphs(texts.Piece(one, True) for one in text_corpora.gutenberg(side, asked.report))
        return
    for one in paragraphs(texts.pieces(asked.data, problems)):
        if side_of(one) == side:
            yield one


def paragraphs(found: Iterable[texts.Piece]) -> Iterator[str]:
    """What stands between empty lines, as one line; a paragraph may go on from one piece of a document to the next.

    >>> list(paragraphs([texts.Piece("One\\n  two\\n\\nthree\\n", False), texts.Piece("four\\n", True)]))
    ['One two', 'three four']
    """
    held: list[str] = []
    size = 0
    for piece in found:
        lines = piece.text.removesuffix("\n").split("\n")
        for place, line in enumerate(lines):
            held += line.split()
            size += len(line)
            ends = not line.strip() or size > LONGEST or (piece.last and place == len(lines) - 1)
            if ends and held:
                yield " ".join(held)
            if ends:
                held, size = [], 0
    if held:
        yield " ".join(held)
