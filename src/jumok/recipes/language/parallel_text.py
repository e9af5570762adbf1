"""Read pairs of texts for translation; store the training pairs as tokens and the held-out pairs as text."""

from __future__ import annotations

import heapq
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jumok.checkpoint.tensor_files import read_json
from jumok.data import token_shards
from jumok.data.batches.split import Split, assign_split, hash_to_fraction, normalize_text
from jumok.data.datasets import text_corpora
from jumok.data.datasets.korean_english_sentences import (
    HELD_OUT_COUNT,
    TRAINING_COUNT,
    list_pieces,
    make_sentence_pairs,
)
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_examples import read_pairs
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, DataError
from jumok.fields import choice, integer
from jumok.files import read_limited, write_atomically
from jumok.recipes.recipe import Options, column_field, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.data_source import require_files, select_dataset
from jumok.recipes.shared.run_tokenizer import create_piece_tokenizer, learn_tokenizer, load_or_create_tokenizer
from jumok.training import DataSummary

from .pair_direction import TextPair, arrange_pairs, check_columns, find_korean_column

SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<s>", "end": "</s>"}
MAX_HELD_OUT = 4_000
MAX_HELD_OUT_BYTES = 2**30  # of their file
MAX_TOKENS = 64  # of a source or a target in a training pair; default of the field "longest"
FACTS_FILE = "prepared.json"
HELD_OUT_FILE = "held-out.jsonl"
DIRECTIONS: dict[str, list[tuple[text_corpora.Language, text_corpora.Language]]] = {
    "en-ko": [("en", "ko")],
    "ko-en": [("ko", "en")],
    "both": [("ko", "en"), ("en", "ko")],  # one model; the language of the source selects the direction
}
SENTENCES = "sentences"  # the name of the generated data

TokenPair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class ParallelText:
    """Pairs of a source and its translation.

    Attributes:
        tokens: The training pairs; lists 2n and 2n + 1 are the source and the target of pair n.
        held_out: The held-out pairs as text, in a fixed random order.
        direction: The two languages or columns, such as "en-ko".
        facts: Fields for the report: the number of pairs, of skipped lines and of pairs that were too long.
    """

    tokens: token_shards.TokenShards
    held_out: list[TextPair]
    direction: str
    tokenizer: Tokenizer
    end: int
    facts: dict[str, int | float]

    @property
    def count(self) -> int:
        """The number of training pairs."""
        return self.tokens.lists // 2

    def read_pair(self, number: int) -> TokenPair:
        """Return the tokens of a training pair."""
        return self.tokens.read_list(2 * number).tolist(), self.tokens.read_list(2 * number + 1).tolist()

    def measure_length(self, number: int) -> int:
        """Return the key that groups pairs: target length first, because computing its logits costs the most."""
        return 1000 * len(self.tokens.read_list(2 * number + 1)) + len(self.tokens.read_list(2 * number))

    def summarize(self) -> DataSummary:
        """Return the counts and the first training pairs, as the tokenizer reads them."""
        counts = {
            "training pairs": self.count,
            "held-out pairs": len(self.held_out),
            "pairs that are too long": int(self.facts["too_long"]),
        }
        first = [self.read_pair(number) for number in range(min(3, self.count))]
        decode = self.tokenizer.decode
        examples = [
            {"source": decode(source, special=False), "target": decode(target, special=False)}
            for source, target in first
        ]
        return DataSummary(counts, examples)

    def encode(self, source: str, target: str) -> TokenPair:
        """Return the tokens of a pair of texts; see ``encode_pair``."""
        return encode_pair(self.tokenizer, self.end, source, target)


def encode_pair(tokenizer: Tokenizer, end: int, source: str, target: str) -> TokenPair:
    """Return the tokens of a source, with its special tokens, and of a target followed by the end token."""
    return tokenizer.encode(source), [*tokenizer.encode(target, special=False), end]


@dataclass(frozen=True)
class PairOptions(Options):
    """Fields of a recipe that reads pairs of texts."""

    with_data = ("source", "target", "header")
    without_start: ClassVar[tuple[str, ...]] = ("vocabulary",)

    vocabulary: int = integer(
        8000, "size of the vocabulary, learned for both languages together", 256 + len(SPECIAL_TOKENS)
    )
    longest: int = integer(MAX_TOKENS, "longest text in tokens; longer pairs are left out of the training", 2)
    direction: str = choice(
        "en-ko",
        tuple(DIRECTIONS),
        "source and target language; both = one model for both directions. Without it, your own files are translated "
        "from the source to the target column",
    )
    source: str | None = column_field("column of your table that has the source texts")
    target: str | None = column_field("column of your table that has the target texts")
    header: str = header_field()


def load_or_learn_tokenizer(request: TrainingRequest) -> Tokenizer:
    """Load the run's tokenizer, or learn one for both languages from the training pairs."""
    vocabulary = request.take_options(PairOptions).vocabulary
    is_generated = _select_pair_data(request) == SENTENCES
    if is_generated and "vocabulary" in request.changes:
        raise ArgumentError(f"vocabulary does not apply to {SENTENCES}, whose tokens are words, stems and particles")

    def learn() -> Tokenizer:
        if is_generated:
            pieces = list_pieces(make_sentence_pairs(TRAINING_COUNT))
            return create_piece_tokenizer(pieces, {**SPECIAL_TOKENS, "unknown": "<unk>"}, after=["end"])
        pairs = _read_pairs(request, "train", request.create_problem_log())
        return learn_tokenizer((text for pair in pairs for text in pair), vocabulary, SPECIAL_TOKENS, after=["end"])

    return load_or_create_tokenizer(request, learn)


