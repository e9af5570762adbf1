"""Measure the sentences that ``jumok ask`` quotes, and their verdicts, on the questions about five folders of notes.

    python bench/retrieval/quotations.py                     # the test questions
    python bench/retrieval/quotations.py --split dev         # the questions that the rule was chosen on
    python bench/retrieval/quotations.py --reader smollm2    # also what a model writes: English, two seconds a question

A quotation is right if it is in the note that answers the question and contains an accepted answer; a text that a model
writes, if it contains one. To an unanswerable question every answer is wrong. Without --method the folders are searched
as a new user would search them, with the embedding model that fits their language.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import jumok
from jumok.retrieval import open_index
from jumok.tasks.ask import AskSettings, PromptReader, ask

NOTES = Path(__file__).with_name("notes")


def read_questions(split: str) -> list[dict[str, object]]:
    """Return the questions of a split."""
    questions = [json.loads(line) for line in (NOTES / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    return [question for question in questions if question["split"] == split]


def print_rates(name: str, rows: Sequence[tuple[bool, bool, bool]]) -> None:
    """Print how many answers are right, and both errors of the verdict.

    Args:
        name: The heading of the line.
        rows: For each question: whether it is answerable, whether its answer is right, and whether it is "supported".
    """
    answerable = sum(is_answerable for is_answerable, _, _ in rows)
    right = [is_supported for _, is_right, is_supported in rows if is_right]
    wrong = [is_supported for _, is_right, is_supported in rows if not is_right]
    refused = len(right) - sum(right)
    print(
        f"{name:18}right {len(right)} of {answerable}   wrong, but supported {sum(wrong)} of {len(wrong)} "
        f"({sum(wrong) / max(1, len(wrong)):.0%})   right, but refused {refused} of {len(right)} "
        f"({refused / max(1, len(right)):.0%})"
    )


def main() -> None:
    """Ask all questions and print the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--split", choices=["dev", "test"], default="test")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--reader", help="a model that writes answers to the English questions")
    arguments = parser.parse_args()
    reader = None if arguments.reader is None else PromptReader(jumok.load(arguments.reader))
    settings = AskSettings(method=arguments.method)
    indexes = {}
    quoted: dict[str, list[tuple[bool, bool, bool]]] = {"en": [], "ko": []}
    written: list[tuple[bool, bool, bool]] = []
    for question in read_questions(arguments.split):
        folder, language, answerable = str(question["folder"]), str(question["language"]), bool(question["answerable"])
        if folder not in indexes:
            embedder = None if arguments.method == "bm25" else "auto"
            indexes[folder] = open_index(NOTES / folder, embedder=embedder)
        accepted = question.get("answers", [])
        assert isinstance(accepted, list)
        is_read = reader is not None and language == "en"
        answer = ask(indexes[folder], str(question["question"]), reader if is_read else None, settings)
        quotation = answer.quotation
        is_right = (
            quotation is not None
            and quotation.location.startswith(f"{question.get('file', '')}:")
            and any(text in quotation.text for text in accepted)
        )
        quoted[language].append((answerable, is_right, quotation is not None and quotation.verdict == "supported"))
        if is_read:
            is_right = any(text.lower() in (answer.text or "").lower() for text in accepted)
            written.append((answerable, is_right, answer.verdict == "supported"))
    for name, rows in (("quoted, English", quoted["en"]), ("quoted, Korean", quoted["ko"])):
        print_rates(name, rows)
    print_rates("quoted", quoted["en"] + quoted["ko"])
    if written:
        print_rates("written, English", written)


if __name__ == "__main__":
    main()
