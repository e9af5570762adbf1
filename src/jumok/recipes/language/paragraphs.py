"""Split texts into paragraphs, the examples of a masked language model, and store their tokens in the run's folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from jumok.data.batches.split import Split, assign_split
from jumok.data.datasets import text_corpora
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_examples import TextPiece, read_pieces
from jumok.data.token_shards import TokenShards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer, optional
from jumok.recipes.recipe import Options, column_field, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import learn_tokenizer, load_or_create_tokenizer
from jumok.recipes.shared.stored_data import load_facts, load_tokens, save_facts, write_tokens

SPECIAL_TOKENS = {"pad": "[PAD]", "classify": "[CLS]", "separator": "[SEP]", "mask": "[MASK]"}
MAX_CHARACTERS = 4_000  # a longer paragraph is cut at the next line break
MIN_TOKENS = 4  # a shorter paragraph has too little context to predict a masked token


class Paragraphs(NamedTuple):
    """Paragraphs as tokens.

    Attributes:
        facts: Fields for the report, such as the number of skipped lines.
    """

    train: TokenShards
    held_out: TokenShards
    facts: dict[str, int]


@dataclass(frozen=True)
class MaskedOptions(Options):
    """Fields of the masked recipe."""

    with_data = ("text", "header")
    with_start = ("window",)
    without_start = ("vocabulary", "model")

    vocabulary: int = integer(8192, "size of the learned vocabulary", 256 + len(SPECIAL_TOKENS))
    text: str | None = column_field("column of your table that has the texts")
    header: str = header_field()
    model: str = choice("bert", ("bert", "long"), "bert, or long: an encoder for long texts, with the field mixing")
    window: int | None = optional(
        integer(128, "longest example in tokens; None = the model's length, for a bert at most 128", 8)
    )


def load_or_learn_tokenizer(request: TrainingRequest, options: MaskedOptions) -> Tokenizer:
    """Load the run's tokenizer, or learn it from the training paragraphs."""

    def learn() -> Tokenizer:
        texts = _read_paragraphs(request, options, "train", request.create_problem_log())
        return learn_tokenizer(texts, options.vocabulary, SPECIAL_TOKENS, ["classify"], ["separator"], one_space=True)

    return load_or_create_tokenizer(request, learn)


def prepare_paragraphs(
    request: TrainingRequest,
    options: MaskedOptions,
    tokenizer: Tokenizer,
    max_tokens: int,
    joint: list[int] | None = None,
) -> Paragraphs:
    """Encode the paragraphs and store them in the run's folder; a resumed run reads them from there.

    Args:
        joint: If given, consecutive paragraphs are joined by these tokens, and every example has exactly
            ``max_tokens`` tokens; tokens that are left over at the end are dropped. None = an example is a paragraph.
    """
    facts = load_facts(request)
    if facts is not None:
        return Paragraphs(load_tokens(request, "train"), load_tokens(request, "held-out"), facts)

    def write_examples(side: Split, problems: ProblemLog) -> TokenShards:
        paragraphs = _read_paragraphs(request, options, side, problems)
        if joint is None:
            examples = _encode_paragraphs(paragraphs, tokenizer, max_tokens)
            lack = f"no paragraph of at least {MIN_TOKENS} tokens"
        else:
            examples = _join_paragraphs(paragraphs, tokenizer, max_tokens, joint)
            lack = f"fewer than {max_tokens} tokens, which is one example of the model's length"
        first = next(examples, None)
        if first is None:
            raise ArgumentError(
                f"the {side} split has {lack} (a tenth of the text is held out, selected by a hash); give more text"
            )
        return write_tokens(request, tokenizer, itertools.chain([first], examples), side)

    problems = request.create_problem_log()
    train = write_examples("train", problems)
    held_out = write_examples("held-out", request.create_problem_log())
    request.show_problems(problems)
    facts = {"skipped": problems.count} if request.skip_bad else {}
    save_facts(request, facts)
    return Paragraphs(train, held_out, facts)


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


def _read_paragraphs(
    request: TrainingRequest, options: MaskedOptions, side: Split, problems: ProblemLog
) -> Iterator[str]:
    name = request.select_dataset("gutenberg", text_corpora.TEXTS)
    if name is not None:
        passages = text_corpora.TEXTS[name](side, request.show_download)
        yield from split_paragraphs(TextPiece(passage, True) for passage in passages)
        return
    file_format = request.create_file_format(options.header)
    for paragraph in split_paragraphs(read_pieces(request.require_files(), problems, options.text, file_format)):
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
