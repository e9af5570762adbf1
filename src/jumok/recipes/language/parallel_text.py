"""Read pairs of texts for translation; store the training pairs as tokens and the held-out pairs as text."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

from jumok.data.batches.split import Split, assign_split, hash_to_fraction, normalize_text
from jumok.data.datasets import text_corpora
from jumok.data.datasets.korean.sentences import (
    HELD_OUT_COUNT,
    PHRASE_REPEATS,
    TRAINING_COUNT,
    SentencePair,
    list_phrase_pairs,
    list_pieces,
    make_sentence_pairs,
)
from jumok.data.readers import table_header
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_examples import read_pairs
from jumok.data.token_shards import TokenShards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, DataError
from jumok.fields import choice, integer
from jumok.files import read_limited, write_atomically
from jumok.recipes.recipe import Options, column_field, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import create_piece_tokenizer, load_or_create_tokenizer
from jumok.recipes.shared.stored_data import FACTS_FILE, load_facts, load_tokens, save_facts, write_tokens
from jumok.recipes.shared.text_scores import contains_hangul
from jumok.training import DataSummary

SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<s>", "end": "</s>"}
MAX_HELD_OUT = 4_000
MAX_HELD_OUT_BYTES = 2**30  # of their file
HELD_OUT_FILE = "held-out.jsonl"
DIRECTIONS: dict[str, list[tuple[text_corpora.Language, text_corpora.Language]]] = {
    "en-ko": [("en", "ko")],
    "ko-en": [("ko", "en")],
    "both": [("ko", "en"), ("en", "ko")],  # one model; the language of the source selects the direction
}
SENTENCES = "sentences"  # the name of the generated data
SAMPLED_PAIRS = 1000  # pairs from which the languages of the columns are detected

TextPair = tuple[str, str]
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

    tokens: TokenShards
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
class TranslateOptions(Options):
    """Fields of the translate recipe."""

    with_data = ("source", "target", "header")
    without_start = ("vocabulary", "model")

    vocabulary: int = integer(
        8000, "size of the vocabulary, learned for both languages together", 256 + len(SPECIAL_TOKENS)
    )
    longest: int = integer(64, "longest text in tokens; longer pairs are left out of the training", 2)
    direction: str = choice(
        "en-ko",
        tuple(DIRECTIONS),
        "source and target language; both = one model for both directions. Without it, your own files are translated "
        "from the source to the target column",
    )
    source: str | None = column_field("column of your table that has the source texts")
    target: str | None = column_field("column of your table that has the target texts")
    header: str = header_field()
    model: str = choice("transformer", ("transformer", "lstm"), "architecture")
    smoothing: int = integer(10, "label smoothing in percent (Szegedy et al. 2016)", 0, 90)


def load_or_learn_tokenizer(request: TrainingRequest, options: TranslateOptions) -> Tokenizer:
    """Load the run's tokenizer, or learn one for both languages from the training pairs."""
    is_generated = _select_pair_data(request) == SENTENCES
    if is_generated and "vocabulary" in request.changes:
        raise ArgumentError(f"vocabulary does not apply to {SENTENCES}, whose tokens are words, stems and particles")

    def learn() -> Tokenizer:
        if is_generated:
            pieces = list_pieces(_make_pairs("train"))
            return create_piece_tokenizer(pieces, {**SPECIAL_TOKENS, "unknown": "<unk>"}, after=["end"])
        texts = (text for pair in read_side(request, options, "train", request.create_problem_log()) for text in pair)
        return Tokenizer.train(texts, options.vocabulary, SPECIAL_TOKENS, after=["end"])

    return load_or_create_tokenizer(request, learn)


