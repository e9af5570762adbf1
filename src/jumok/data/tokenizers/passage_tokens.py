"""Encode a question with passages as the source of a Fusion-in-Decoder: a separator token begins each passage."""

from __future__ import annotations

from collections.abc import Sequence

from jumok.errors import ArgumentError

from .text_tokenizer import TextTokenizer

PASSAGE_MARK = "|"  # between the question and its passages in a line of text


def encode_passages(
    tokenizer: TextTokenizer, separator: int, question: str, passages: Sequence[str]
) -> list[list[int]]:
    """Return the tokens of each passage: the separator, the question and the text of the passage."""
    start = [separator, *tokenizer.encode(question, special=False)]
    # with a space before it, the first word of a passage has the same tokens as inside a text
    return [[*start, *tokenizer.encode(f" {passage}", special=False)] for passage in passages]


def split_question(text: str) -> tuple[str, list[str]]:
    """Split a line "question | passage | passage" into the question and its passages.

    >>> split_question("Where does Ada live? | Ada lives in Rome. | Bo has a dog.")
    ('Where does Ada live?', ['Ada lives in Rome.', 'Bo has a dog.'])
    """
    question, *passages = (part.strip() for part in text.split(PASSAGE_MARK))
    passages = [passage for passage in passages if passage]
    if not question or not passages:
        raise ArgumentError(
            "this model reads a question and its passages, separated by |, such as "
            "'Where does Ada live? | Ada lives in Rome. | Bo has a dog.'"
        )
    return question, passages
