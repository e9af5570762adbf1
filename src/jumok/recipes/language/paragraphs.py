"""Texts in paragraphs, as an encoder learns them: each between empty lines, one line long, its tokens on disk."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumok.checkpoint import run_folder
from jumok.checkpoint.tensor_files import read_json
from jumok.data.batches.split import Split, assign_split
from jumok.data.datasets import text_corpora
from jumok.data.readers import documents as texts
from jumok.data.readers.lines import ProblemLog
from jumok.data.token_store import token_shards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import integer
from jumok.recipes.recipe import Options
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.learned_tokenizer import learn_tokenizer

SPECIAL = {"pad": "[PAD]", "classify": "[CLS]", "separator": "[SEP]", "mask": "[MASK]"}
LONGEST = 4_000  # characters; a text without empty lines is cut at the line end behind them
SHORTEST = 4  # tokens; a shorter paragraph tells nothing of what is hidden in it


@dataclass(frozen=True)
class ParagraphOptions(Options):
    """Fields of a recipe that learns a vocabulary on paragraphs."""

    without_start = ("vocabulary",)

    vocabulary: int = integer(8192, "size of the learned vocabulary", 256 + len(SPECIAL))


def tokenizer_for(asked: TrainingRequest) -> Tokenizer:
    """A vocabulary learned on the training side alone."""
    size = asked.options(ParagraphOptions).vocabulary
    known = asked.folder / "tokenizer"
    if known.is_dir():  # a run that is taken up again
        return Tokenizer.load(known)
    found = _paragraphs(asked, "train", ProblemLog(skip=asked.skip_bad))
    return learn_tokenizer(found, size, SPECIAL, ["classify"], ["separator"], one_space=True)


def prepared(
    asked: TrainingRequest, tokenizer: Tokenizer, room: int
) -> tuple[token_shards.TokenShards, token_shards.TokenShards, dict[str, Any]]:
    """The examples of both sides, each of at most ``room`` tokens, made once; and what there is to tell of them."""
    place = asked.folder / "tokens"
    if (asked.folder / "prepared.json").is_file():
        both = token_shards.TokenShards(place / "train"), token_shards.TokenShards(place / "held-out")
        for one in both:
            one.verify()
        return *both, read_json(asked.folder, "prepared.json")
    problems = ProblemLog(skip=asked.skip_bad)
    train = _written(asked, tokenizer, "train", place / "train", room, problems)
    held_out = _written(asked, tokenizer, "held-out", place / "held-out", room, ProblemLog(skip=asked.skip_bad))
    if problems.count:
        asked.report(str(problems))
    (asked.folder / "tokenizer").mkdir(exist_ok=True)
    tokenizer.save(asked.folder / "tokenizer")
    told = {"skipped": problems.count} if asked.skip_bad else {}
    run_folder.write_atomically(asked.folder / "prepared.json", json.dumps(told) + "\n")
    return train, held_out, told


def _written(
    asked: TrainingRequest, tokenizer: Tokenizer, side: Split, place: Path, room: int, problems: ProblemLog
) -> token_shards.TokenShards:
    found = _cut(_paragraphs(asked, side, problems), tokenizer, room)
    first = next(found, None)
    if first is None:
        raise ArgumentError(
            f"there is no paragraph of {SHORTEST} tokens or more for the {side} side: a tenth of the paragraphs is "
            "held out, chosen by a hash of each; give more text"
        )
    return token_shards.write_shards(
        itertools.chain([first], found), place, tokenizer.vocabulary, unknown=tokenizer.unknown,
        fingerprint=token_shards.fingerprint_tokenizer(tokenizer), report=asked.report,
    )  # fmt: skip


def _cut(found: Iterable[str], tokenizer: Tokenizer, room: int) -> Iterator[list[int]]:
    for paragraph in found:
        ids = tokenizer.encode(paragraph, special=False)
        for start in range(0, len(ids), room):
            if len(ids) - start >= SHORTEST:
                yield ids[start : start + room]


def _paragraphs(asked: TrainingRequest, side: Split, problems: ProblemLog) -> Iterator[str]:
    if asked.data is None:
        yield from paragraphs(texts.TextPiece(one, True) for one in text_corpora.read_gutenberg(side, asked.report))
        return
    for one in paragraphs(texts.read_pieces(asked.data, problems)):
        if assign_split(one) == side:
            yield one


def paragraphs(found: Iterable[texts.TextPiece]) -> Iterator[str]:
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
            ends = not line.strip() or size > LONGEST or (piece.ends_document and place == len(lines) - 1)
            if ends and held:
                yield " ".join(held)
            if ends:
                held, size = [], 0
    if held:
        yield " ".join(held)
