"""Sequences of words, one word a token: how they are read, on which side each stands, and their tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from jumok.data.batches.split import normalize_text
from jumok.data.readers import hub_datasets
from jumok.data.readers.columns import TABLE_EXTENSIONS, read_rows
from jumok.data.readers.lines import ProblemLog, get_extension, list_files, read_lines
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError
from jumok.recipes.shared.splits import split_by_key

Words = list[str]
Pair = tuple[Words, Words]
SPECIAL = {"pad": "<pad>", "begin": "<s>", "end": "</s>", "unknown": "<unk>", "separator": "<sep>"}


def tokenizer(known: Iterable[str], behind: str) -> Tokenizer:
    """A token for each word, and ``behind`` ("end", "separator") behind each text.

    >>> numbers = tokenizer(["7", "8"], "end")
    >>> numbers.encode("8 7 9"), numbers.decode([6, 5])
    ([6, 5, 3, 2], '8 7')
    """
    ordered = sorted(set(known), key=lambda word: (len(word), word))  # numbers stand as they are counted
    vocabulary = {token: number for number, token in enumerate([*SPECIAL.values(), *ordered])}
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL["unknown"]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(list(SPECIAL.values()))
    last = SPECIAL[behind]
    inner.post_processor = processors.TemplateProcessing(single=["$A", last], special_tokens=[(last, vocabulary[last])])
    return Tokenizer(inner, SPECIAL)


def of_numbers(pairs: list[tuple[list[int], list[int]]]) -> list[Pair]:
    return [([str(number) for number in here], [str(number) for number in there]) for here, there in pairs]


def of_files(
    paths: str, rule: Callable[[Words], Words], longest: int, most: int, problems: ProblemLog
) -> dict[str, list[Pair]]:
    """A sequence in each line of a text file, or in the column "text" of a table, with what ``rule`` makes of it:
    "train", "dev" to choose by and "test", of which the last two have at most ``most``."""
    found: list[Words] = []
    for place, words in _sequences(paths, problems):
        special = next((word for word in words if word in SPECIAL.values()), None)
        if special is not None:
            problems.report(place, f"the word {special} has a meaning of its own here")
        elif len(words) > longest:
            problems.report(
                place, f"there are {len(words):,} words, and at most {longest} are read (--set longest=...)"
            )
        else:
            found.append(words)
    if not found:
        raise DataError(f"there are no sequences in {paths}: {problems}")
    train, dev, test = split_by_key([normalize_text(" ".join(words)) for words in found], 0.1, 0.1)
    chosen = {"train": train, "dev": dev[:most], "test": test[:most]}
    return {part: [(found[one], rule(found[one])) for one in places] for part, places in chosen.items()}


def _sequences(paths: str, problems: ProblemLog) -> Iterator[tuple[str, Words]]:
    """("a.txt:17", its words) of every line that has any."""
    found: Iterator[tuple[int, str]]
    for path in list_files(paths):
        if hub_datasets.is_hub_name(path) or get_extension(path) in TABLE_EXTENSIONS:
            found = ((number, fields[0]) for number, fields in read_rows(path, ["text"], problems))
        else:
            found = read_lines(Path(path), problems)
        for number, line in found:
            if line.split():
                yield f"{path}:{number}", line.split()
