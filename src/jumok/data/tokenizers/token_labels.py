"""Tokens as people can read them. Where tokens are bytes, several may make one character: each of them is then shown as
that character with its number, never as a replacement character."""

from __future__ import annotations

from collections.abc import Sequence

from .tokenizer import Tokenizer

SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "⏎"}
SMALL = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
CONTINUED = "##"  # BERT's mark of a piece that goes on with a word
BEFORE = "▁Ġ"  # how some vocabularies write a space in front


def label_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """A short text for each token.

    >>> labels(Tokenizer.of_bytes(), list("a 주".encode()))
    ['a', '␣', '주₁', '주₂', '주₃']
    """
    spelled = [tokenizer.bytes_of(number) for number in ids]
    shown = [""] * len(ids)
    begin = 0
    while begin < len(ids):
        if spelled[begin] is None:  # a special token, or one that is written as it is
            shown[begin] = _visible(_plain(tokenizer.id_to_token(ids[begin])))
            begin += 1
            continue
        end = begin
        while end < len(ids) and spelled[end] is not None:
            end += 1
        shown[begin:end] = _together([one or b"" for one in spelled[begin:end]])
        begin = end
    return shown


def group_words(tokenizer: Tokenizer, ids: Sequence[int]) -> list[tuple[str, range]]:
    """The words of a text, each with the places of its tokens; spaces belong to the word that they stand in front of.

    >>> words(Tokenizer.of_bytes(), list("a 주목".encode()))
    [('a', range(0, 1)), ('주목', range(1, 8))]
    """
    tokens, parts = [tokenizer.id_to_token(one) for one in ids], [tokenizer.bytes_of(one) for one in ids]
    marked = any(
        token[:1] in tuple(BEFORE) for token in tokens
    )  # words begin with a mark, or all others go on with one
    found: list[list[int]] = []
    for place, (token, part) in enumerate(zip(tokens, parts, strict=True)):
        before = parts[place - 1] if place else None
        if part is None:
            new = _special(token) or (token[:1] in tuple(BEFORE) if marked else not token.startswith(CONTINUED))
        else:
            new = before is None or (part[:1].isspace() and not before.isspace())
        if new or not found or _special(tokens[place - 1]):
            found.append([])
        found[-1].append(place)
    return [(_word(tokenizer, [ids[place] for place in places]), range(places[0], places[-1] + 1)) for places in found]


def _word(tokenizer: Tokenizer, ids: list[int]) -> str:
    text = tokenizer.decode(ids).strip()
    return text if text and "\N{REPLACEMENT CHARACTER}" not in text else "".join(label_tokens(tokenizer, ids))


def _special(token: str) -> bool:
    return len(token) > 2 and (token[0], token[-1]) in (("<", ">"), ("[", "]"))


def _together(parts: list[bytes]) -> list[str]:
    """The labels of tokens that are bytes, from the characters that they make together."""
    joined = b"".join(parts)
    owner = [token for token, part in enumerate(parts) for _ in part]  # of each byte
    shown = [""] * len(parts)
    place = 0
    while place < len(joined):
        letter, size = _letter(joined, place)
        tokens = list(dict.fromkeys(owner[place : place + size]))
        for number, token in enumerate(tokens, 1):
            shown[token] += letter if len(tokens) == 1 else letter + str(number).translate(SMALL)
        place += size
    return shown


def _letter(data: bytes, place: int) -> tuple[str, int]:
    """The character that begins here and how many bytes it has; a byte that begins none is shown as a number."""
    for size in range(1, 5):
        try:
            return _visible(data[place : place + size].decode()), size
        except UnicodeDecodeError:
            continue
    return f"<{data[place]:02X}>", 1


def _plain(token: str) -> str:
    return " " + token[1:] if token[:1] in tuple(BEFORE) else token


def _visible(text: str) -> str:
    return "".join(SHOWN.get(letter, letter if letter.isprintable() else f"<{ord(letter):02X}>") for letter in text)