def prepare_pairs(request: TrainingRequest, tokenizer: Tokenizer, end: int, context_length: int | None) -> ParallelText:
    """Encode the pairs and store them in the run's folder; a resumed run reads them from there."""
    direction = _get_direction(request)
    max_tokens = request.take_options(PairOptions).longest
    if context_length is not None:
        max_tokens = min(max_tokens, context_length)
    if (request.folder / FACTS_FILE).is_file():
        tokens = token_shards.TokenShards(request.folder / "tokens")
        tokens.verify()
        facts = read_json(request.folder, FACTS_FILE)
        return ParallelText(tokens, _load_held_out(request), direction, tokenizer, end, facts)

    shutil.rmtree(
        request.folder / "tokens", ignore_errors=True
    )  # of a process that was killed before it wrote the facts
    problems = request.create_problem_log()
    encoder = _PairEncoder(_read_pairs(request, "train", problems), tokenizer, end, max_tokens)
    tokens = token_shards.write_shards(
        encoder.iterate_token_lists(), request.folder / "tokens", tokenizer.vocabulary, unknown=tokenizer.unknown,
        fingerprint=token_shards.fingerprint_tokenizer(tokenizer), report=request.report,
    )  # fmt: skip
    held_out = _select_held_out(request, tokenizer, end, context_length)
    if problems.count:
        request.report(str(problems))

    facts = {"pairs": tokens.lists // 2, "too_long": encoder.too_long}
    if request.skip_bad:
        facts["skipped"] = problems.count
    facts["unknown_rate"] = tokens.unknown_rate
    _save_held_out(request, held_out)
    write_atomically(request.folder / FACTS_FILE, json.dumps(facts) + "\n")
    return ParallelText(tokens, held_out, direction, tokenizer, end, facts)


class _PairEncoder:
    """Encodes pairs as alternating lists of source and target tokens; leaves out and counts pairs that are too long."""

    def __init__(self, pairs: Iterator[TextPair], tokenizer: Tokenizer, end: int, max_tokens: int) -> None:
        self.pairs = pairs
        self.tokenizer = tokenizer
        self.end = end
        self.max_tokens = max_tokens
        self.too_long = 0

    def iterate_token_lists(self) -> Iterator[list[int]]:
        for source, target in self.pairs:
            tokens = encode_pair(self.tokenizer, self.end, source, target)
            if max(map(len, tokens)) > self.max_tokens:
                self.too_long += 1
            else:
                yield from tokens


def _select_held_out(
    request: TrainingRequest, tokenizer: Tokenizer, end: int, context_length: int | None
) -> list[TextPair]:
    """Return at most 4,000 held-out pairs, shuffled with a fixed seed."""
    pairs = _read_pairs(request, "held-out", request.create_problem_log())
    if context_length is not None:  # the model cannot read longer texts
        pairs = (pair for pair in pairs if max(map(len, encode_pair(tokenizer, end, *pair))) <= context_length)
    held_out = heapq.nsmallest(MAX_HELD_OUT, pairs, key=lambda pair: hash_to_fraction(normalize_text(pair[0])))
    if not held_out:
        raise ArgumentError(
            "no pair was held out (a tenth is held out, selected by a hash of the source); give more pairs"
        )
    return held_out


def _save_held_out(request: TrainingRequest, pairs: list[TextPair]) -> None:
    lines = (json.dumps({"source": source, "target": target}, ensure_ascii=False) for source, target in pairs)
    write_atomically(request.folder / HELD_OUT_FILE, "".join(line + "\n" for line in lines))


def _load_held_out(request: TrainingRequest) -> list[TextPair]:
    path = request.folder / HELD_OUT_FILE
    try:
        rows = [json.loads(line) for line in read_limited(path, MAX_HELD_OUT_BYTES).splitlines()]
        return [(str(row["source"]), str(row["target"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is damaged ({str(error)[:100]}); remove {request.folder / FACTS_FILE}, so that the data is "
            "prepared again"
        ) from None


def _get_direction(request: TrainingRequest) -> str:
    options = request.take_options(PairOptions)
    if request.has_own_files and "direction" not in request.changes:
        return f"{options.source or 'source'}-{options.target or 'target'}"
    return options.direction


def _select_pair_data(request: TrainingRequest) -> str | None:
    return select_dataset(request, "en-ko", ["en-ko", SENTENCES])


def _read_pairs(request: TrainingRequest, side: Split, problems: ProblemLog) -> Iterator[TextPair]:
    options = request.take_options(PairOptions)
    dataset = _select_pair_data(request)
    if dataset == SENTENCES:
        return _make_sentences(side, options.direction)
    if dataset is not None:
        # number the placeholders: their names would add thousands of words that are not translated
        return (
            text_corpora.number_placeholders(*pair)
            for source, target in DIRECTIONS[options.direction]
            for pair in text_corpora.read_en_ko(side, request.download_report, source, target)
        )
    file_format = request.create_file_format(options.header)
    columns = (options.source, options.target)
    pairs = read_pairs(require_files(request), *columns, problems, file_format)
    if "direction" not in request.changes:
        return (pair for pair in pairs if assign_split(pair[0]) == side)
    sample = read_pairs(require_files(request), *columns, request.create_problem_log(), file_format)
    korean = find_korean_column(sample, columns)
    check_columns(options.direction, columns, korean)
    return arrange_pairs(pairs, options.direction, korean, side)


def _make_sentences(side: Split, direction: str) -> Iterator[TextPair]:
    pairs = make_sentence_pairs(TRAINING_COUNT if side == "train" else HELD_OUT_COUNT, side)
    for source, _ in DIRECTIONS[direction]:
        for pair in pairs:
            yield (pair.variant, pair.english) if source == "ko" else (pair.english_variant, pair.korean)
