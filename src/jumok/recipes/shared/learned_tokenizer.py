"""A vocabulary of a recipe's own: pieces of words, learned on its training texts, and the tokens its model expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.data.tokenizers.tokenizer_parts import wrap_tokenizers_errors
from jumok.errors import ArgumentError, JumokError


def learn_tokenizer(
    texts: Iterable[str],
    vocabulary: int,
    special: Mapping[str, str],
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    *,
    one_space: bool = False,
) -> Tokenizer:
    """Byte-level byte-pair encoding, so that nothing is unknown; ``special`` tokens, by our words, come first.

    before, after: which of them (by their words) stand around a text. one_space: line ends and runs of spaces are read
    as one space. A mask takes the space before it, as the word did that it hides (RoBERTa, Liu et al. 2019).

    >>> special = {"pad": "[PAD]", "separator": "[SEP]", "mask": "[MASK]"}
    >>> pieces = learned(["the cat sat on the mat"] * 9, 270, special, after=["separator"], one_space=True)
    >>> [pieces.token(number) for number in pieces.encode("the [MASK]")]
    ['the', '[MASK]', '[SEP]']
    """
    if vocabulary < 256 + len(special):
        raise ArgumentError(
            f"a vocabulary of {vocabulary} is too small: 256 bytes and {len(special)} special tokens come first"
        )
    inner = tokenizers.Tokenizer(models.BPE())
    if one_space:
        inner.normalizer = normalizers.Replace(Regex(r"\s+"), " ")
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[
            AddedToken(token, lstrip=word == "mask", normalized=False, special=True) for word, token in special.items()
        ],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    wrong: list[JumokError] = []
    try:
        with wrap_tokenizers_errors("no pieces can be learned from these texts"):
            inner.train_from_iterator(_heard(texts, wrong), trainer)
    except ArgumentError:
        if wrong:
            raise wrong[0] from None
        raise
    around = [special[word] for word in (*before, *after)]
    if around:
        inner.post_processor = processors.TemplateProcessing(
            single=[*around[: len(before)], "$A", *around[len(before) :]],
            special_tokens=[(token, inner.token_to_id(token)) for token in around],
        )
    return Tokenizer(inner, special)


def _heard(texts: Iterable[str], wrong: list[JumokError]) -> Iterator[str]:
    """The texts; what is wrong with their file is remembered, because it comes out of `tokenizers` as another error."""
    try:
        yield from texts
    except JumokError as error:
        wrong.append(error)
        raise
