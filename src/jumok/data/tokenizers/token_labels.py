"""Write tokens as readable labels, group tokens into words, and name the words outside the vocabulary.

Where tokens are bytes, several tokens can form one character. Each of them is labelled with that character and a
number, never with a replacement character.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Sequence

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.reporting import get_reader_language

VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "⏎"}
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
CONTINUATION_PREFIX = "##"  # BERT's prefix of a token that continues a word
SPACE_PREFIXES = ("▁", "Ġ")  # how some vocabularies write a space before a word
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
UNKNOWN_SHOWN = 10


def label_tokens(tokenizer: TextTokenizer, ids: Sequence[int]) -> list[str]:
    """Return a short readable label for each token.

    >>> label_tokens(Tokenizer.for_bytes(), list("a 주".encode()))
    ['a', '␣', '주₁', '주₂', '주₃']
    """
    parts = [tokenizer.id_to_bytes(token_id) for token_id in ids]
    labels = [""] * len(ids)
    begin = 0
    while begin < len(ids):
        if parts[begin] is None:  # a token that does not stand for bytes
            token = tokenizer.id_to_token(ids[begin])
            is_text = tokenizer.contains_id(ids[begin])  # otherwise "<id 49152>", whose space is not one of the text
            if is_text:
                token = _make_visible(" " + token[1:] if token.startswith(SPACE_PREFIXES) else token)
            labels[begin] = token
            begin += 1
            continue

        end = next((position for position in range(begin, len(ids)) if parts[position] is None), len(ids))
        labels[begin:end] = _label_bytes([part for part in parts[begin:end] if part is not None])
        begin = end
    return labels


def group_words(tokenizer: TextTokenizer, ids: Sequence[int], *, special: bool = True) -> list[tuple[str, range]]:
    """Return the words of a text, each with the positions of its tokens. Spaces belong to the word after them.

    Args:
        special: Include special tokens such as [CLS] and </s>, each as a word. The tokens for unknown and masked words
            are always included, because they stand for words.

    >>> group_words(Tokenizer.for_bytes(), list("a 주목".encode()))
    [('a', range(0, 1)), ('주목', range(1, 8))]
    """
    tokens = [tokenizer.id_to_token(token_id) for token_id in ids]
    parts = [tokenizer.id_to_bytes(token_id) for token_id in ids]
    hidden = set() if special else _find_special_ids(tokenizer, ids)
    # vocabularies mark either the beginning of a word or its continuation
    marks_beginning = any(token.startswith(SPACE_PREFIXES) for token in tokens)

    groups: list[list[int]] = []
    for position, (token, part) in enumerate(zip(tokens, parts, strict=True)):
        previous = parts[position - 1] if position else None
        if part is not None:
            begins_word = previous is None or (part[:1].isspace() and not previous.isspace())
        elif marks_beginning:
            begins_word = _is_special(token) or token.startswith(SPACE_PREFIXES)
        else:
            begins_word = _is_special(token) or not token.startswith(CONTINUATION_PREFIX)

        if ids[position] not in hidden:
            if begins_word or not groups or ids[position - 1] in hidden or _is_special(tokens[position - 1]):
                groups.append([])
            groups[-1].append(position)

    words: list[tuple[str, range]] = []
    for positions in groups:
        word_ids = [ids[position] for position in positions]
        word = tokenizer.decode(word_ids).strip()
        if not word or REPLACEMENT in word:
            word = "".join(label_tokens(tokenizer, word_ids))
        words.append((word, range(positions[0], positions[-1] + 1)))
    return words


def _is_special(token: str) -> bool:
    return len(token) > 2 and (token[0], token[-1]) in (("<", ">"), ("[", "]"))


def _find_special_ids(tokenizer: TextTokenizer, ids: Sequence[int]) -> set[int]:
    """Return the special tokens of a text that do not stand for one of its words."""
    added = set(tokenizer.encode("")) - set(tokenizer.encode("", special=False))
    skipped = {
        token_id
        for token_id in set(ids)
        if tokenizer.decode([token_id]) and not tokenizer.decode([token_id], special=False)
    }
    for_words = {tokenizer.mask, tokenizer.unknown} - {tokenizer.end}  # GPT-2's end token is its unknown token too
    return (added | skipped) - for_words


def _label_bytes(parts: list[bytes]) -> list[str]:
    """Label tokens that are bytes by the characters that they form together."""
    text = b"".join(parts)
    token_of_byte = [token for token, part in enumerate(parts) for _ in part]
    labels = [""] * len(parts)
    offset = 0
    while offset < len(text):
        letter, size = _read_letter(text, offset)
        tokens = list(dict.fromkeys(token_of_byte[offset : offset + size]))
        for number, token in enumerate(tokens, 1):
            labels[token] += letter if len(tokens) == 1 else letter + str(number).translate(SUBSCRIPTS)
        offset += size
    return labels


def _read_letter(text: bytes, offset: int) -> tuple[str, int]:
    """Return the character at an offset and its number of bytes; a byte outside a character is written as a number."""
    for size in range(1, 5):
        try:
            return _make_visible(text[offset : offset + size].decode()), size
        except UnicodeDecodeError:
            continue
    return f"<{text[offset]:02X}>", 1


def _make_visible(text: str) -> str:
    return "".join(VISIBLE.get(letter, letter if letter.isprintable() else f"<{ord(letter):02X}>") for letter in text)


def count_unknown(tokenizer: TextTokenizer, text: str, token_ids: Sequence[int]) -> int:
    """Count the unknown tokens of a text.

    In some vocabularies the unknown token also ends texts (GPT-2: <|endoftext|>). It then counts only where it is
    neither written in the text nor added around every text.
    """
    unknown = tokenizer.unknown
    if unknown is None:
        return 0
    count = list(token_ids).count(unknown)
    if unknown == tokenizer.end:
        added = tokenizer.encode("").count(unknown)
        count -= added + text.count(tokenizer.id_to_token(unknown))
    return max(0, count)


def list_unknown_words(tokenizer: TextTokenizer, text: str) -> tuple[str, ...]:
    """Return the words or characters of a text that the vocabulary does not contain, each once."""
    if isinstance(tokenizer, Tokenizer):
        return tuple(tokenizer.list_unknown(text))
    # a tokenizer of transformers does not say where its tokens are in the text: return the words with an unknown token
    if tokenizer.unknown is None or tokenizer.unknown == tokenizer.end:
        return ()
    words = dict.fromkeys(text.split())
    return tuple(word for word in words if tokenizer.unknown in tokenizer.encode(word, special=False))


def format_unknown_words(words: Sequence[str]) -> str:
    """Return the first unknown words of a text as a list that a terminal can print."""
    named = ", ".join([*words[:UNKNOWN_SHOWN], *(["..."] if len(words) > UNKNOWN_SHOWN else [])])
    # a text may contain escape sequences, which a terminal would obey
    return "".join(letter if letter.isprintable() else " " for letter in named)


def describe_unknown_tokens(unknown: int, tokens: int, words: Sequence[str]) -> str:
    """Return a sentence about a text of which a model knows only a part, in the reader's language."""
    named = format_unknown_words(words)
    if get_reader_language() == "ko":
        return (
            f"토큰 {tokens:,}개 가운데 {unknown:,}개는 이 모델의 토크나이저가 모르는 것입니다: {named}. "
            "이 부분의 답은 추측입니다"
        )
    return (
        f"{unknown:,} of {tokens:,} tokens are unknown to this model's tokenizer: {named}; where they are, its answer "
        "is a guess"
    )


