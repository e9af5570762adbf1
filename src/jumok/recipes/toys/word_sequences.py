"""Read sequences of words for ``copy`` and ``reverse``, and build a tokenizer with one token per word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from jumok.data.batches.split import normalize_text
from jumok.data.readers import hub_datasets
from jumok.data.readers.columns import TABLE_EXTENSIONS, read_rows
from jumok.data.readers.file_format import FileFormat
from jumok.data.readers.file_list import list_files
from jumok.data.readers.lines import ProblemLog, get_extension, read_lines
from jumok.data.readers.table_header import Column
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError
from jumok.recipes.shared.splits import split_by_key
from jumok.training import DataSummary

Words = list[str]
WordPair = tuple[Words, Words]  # source and target
SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<s>", "end": "</s>", "unknown": "<unk>", "separator": "<sep>"}


def create_word_tokenizer(words: Iterable[str], last: str) -> Tokenizer:
    """Create a tokenizer with one token for each word.

    Args:
        last: The role of the special token that is put after each text: "end" or "separator".

    >>> tokenizer = create_word_tokenizer(["7", "8"], "end")
    >>> tokenizer.encode("8 7 9"), tokenizer.decode([6, 5])
    ([6, 5, 3, 2], '8 7')
    """
    ordered = sorted(set(words), key=lambda word: (len(word), word))  # numbers in numerical order
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS.values(), *ordered])}
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS["unknown"]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(list(SPECIAL_TOKENS.values()))
    last_token = SPECIAL_TOKENS[last]
    inner.post_processor = processors.TemplateProcessing(
        single=["$A", last_token], special_tokens=[(last_token, vocabulary[last_token])]
    )
    return Tokenizer(inner, SPECIAL_TOKENS)


def convert_numbers(pairs: list[tuple[list[int], list[int]]]) -> list[WordPair]:
    """Return pairs of number sequences as pairs of word sequences."""
    return [(list(map(str, source)), list(map(str, target))) for source, target in pairs]


def read_sequences(
    paths: str, max_words: int, problems: ProblemLog, column: str | None = None, file_format: FileFormat | None = None
) -> list[Words]:
    """Read a sequence of words from each line of text files, or from a column of tables."""
    sequences: list[Words] = []
    for line, words in _read_words(paths, problems, Column("text", column), file_format or FileFormat()):
        special = next((word for word in words if word in SPECIAL_TOKENS.values()), None)
        if special is not None:
            problems.report(line, f"the word {special} is a special token of this recipe")
        elif len(words) > max_words:
            problems.report(line, f"the line has {len(words):,} words, more than {max_words} (--set longest=...)")
        else:
            sequences.append(words)
    if not sequences:
        raise DataError(f"{paths} has no sequences: {problems}")
    return sequences


def split_pairs(sequences: list[Words], rule: Callable[[Words], Words], max_held_out: int) -> dict[str, list[WordPair]]:
    """Apply a rule to each sequence, and split the pairs of "train", "dev" (to choose the checkpoint) and "test"."""
    train, dev, test = split_by_key([normalize_text(" ".join(words)) for words in sequences], 0.1, 0.1)
    parts = {"train": train, "dev": dev[:max_held_out], "test": test[:max_held_out]}
    return {part: [(sequences[index], rule(sequences[index])) for index in indices] for part, indices in parts.items()}


def summarize_pairs(pairs: dict[str, list[WordPair]]) -> DataSummary:
    """Return the number of pairs in each part, and the first training pairs."""
    names = {"train": "training", "dev": "validation", "test": "held-out"}
    return DataSummary(
        {f"{name} sequences": len(pairs[part]) for part, name in names.items()},
        [{"source": " ".join(source), "target": " ".join(target)} for source, target in pairs["train"][:3]],
    )


def _read_words(
    paths: str, problems: ProblemLog, column: Column, file_format: FileFormat
) -> Iterator[tuple[str, Words]]:
    """Yield ("a.txt:17", the words) of every line that is not empty."""
    lines: Iterator[tuple[int, str]]
    for path in list_files(paths, problems):
        if hub_datasets.is_hub_name(path) or get_extension(path) in TABLE_EXTENSIONS:
            lines = ((number, cells[0]) for number, cells in read_rows(path, [column], problems, file_format))
        else:
            lines = read_lines(path, problems, file_format.encoding)
        for number, line in lines:
            if line.split():
                yield f"{path}:{number}", line.split()
