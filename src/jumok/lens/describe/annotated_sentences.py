"""A few sentences with dependency annotations (Universal Dependencies), for finding heads that follow syntax.

Each word has the index of its governor, counted from 0; the root has -1. Written for this project.
"""

from __future__ import annotations

from typing import NamedTuple


class AnnotatedSentence(NamedTuple):
    """A sentence with the governor of each word.

    Attributes:
        words: The words.
        governors: The index of each word's governor; -1 for the root.
    """

    words: tuple[str, ...]
    governors: tuple[int, ...]

    @property
    def text(self) -> str:
        """The sentence."""
        return " ".join(self.words)

    @property
    def arcs(self) -> list[tuple[int, int]]:
        """The pairs (dependent, governor), as word indices."""
        return [(word, governor) for word, governor in enumerate(self.governors) if governor >= 0]


def parse_annotation(annotation: str) -> AnnotatedSentence:
    """Parse a sentence in which each word is followed by its governor.

    Args:
        annotation: For example ``"the>1 cat>2 slept>-1"``.
    """
    pairs = [word.rpartition(">") for word in annotation.split()]
    words = tuple(word for word, _, _ in pairs)
    governors = tuple(int(governor) for _, _, governor in pairs)
    return AnnotatedSentence(words, governors)


ENGLISH_SENTENCES = tuple(
    parse_annotation(annotation)
    for annotation in (
        "The>1 cat>2 chased>-1 a>5 small>5 mouse>2",
        "She>1 gave>-1 her>3 brother>1 the>6 old>6 book>1",
        "The>1 man>6 who>3 lives>1 next>5 door>3 plays>-1 the>8 piano>6",
        "Birds>1 sing>-1 loudly>1 in>5 the>5 morning>1",
        "The>1 keys>8 to>4 the>4 cabinet>1 are>8 on>8 the>8 table>-1",
        "We>2 will>2 visit>-1 our>4 friends>2 tomorrow>2",
        "He>1 opened>-1 the>3 window>1 because>7 it>7 was>7 hot>1",
        "The>2 young>2 teacher>3 explained>-1 the>5 problem>3 to>8 her>8 students>3",
    )
)
KOREAN_SENTENCES = tuple(
    parse_annotation(annotation)
    for annotation in (
        "나는>4 어제>4 새>3 책을>4 샀다>-1",
        "작은>1 고양이가>4 따뜻한>3 방에서>4 잔다>-1",
        "친구가>1 보낸>2 편지를>4 동생이>4 읽었다>-1",
        "어머니는>4 부엌에서>4 맛있는>3 음식을>4 만드신다>-1",
    )
)
