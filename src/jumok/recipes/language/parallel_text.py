"""Pairs of texts as a translator learns them: their tokens on disk, and the held-out ones as they were written."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from jumok.checkpoint import run_folder
from jumok.checkpoint.tensor_files import read_json
from jumok.data.batches.split import Split, assign_split, hash_to_fraction, normalize_text
from jumok.data.datasets import text_corpora
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_pairs import read_pairs
from jumok.data.token_store import token_shards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer
from jumok.recipes.recipe import Options, text_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.learned_tokenizer import learn_tokenizer

SPECIAL = {"pad": "<pad>", "begin": "<s>", "end": "</s>"}
MAX_HELD_OUT = 4_000
LONGEST = 64  # tokens of a source or a target that is learned from, unless somebody says otherwise
DIRECTIONS: dict[str, tuple[text_corpora.Language, text_corpora.Language]] = {
    "en-ko": ("en", "ko"),
    "ko-en": ("ko", "en"),
}

Pair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class ParallelText:
    """``pair`` gives the tokens of a training pair; ``held_out`` are texts, in a fixed random order."""

    tokens: token_shards.TokenShards
    held_out: list[tuple[str, str]]
    direction: str
    tokenizer: Tokenizer
    end: int
    told: dict[str, Any]

    @property
    def count(self) -> int:
        return self.tokens.lists // 2

    def pair(self, number: int) -> Pair:
        return self.tokens.read_list(2 * number).tolist(), self.tokens.read_list(2 * number + 1).tolist()

    def length(self, number: int) -> int:
        """For batches of similar length; the target's counts first, because its logits cost most."""
        return 1000 * len(self.tokens.read_list(2 * number + 1)) + len(self.tokens.read_list(2 * number))

    def encoded(self, source: str, target: str) -> Pair:
        return encoded(self.tokenizer, self.end, source, target)


def encoded(tokenizer: Tokenizer, end: int, source: str, target: str) -> Pair:
    """The source as the model reads it when it is used; the target and its end."""
    return tokenizer.encode(source), [*tokenizer.encode(target, special=False), end]


@dataclass(frozen=True)
class PairOptions(Options):
    """Fields of a recipe that reads pairs of texts."""

    with_data = ("source", "target")
    without_data = ("direction",)
    without_start: ClassVar[tuple[str, ...]] = ("vocabulary",)

    vocabulary: int = integer(8000, "size of the vocabulary, learned for both languages together", 256 + len(SPECIAL))
    longest: int = integer(LONGEST, "longest text in tokens; longer pairs are left out of the training", 2)
    direction: str = choice("en-ko", tuple(DIRECTIONS), "source and target language")
    source: str = text_field("source", "column of your data that has the source texts")
    target: str = text_field("target", "column of your data that has the target texts")


def tokenizer_for(asked: TrainingRequest) -> Tokenizer:
    """One vocabulary for both languages, learned on the training pairs alone."""
    size = asked.options(PairOptions).vocabulary
    known = asked.folder / "tokenizer"
    if known.is_dir():  # a run that is taken up again
        return Tokenizer.load(known)
    found = _pairs(asked, "train", ProblemLog(skip=asked.skip_bad))
    return learn_tokenizer((text for pair in found for text in pair), size, SPECIAL, after=["end"])


def prepared(asked: TrainingRequest, tokenizer: Tokenizer, end: int, room: int | None) -> ParallelText:
    """The pairs on disk, made once. ``room``: the longest text that the model reads."""
    direction, longest = direction_of(asked), asked.options(PairOptions).longest
    if room is not None:
        longest = min(longest, room)
    if (asked.folder / "prepared.json").is_file():
        tokens = token_shards.TokenShards(asked.folder / "tokens")
        tokens.verify()
        lines = (asked.folder / "held-out.jsonl").read_text(encoding="utf-8").splitlines()
        held_out = [(told["source"], told["target"]) for told in map(json.loads, lines)]
        return ParallelText(tokens, held_out, direction, tokenizer, end, read_json(asked.folder, "prepared.json"))
    problems = ProblemLog(skip=asked.skip_bad)
    train = _Pairs(_pairs(asked, "train", problems), tokenizer, end, longest)
    tokens = token_shards.write_shards(
        train.lists(), asked.folder / "tokens", tokenizer.vocabulary, unknown=tokenizer.unknown,
        fingerprint=token_shards.fingerprint_tokenizer(tokenizer), report=asked.report,
    )  # fmt: skip
    held_out = _held_out(asked, tokenizer, end, room)
    if problems.count:
        asked.report(str(problems))
    told: dict[str, Any] = {"pairs": tokens.lists // 2, "too_long": train.left_out}
    told |= {"skipped": problems.count} if asked.skip_bad else {}
    told |= {"unknown_rate": tokens.unknown_rate}
    tokenizer.save(asked.folder / "tokenizer")
    written = (json.dumps({"source": one, "target": two}, ensure_ascii=False) for one, two in held_out)
    run_folder.write_atomically(asked.folder / "held-out.jsonl", "".join(line + "\n" for line in written))
    run_folder.write_atomically(asked.folder / "prepared.json", json.dumps(told) + "\n")
    return ParallelText(tokens, held_out, direction, tokenizer, end, told)


class _Pairs:
    """Sources and targets in turn, as lists of tokens; pairs that are too long are left out and counted."""

    def __init__(self, found: Iterator[tuple[str, str]], tokenizer: Tokenizer, end: int, longest: int) -> None:
        self.found, self.tokenizer, self.end, self.longest = found, tokenizer, end, longest
        self.left_out = 0

    def lists(self) -> Iterator[list[int]]:
        for pair in self.found:
            both = encoded(self.tokenizer, self.end, *pair)
            if max(map(len, both)) > self.longest:
                self.left_out += 1
            else:
                yield from both


def _held_out(asked: TrainingRequest, tokenizer: Tokenizer, end: int, room: int | None) -> list[tuple[str, str]]:
    """In an order that is random and always the same; of very many the first few thousand in it."""
    found = _pairs(asked, "held-out", ProblemLog(skip=asked.skip_bad))
    if room is not None:  # what the model cannot read, it cannot be asked about
        found = (pair for pair in found if max(map(len, encoded(tokenizer, end, *pair))) <= room)
    kept = heapq.nsmallest(MAX_HELD_OUT, found, key=lambda pair: hash_to_fraction(normalize_text(pair[0])))
    if not kept:
        raise ArgumentError(
            "none of the pairs was held out: a tenth of them is, chosen by a hash of the source; give more pairs"
        )
    return kept


def direction_of(asked: TrainingRequest) -> str:
    if asked.data is None:
        return asked.options(PairOptions).direction
    return "-".join(_columns(asked))


def _columns(asked: TrainingRequest) -> tuple[str, str]:
    """The names of the columns in data of the user's own: --set source=en --set target=ko."""
    options = asked.options(PairOptions)
    return options.source, options.target


def _pairs(asked: TrainingRequest, side: Split, problems: ProblemLog) -> Iterator[tuple[str, str]]:
    if asked.data is None:
        source, target = DIRECTIONS[direction_of(asked)]
        # placeholders are numbered: as names they would be thousands of words that nobody translates
        return (
            text_corpora.number_placeholders(*pair)
            for pair in text_corpora.read_en_ko(side, asked.report, source, target)
        )
    found = read_pairs(asked.data, *_columns(asked), problems)
    return (pair for pair in found if assign_split(pair[0]) == side)
