"""Questions with passages: read them from the user's JSONL files, and turn them into batches and answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from jumok.data.datasets.invented_facts import PassageQuestion
from jumok.data.readers.file_list import list_files
from jumok.data.readers.lines import ProblemLog, get_extension, read_lines
from jumok.data.tokenizers.passage_tokens import encode_passages
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, DataError
from jumok.models import Model
from jumok.recipes.shared.seq2seq import create_seq2seq_batch, generate_by_length, pad_sources
from jumok.training import Batch

SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<s>", "end": "</s>", "separator": "<passage>"}
EXTENSION = ".jsonl"
MAX_PASSAGES = 1000
ANSWER_BATCH = 32


def read_questions(paths: str, problems: ProblemLog) -> list[PassageQuestion]:
    """Read one question from each line: {"question": "...", "passages": ["...", "..."], "answer": "..."}."""
    questions = []
    for path in list_files(paths, problems):
        if get_extension(path) != EXTENSION:
            problems.report(str(path), f"questions are read from {EXTENSION} files", "files")
            continue
        for number, line in read_lines(path, problems):
            if not line.strip():
                continue
            try:
                questions.append(_parse_line(line))
            except DataError as error:
                problems.report(f"{path}:{number}", str(error))
    if not questions:
        raise DataError(f"there are no questions in {paths[:200]}: {problems}")
    return questions


def _parse_line(line: str) -> PassageQuestion:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError(
            'the line is not JSON; write {"question": "...", "passages": ["..."], "answer": "..."}'
        ) from None
    if not isinstance(row, dict):
        raise DataError('the line must be an object with "question", "passages" and "answer"')
    question, answer = (_read_text(row, name) for name in ("question", "answer"))
    passages = row.get("passages")
    if not isinstance(passages, list) or not 1 <= len(passages) <= MAX_PASSAGES:
        raise DataError(f'"passages" must be a list of 1 to {MAX_PASSAGES:,} texts')
    if not all(isinstance(passage, str) and passage.strip() for passage in passages):
        raise DataError('"passages" must be texts that are not empty')
    texts = tuple(" ".join(passage.split()) for passage in passages)
    return PassageQuestion(question, texts, answer, _find_right_passage(texts, answer))


def _read_text(row: dict[str, object], name: str) -> str:
    text = row.get(name)
    if not isinstance(text, str) or not text.strip():
        raise DataError(f'"{name}" must be a text that is not empty')
    return " ".join(text.split())


def _find_right_passage(passages: tuple[str, ...], answer: str) -> int | None:
    """Return the only passage that contains the answer; None if there is none or more than one."""
    indices = [index for index, passage in enumerate(passages) if answer.casefold() in passage.casefold()]
    return indices[0] if len(indices) == 1 else None


def find_separator(tokenizer: Tokenizer) -> int:
    """Return the token that begins a passage."""
    tokens = tokenizer.encode(SPECIAL_TOKENS["separator"], special=False)
    if len(tokens) != 1:
        raise ArgumentError(f"the tokenizer has no token {SPECIAL_TOKENS['separator']}")
    return tokens[0]


@dataclass(frozen=True)
class ReadingTexts:
    """The tokenizer of a reader, and its special tokens."""

    tokenizer: Tokenizer
    separator: int
    longest: int
    is_apart: bool = True

    def encode_source(self, example: PassageQuestion) -> list[int]:
        """Return the source of a model: all passages one after another."""
        passages = encode_passages(self.tokenizer, self.separator, example.question, example.passages)
        tokens = [token for passage in passages for token in passage[: self.longest]]
        return tokens if self.is_apart else tokens[: self.longest]

    def encode_answer(self, answer: str) -> list[int]:
        """Return the tokens of an answer and the end token."""
        # with the space before it, a name has the same tokens as inside a passage
        tokens = self.tokenizer.encode(f" {answer}", special=False)[: self.longest - 1]
        return [*tokens, self._require(self.tokenizer.end)]

    def create_batch(self, examples: Sequence[PassageQuestion]) -> Batch:
        """Return a batch for an encoder-decoder: the decoder reads the answer shifted by one position."""
        pad, begin = self._require(self.tokenizer.pad), self._require(self.tokenizer.begin)
        sources = [self.encode_source(example) for example in examples]
        answers = [self.encode_answer(example.answer) for example in examples]
        return create_seq2seq_batch(pad_sources(sources, pad), answers, begin, pad)

    def answer(self, model: Model, examples: Sequence[PassageQuestion], limit: int) -> list[str]:
        """Return the greedy answers of a model."""
        sources = [self.encode_source(example) for example in examples]
        ends = (self._require(self.tokenizer.end),)
        answers = generate_by_length(model, sources, limit=limit, ends=ends, size=ANSWER_BATCH)
        return [self.tokenizer.decode(tokens, special=False).strip() for tokens in answers]

    def _require(self, token: int | None) -> int:
        if token is None:
            raise ArgumentError("the tokenizer of a reader needs a padding, a begin and an end token")
        return token
