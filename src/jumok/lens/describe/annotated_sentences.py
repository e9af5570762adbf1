"""A few sentences with dependency annotations (Universal Dependencies), for finding heads that follow syntax.

Each word has the index of its governor, counted from 0 (the root has -1), and its relation to it. Written for this
project.
"""

from __future__ import annotations

from typing import NamedTuple


class AnnotatedSentence(NamedTuple):
    """A sentence with the governor of each word.

    Attributes:
        governors: The index of each word's governor; -1 for the root.
        relations: The relation of each word to its governor, as in Universal Dependencies ("nsubj", "det", ...).
    """

    words: tuple[str, ...]
    governors: tuple[int, ...]
    relations: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentence."""
        return " ".join(self.words)

    @property
    def arcs(self) -> list[tuple[int, int]]:
        """The pairs (dependent, governor), as word indices."""
        return [(word, governor) for word, governor in enumerate(self.governors) if governor >= 0]


def parse_annotation(annotation: str) -> AnnotatedSentence:
    """Parse a sentence in which each word is followed by its governor and its relation.

    Args:
        annotation: For example ``"the>1:det cat>2:nsubj slept>-1:root"``.
    """
    pairs = [word.rpartition(">") for word in annotation.split()]
    words = tuple(word for word, _, _ in pairs)
    governors, relations = zip(*(label.split(":") for _, _, label in pairs), strict=True)
    return AnnotatedSentence(words, tuple(int(governor) for governor in governors), relations)


ENGLISH_SENTENCES = tuple(
    parse_annotation(annotation)
    for annotation in (
        "The>1:det cat>2:nsubj chased>-1:root a>5:det small>5:amod mouse>2:obj",
        "She>1:nsubj gave>-1:root her>3:nmod brother>1:iobj the>6:det old>6:amod book>1:obj",
        "The>1:det man>6:nsubj who>3:nsubj lives>1:acl next>5:case door>3:obl plays>-1:root the>8:det piano>6:obj",
        "Birds>1:nsubj sing>-1:root loudly>1:advmod in>5:case the>5:det morning>1:obl",
        "The>1:det keys>8:nsubj to>4:case the>4:det cabinet>1:nmod are>8:cop on>8:case the>8:det table>-1:root",
        "We>2:nsubj will>2:aux visit>-1:root our>4:nmod friends>2:obj tomorrow>2:obl",
        "He>1:nsubj opened>-1:root the>3:det window>1:obj because>7:mark it>7:nsubj was>7:cop hot>1:advcl",
        "The>2:det young>2:amod teacher>3:nsubj explained>-1:root the>5:det problem>3:obj to>8:case her>8:nmod "
        "students>3:obl",
        "The>1:det farmer>4:nsubj will>4:aux probably>4:advmod sell>-1:root the>7:det brown>7:amod horses>4:obj",
        "My>1:nmod uncle>5:nsubj has>5:aux never>5:advmod really>5:advmod liked>-1:root cold>7:amod soup>5:obj",
        "Our>1:nmod neighbours>5:nsubj from>3:case Canada>1:nmod often>5:advmod bring>-1:root us>5:iobj fresh>8:amod "
        "bread>5:obj",
        "The>2:det new>2:amod law>4:nsubj should>4:aux protect>-1:root small>6:amod farms>4:obj",
        "A>1:det doctor>5:nsubj in>4:case the>4:det village>1:nmod treated>-1:root the>8:det sick>8:amod child>5:obj",
        "The>1:det students>3:nsubj quickly>3:advmod answered>-1:root every>6:det hard>6:amod question>3:obj",
        "The>1:det ship>5:nsubj that>3:nsubj sank>1:acl yesterday>3:advmod carried>-1:root heavy>7:amod stones>5:obj",
        "Her>1:nmod parents>4:nsubj could>4:aux not>4:advmod find>-1:root the>6:det key>4:obj",
    )
)
KOREAN_SENTENCES = tuple(
    parse_annotation(annotation)
    for annotation in (
        "나는>4:nsubj 어제>4:advmod 새>3:amod 책을>4:obj 샀다>-1:root",
        "작은>1:amod 고양이가>4:nsubj 따뜻한>3:amod 방에서>4:obl 잔다>-1:root",
        "친구가>1:nsubj 보낸>2:acl 편지를>4:obj 동생이>4:nsubj 읽었다>-1:root",
        "어머니는>4:nsubj 부엌에서>4:obl 맛있는>3:amod 음식을>4:obj 만드신다>-1:root",
    )
)
