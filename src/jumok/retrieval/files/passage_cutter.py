"""Cut text into pieces of 60 to 100 words at the ends of sentences and paragraphs, with their first and last line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MIN_WORDS = 60  # a piece of this size ends with its paragraph
MAX_WORDS = 90  # a piece of this size ends with its sentence; a sentence of this size is cut
FEW_WORDS = 25  # a piece that is shorter is joined with the next sentence up to LIMIT_WORDS
LIMIT_WORDS = 100  # about 130 tokens of English
WORD_LETTERS = 12  # a longer word counts as several: it has several tokens
MAX_WORD = 120  # characters; a longer word is an encoded file or a key, and is cut

_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’»)\]*_]*$")
_ABBREVIATION = re.compile(
    r"[\"'“‘(\[]*(?:[A-Za-z]|Mr|Mrs|Ms|Dr|St|Prof|Sr|Jr|Rev|Hon|Capt|Col|Gen|vs|etc|No|Fig|Vol|pp?|cf|e\.g|i\.e|a\.m|p\.m)\."
)
_LIST_ITEM = re.compile(r"\s*(?:[-*+•|>]\s|\d{1,3}[.)]\s)")
_WIDE = re.compile("[ᄀ-ᇿ⺀-鿿가-힣豈-﫿]")  # scripts with about one token for each character
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

Lines = Iterator[tuple[int, str, bool]]  # line number, line or a part of it, is end of line


@dataclass(frozen=True)
class Piece:
    """A piece of a text: the lines of a paragraph are joined by spaces, paragraphs and list items by line breaks."""

    first: int
    last: int
    text: str
    sentences: tuple[tuple[int, int], ...] = ()  # where in the text each sentence begins, and its line


class PassageCutter:
    """Cut lines into pieces, one at a time. ``keep_lines`` keeps the line breaks, as in a table: each ends a sentence.

    >>> cutter = PassageCutter()
    >>> list(cutter.add_line(1, "The cat sat")) + list(cutter.add_line(2, "on the mat.")) + list(cutter.finish())
    [Piece(first=1, last=2, text='The cat sat on the mat.', sentences=((0, 1),))]
    """

    def __init__(self, keep_lines: bool = False) -> None:
        self.keep_lines = keep_lines
        self._sentences: list[str] = []  # finished sentences of the piece, each after its separator
        self._starts: list[tuple[int, int]] = []  # where each sentence begins, and its line
        self._length = 0  # characters of the piece; the first separator is removed at its end
        self._size = 0
        self._first = self._last = 0
        self._words: list[str] = []  # of the sentence that is not finished
        self._sentence_size = 0
        self._sentence_first = self._sentence_last = 0
        self._separator = " "

    def add_line(self, number: int, line: str, is_end: bool = True) -> Iterator[Piece]:
        """Add a line, or a part of it, and yield the pieces that are finished with it."""
        words = clean_text(line).split()
        if not words:
            if is_end:
                yield from self.end_paragraph()
            return
        if self.keep_lines or _LIST_ITEM.match(line):
            yield from self.end_sentence()
            self._separator = "\n"
        for word in words:
            for start in range(0, len(word), MAX_WORD):
                part = word[start : start + MAX_WORD]
                size = measure_word(part)
                if self._sentence_size + size > MAX_WORDS:
                    yield from self.end_sentence()
                if not self._words:
                    self._sentence_first = number
                self._words.append(part)
                self._sentence_size += size
                self._sentence_last = number
            if word[-1] in ".!?…。！？\"'”’»)]*_" and _SENTENCE_END.search(word) and not _ABBREVIATION.fullmatch(word):
                yield from self.end_sentence()

    def end_sentence(self) -> Iterator[Piece]:
        """End the sentence."""
        if not self._words:
            return
        limit = LIMIT_WORDS if self._size < FEW_WORDS else MAX_WORDS
        if self._size and self._size + self._sentence_size > limit:
            yield self._take_piece()
        if not self._sentences:
            self._first = self._sentence_first
        sentence = self._separator + " ".join(self._words)
        self._starts.append((self._length, self._sentence_first))
        self._sentences.append(sentence)
        self._length += len(sentence)
        self._size += self._sentence_size
        self._last = self._sentence_last
        self._words, self._sentence_size, self._separator = [], 0, " "
        if self._size >= MAX_WORDS:
            yield self._take_piece()

    def end_paragraph(self) -> Iterator[Piece]:
        """End the paragraph: a piece that is long enough ends here."""
        yield from self.end_sentence()
        self._separator = "\n"
        if self._size >= MIN_WORDS:
            yield self._take_piece()

    def finish(self) -> Iterator[Piece]:
        """End the text, and yield what is left of it."""
        yield from self.end_sentence()
        if self._sentences:
            yield self._take_piece()

    def _take_piece(self) -> Piece:
        piece = Piece(self._first, self._last, "".join(self._sentences).strip(), tuple(self._starts))
        self._sentences, self._starts, self._size, self._length = [], [], 0, 0
        return piece


def measure_word(word: str) -> int:
    """Return how many words a word counts as, by its length.

    >>> measure_word("attention"), measure_word("x" * 120), measure_word("이 문장".split()[1])
    (1, 10, 1)
    """
    if len(word) <= WORD_LETTERS and (word.isascii() or len(word) <= 4):
        return 1
    wide = 0 if word.isascii() else len(_WIDE.findall(word))
    return max(1, -(-(len(word) - wide) // WORD_LETTERS) + wide // 4)


def clean_text(text: str) -> str:
    """Return a text whose control characters, which a terminal would obey, and lone surrogates are spaces."""
    return text if text.isprintable() else _CONTROL.sub(" ", text)