def suggest_words(tokenizer: Tokenizer, word: str, count: int = 3) -> list[str]:
    """Return the words of a vocabulary that are spelled most like a word; Hangul is compared letter by letter.

    A particle or an ending that the vocabulary has is left out of the comparison.

    >>> from jumok.checkpoint import load
    >>> suggest_words(load("translator").require_tokenizer(), "umbrela")[0]
    'umbrella'
    """
    pieces = set(tokenizer.word_pieces)
    word = word.strip(".,!?~")
    stems = [word[:end] for end in range(1, len(word)) if CONTINUATION_PREFIX + word[end:] in pieces]
    beginnings = sorted(piece for piece in pieces if not piece.startswith(CONTINUATION_PREFIX))
    spellings = {unicodedata.normalize("NFD", piece.casefold()): piece for piece in beginnings}
    spelling = unicodedata.normalize("NFD", min(stems, key=len, default=word).casefold())
    return [spellings[match] for match in difflib.get_close_matches(spelling, spellings, count, 0.5)]


def require_all_words(tokenizer: Tokenizer, words: Sequence[str]) -> None:
    """Refuse a text with unknown words, and name the nearest known ones: its translation would be another text's."""
    is_korean = get_reader_language() == "ko"
    described = []
    for word in words[:UNKNOWN_SHOWN]:
        nearest = ", ".join(suggest_words(tokenizer, word)) or ("없음" if is_korean else "none")
        described.append(
            f"{format_unknown_words([word])} ({'비슷한 단어' if is_korean else 'nearest known words'}: {nearest})"
        )
    named = "; ".join([*described, *(["..."] if len(words) > UNKNOWN_SHOWN else [])])
    if is_korean:
        raise ArgumentError(f"이 모델의 어휘에 없는 단어가 있습니다: {named}. 모델이 학습한 단어로 쓰세요")
    raise ArgumentError(
        f"this model's vocabulary does not contain {named}; write the text with words that the model was trained on"
    )


def require_known_words(tokenizer: TextTokenizer, text: str, unknown: int) -> None:
    """Refuse a text of which a model knows nothing: its answer would have nothing to do with the text."""
    if not unknown or unknown < len(tokenizer.encode(text, special=False)):
        return
    named = format_unknown_words(list_unknown_words(tokenizer, text))
    if get_reader_language() == "ko":
        raise ArgumentError(f"이 모델의 어휘에는 이 글의 단어가 하나도 없습니다: {named}. 모델이 학습한 단어로 쓰세요")
    raise ArgumentError(
        f"this model's vocabulary contains no word of this text: {named}; write it with words that the model was "
        "trained on"
    )