def prepare_pairs(
    request: TrainingRequest, options: TranslateOptions, tokenizer: Tokenizer, end: int, context_length: int | None
) -> ParallelText:
    """Encode the pairs and store them in the run's folder; a resumed run reads them from there."""
    direction = options.direction
    if request.has_own_files and "direction" not in request.changes:
        direction = f"{options.source or 'source'}-{options.target or 'target'}"
    facts = load_facts(request)
    if facts is not None:
        held_out = _load_held_out(request)
        return ParallelText(load_tokens(request), held_out, direction, tokenizer, end, facts)

    problems = request.create_problem_log()
    max_tokens = min(options.longest, context_length or options.longest)
    too_long = 0

    def encode_pairs() -> Iterator[list[int]]:
        """Yield the tokens of sources and targets in turn; pairs that are too long are left out and counted."""
        nonlocal too_long
        for source, target in read_side(request, options, "train", problems):
            tokens = encode_pair(tokenizer, end, source, target)
            if max(map(len, tokens)) > max_tokens:
                too_long += 1
            else:
                yield from tokens

    tokens = write_tokens(request, tokenizer, encode_pairs())
    held_out = _select_held_out(request, options, tokenizer, end, context_length)
    request.show_problems(problems)

    facts = {"pairs": tokens.lists // 2, "too_long": too_long}
    if request.skip_bad:
        facts["skipped"] = problems.count
    facts["unknown_rate"] = tokens.unknown_rate
    lines = (json.dumps({"source": source, "target": target}, ensure_ascii=False) for source, target in held_out)
    write_atomically(request.folder / HELD_OUT_FILE, "".join(line + "\n" for line in lines))
    save_facts(request, facts)
    return ParallelText(tokens, held_out, direction, tokenizer, end, facts)


def _select_held_out(
    request: TrainingRequest, options: TranslateOptions, tokenizer: Tokenizer, end: int, context_length: int | None
) -> list[TextPair]:
    """Return at most 4,000 held-out pairs, shuffled with a fixed seed."""
    pairs = read_side(request, options, "held-out", request.create_problem_log())
    if context_length is not None:  # the model cannot read longer texts
        pairs = (pair for pair in pairs if max(map(len, encode_pair(tokenizer, end, *pair))) <= context_length)
    held_out = heapq.nsmallest(MAX_HELD_OUT, pairs, key=lambda pair: hash_to_fraction(normalize_text(pair[0])))
    if not held_out:
        raise ArgumentError(
            "no pair was held out (a tenth is held out, selected by a hash of the source); give more pairs"
        )
    return held_out


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


def _select_pair_data(request: TrainingRequest) -> str | None:
    return request.select_dataset("en-ko", ["en-ko", SENTENCES])


def read_side(
    request: TrainingRequest, options: TranslateOptions, side: Split, problems: ProblemLog
) -> Iterator[TextPair]:
    """Yield the training or the held-out pairs as (source, target)."""
    dataset = _select_pair_data(request)
    if dataset == SENTENCES:
        return _make_sentences(side, options.direction)
    if dataset is not None:
        # number the placeholders: their names would add thousands of words that are not translated
        return (
            text_corpora.number_placeholders(*pair)
            for source, target in DIRECTIONS[options.direction]
            for pair in text_corpora.read_en_ko(side, request.show_download, source, target)
        )
    file_format = request.create_file_format(options.header)
    columns = (options.source, options.target)
    pairs = read_pairs(request.require_files(), *columns, problems, file_format)
    if "direction" not in request.changes:
        return (pair for pair in pairs if assign_split(pair[0]) == side)
    sample = read_pairs(request.require_files(), *columns, request.create_problem_log(), file_format)
    korean = find_korean_column(sample, columns)
    is_reversed = options.direction == ("en-ko", "ko-en")[korean]
    if is_reversed and None not in columns:
        raise ArgumentError(
            f"the source column {columns[0]} is {('Korean', 'English')[korean]}, which contradicts "
            f"direction={options.direction}; leave direction out, or exchange source and target"
        )
    return _arrange_pairs(pairs, options.direction, korean, side)


@cache
def _make_pairs(side: Split) -> list[SentencePair]:
    if side == "held-out":
        return make_sentence_pairs(HELD_OUT_COUNT, side)
    return [*make_sentence_pairs(TRAINING_COUNT), *PHRASE_REPEATS * list_phrase_pairs()]


def _make_sentences(side: Split, direction: str) -> Iterator[TextPair]:
    for source, _ in DIRECTIONS[direction]:
        for pair in _make_pairs(side):
            yield (pair.variant, pair.english) if source == "ko" else (pair.english_variant, pair.korean)


def find_korean_column(pairs: Iterable[TextPair], columns: tuple[str | None, str | None]) -> int:
    """Return which column is Korean, 0 or 1: the one with Hangul in most texts, or the one whose name says so.

    >>> find_korean_column([("school", "학교"), ("OK", "확인")], (None, None))
    1
    """
    sample = list(islice(pairs, SAMPLED_PAIRS))
    shares = [sum(contains_hangul(pair[column]) for pair in sample) / len(sample) for column in (0, 1)]
    is_korean = [share >= 0.5 for share in shares]
    if is_korean[0] != is_korean[1]:
        return is_korean.index(True)
    languages = [table_header.LANGUAGE_NAMES.get(table_header.normalize_name(name or "")) for name in columns]
    if sorted(languages, key=str) == ["en", "ko"]:
        return languages.index("ko")
    raise ArgumentError(
        f"direction needs one Korean and one English column, but {shares[0]:.0%} of the first and {shares[1]:.0%} of "
        "the second texts have Hangul; name the columns by --set source=ko --set target=en, or leave direction out to "
        "translate from the first column to the second"
    )


def _arrange_pairs(pairs: Iterable[TextPair], direction: str, korean: int, side: Split) -> Iterator[TextPair]:
    """Yield the pairs of one part as (source, target); with both directions, each pair at most twice.

    A tenth of the pairs is held out by a hash of the source. With both directions, a pair is trained on only if neither
    of its texts is held out, so that no held-out source is known from the other direction.
    """
    for pair in pairs:
        korean_text, english_text = pair[korean], pair[1 - korean]
        if direction == "both":
            if side == "train" and "held-out" in (assign_split(korean_text), assign_split(english_text)):
                continue
            arranged = [(korean_text, english_text), (english_text, korean_text)]
        else:
            arranged = [(korean_text, english_text) if direction == "ko-en" else (english_text, korean_text)]
        yield from (texts for texts in arranged if assign_split(texts[0]) == side)
