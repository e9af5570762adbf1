"""A reader that keeps the text that it wrote last, with its tokens: ``ask`` returns the text without them."""

from __future__ import annotations

from collections.abc import Sequence

from jumok.tasks.ask import Reader, Reading


class RecordingReader:
    """Reads like another reader, and keeps the last reading.

    Args:
        reader: The reader.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.reading: Reading | None = None

    def explain_unreadable(self, question: str) -> str | None:
        """Return why the model cannot read a question; None if it can.

        Args:
            question: The question.
        """
        return self.reader.explain_unreadable(question)

    def read(self, question: str, passages: Sequence[str], limit: int) -> Reading:
        """Return the most probable text, and keep it.

        Args:
            question: The question.
            passages: The texts of the passages, the best one first.
            limit: The largest number of tokens.
        """
        self.reading = self.reader.read(question, passages, limit)
        return self.reading

    def score(self, question: str, passages: Sequence[str], token_ids: Sequence[int]) -> Reading:
        """Return the log-probabilities of a text that is given.

        Args:
            question: The question.
            passages: The texts of the passages, the best one first.
            token_ids: The tokens of the text.
        """
        return self.reader.score(question, passages, token_ids)

    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        """Return for each passage the log-probabilities of the text's tokens without that passage.

        Args:
            reading: The text, with its question and passages.
        """
        return self.reader.score_cuts(reading)

    def measure_attention(self, reading: Reading) -> list[float]:
        """Return for each passage the attention that it receives while the text is written.

        Args:
            reading: The text, with its question and passages.
        """
        return self.reader.measure_attention(reading)
