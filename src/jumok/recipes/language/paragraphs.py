"""Split texts into paragraphs, the examples of a masked language model, and store their tokens in the run's folder."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jumok.checkpoint.tensor_files import read_json
from jumok.data import token_shards
from jumok.data.batches.split import Split, assign_split
from jumok.data.datasets import text_corpora
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_examples import TextPiece, read_pieces
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import integer
from jumok.files import write_atomically
from jumok.recipes.recipe import Options, column_field, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.data_source import require_files, select_dataset
from jumok.recipes.shared.run_tokenizer import learn_tokenizer, load_or_create_tokenizer

SPECIAL_TOKENS = {"pad": "[PAD]", "classify": "[CLS]", "separator": "[SEP]", "mask": "[MASK]"}
MAX_CHARACTERS = 4_000  # a longer paragraph is cut at the next line break
MIN_TOKENS = 4  # a shorter paragraph has too little context to predict a masked token
FACTS_FILE = "prepared.json"


class Paragraphs(NamedTuple):
    """Paragraphs as tokens.

    Attributes:
        facts: Fields for the report, such as the number of skipped lines.
    """

    train: token_shards.TokenShards
    held_out: token_shards.TokenShards
    facts: dict[str, int]


@dataclass(frozen=True)
class ParagraphOptions(Options):
    """Fields of a recipe that learns a vocabulary on paragraphs."""

    with_data = ("text", "header")
    without_start: ClassVar[tuple[str, ...]] = ("vocabulary",)

    vocabulary: int = integer(8192, "size of the learned vocabulary", 256 + len(SPECIAL_TOKENS))
    text: str | None = column_field("column of your table that has the texts")
    header: str = header_field()


def load_or_learn_tokenizer(request: TrainingRequest) -> Tokenizer:
    """Load the run's tokenizer, or learn it from the training paragraphs."""
    vocabulary = request.take_options(ParagraphOptions).vocabulary

    def learn() -> Tokenizer:
        texts = _read_paragraphs(request, "train", request.create_problem_log())
        return learn_tokenizer(texts, vocabulary, SPECIAL_TOKENS, ["classify"], ["separator"], one_space=True)

    return load_or_create_tokenizer(request, learn)


def prepare_paragraphs(
    request: TrainingRequest, tokenizer: Tokenizer, max_tokens: int, joint: list[int] | None = None
) -> Paragraphs:
    """Encode the paragraphs and store them in the run's folder; a resumed run reads them from there.

    Args:
        joint: If given, consecutive paragraphs are joined by these tokens, and every example has exactly
            ``max_tokens`` tokens; tokens that are left over at the end are dropped. None = an example is a paragraph.
    """
    folder = request.folder / "tokens"
    if (request.folder / FACTS_FILE).is_file():
        train = token_shards.TokenShards(folder / "train")
        held_out = token_shards.TokenShards(folder / "held-out")
        train.verify()
        held_out.verify()
        return Paragraphs(train, held_out, read_json(request.folder, FACTS_FILE))
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed before it wrote the facts
    problems = request.create_problem_log()
    train = _write_examples(request, tokenizer, "train", max_tokens, joint, problems)
    held_out = _write_examples(request, tokenizer, "held-out", max_tokens, joint, request.create_problem_log())
    if problems.count:
        request.report(str(problems))
    facts = {"skipped": problems.count} if request.skip_bad else {}
    write_atomically(request.folder / FACTS_FILE, json.dumps(facts) + "\n")
    return Paragraphs(train, held_out, facts)


def _write_examples(
    request: TrainingRequest,
    tokenizer: Tokenizer,
    side: Split,
    max_tokens: int,
    joint: list[int] | None,
    problems: ProblemLog,
) -> token_shards.TokenShards:
    paragraphs = _read_paragraphs(request, side, problems)
    if joint is None:
        examples = _encode_paragraphs(paragraphs, tokenizer, max_tokens)
    else:
        examples = _join_paragraphs(paragraphs, tokenizer, max_tokens, joint)
    first = next(examples, None)
    if first is None and joint is not None:
        raise ArgumentError(
            f"the {side} split has fewer than {max_tokens} tokens, which is one example (a tenth of the paragraphs is "
            "held out, selected by a hash); give more text, or a smaller length"
        )
    if first is None:
        raise ArgumentError(
            f"the {side} split has no paragraph of at least {MIN_TOKENS} tokens (a tenth of them is held out, "
            "selected by a hash); give more text"
        )
    return token_shards.write_shards(
        itertools.chain([first], examples), request.folder / "tokens" / side, tokenizer.vocabulary,
        unknown=tokenizer.unknown, fingerprint=token_shards.fingerprint_tokenizer(tokenizer), report=request.report,
    )  # fmt: skip


def _encode_paragraphs(paragraphs: Iterable[str], tokenizer: Tokenizer, max_tokens: int) -> Iterator[list[int]]:
    for paragraph in paragraphs:
        tokens = tokenizer.encode(paragraph, special=False)
        for start in range(0, len(tokens), max_tokens):
            if len(tokens) - start >= MIN_TOKENS:
                yield tokens[start : start + max_tokens]


def _join_paragraphs(
    paragraphs: Iterable[str], tokenizer: Tokenizer, count: int, joint: list[int]
) -> Iterator[list[int]]:
    tokens: list[int] = []
    for paragraph in paragraphs:
        if tokens:
            tokens += joint
        tokens += tokenizer.encode(paragraph, special=False)
        while len(tokens) >= count:
            yield tokens[:count]
            tokens = tokens[count:]


def _read_paragraphs(request: TrainingRequest, side: Split, problems: ProblemLog) -> Iterator[str]:
    name = select_dataset(request, "gutenberg", text_corpora.TEXTS)
    if name is not None:
        passages = text_corpora.TEXTS[name](side, request.download_report)
        yield from split_paragraphs(TextPiece(passage, True) for passage in passages)
        return
    options = request.take_options(ParagraphOptions)
    file_format = request.create_file_format(options.header)
    for paragraph in split_paragraphs(read_pieces(require_files(request), problems, options.text, file_format)):
        if assign_split(paragraph) == side:
            yield paragraph


def split_paragraphs(pieces: Iterable[TextPiece]) -> Iterator[str]:
    """Yield the text between empty lines, each paragraph as one line.

    >>> list(split_paragraphs([TextPiece("One\\n  two\\n\\nthree\\n", False), TextPiece("four\\n", True)]))
    ['One two', 'three four']
    """
    words: list[str] = []
    characters = 0
    for piece in pieces:
        lines = piece.text.removesuffix("\n").split("\n")
        for number, line in enumerate(lines):
            words += line.split()
            characters += len(line)
            ends_document = piece.ends_document and number == len(lines) - 1
            if line.strip() and characters <= MAX_CHARACTERS and not ends_document:
                continue
            if words:
                yield " ".join(words)
            words, characters = [], 0
    if words:
        yield " ".join(words)
