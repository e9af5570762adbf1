"""Read questions with passages and answers from the user's JSONL files."""

from __future__ import annotations

import json
from collections.abc import Iterator

from jumok.data.datasets.invented_facts import PassageQuestion
from jumok.data.readers.file_list import list_files
from jumok.data.readers.lines import ProblemLog, get_extension, read_lines
from jumok.errors import DataError

EXTENSION = ".jsonl"
MAX_PASSAGES = 1000


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


def list_texts(questions: list[PassageQuestion]) -> Iterator[str]:
    """Yield the texts from which a tokenizer is learned."""
    for example in questions:
        yield example.question
        yield f" {example.answer}"
        for passage in example.passages:
            yield f" {passage}"
