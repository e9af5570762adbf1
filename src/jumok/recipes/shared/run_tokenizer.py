"""The tokenizer of a training run: learned once from the training texts, and loaded when the run is resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.data.tokenizers.tokenizer_parts import wrap_tokenizers_errors
from jumok.errors import ArgumentError, JumokError
from jumok.files import create_folder_atomically
from jumok.recipes.request import TrainingRequest

FOLDER = "tokenizer"  # in the run's folder


def load_or_create_tokenizer(request: TrainingRequest, create: Callable[[], Tokenizer]) -> Tokenizer:
    """Load the tokenizer in the run's folder; if there is none, create and save it."""
    folder = request.folder / FOLDER
    if folder.is_dir():
        return Tokenizer.load(folder)
    tokenizer = create()
    save_tokenizer(request, tokenizer)
    return tokenizer


def save_tokenizer(request: TrainingRequest, tokenizer: Tokenizer) -> None:
    """Save a tokenizer in the run's folder, unless it is there. A killed process leaves all of its files or none."""
    folder = request.folder / FOLDER
    if folder.is_dir():
        return
    with create_folder_atomically(folder) as temporary:
        tokenizer.save(temporary)


def learn_tokenizer(
    texts: Iterable[str],
    vocabulary: int,
    special: Mapping[str, str],
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    *,
    one_space: bool = False,
    drop_first_space: bool = False,
) -> Tokenizer:
    """Learn a byte-level byte-pair encoding, which can encode any text.

    The mask token includes the space before it, because word tokens do too (RoBERTa, Liu et al. 2019).

    Args:
        special: The special tokens by their role ({"pad": "[PAD]"}); they get the first ids.
        before: The roles of the special tokens that are put before each text.
        after: The roles of the special tokens that are put after each text.
        one_space: Replace line breaks and runs of spaces with one space.
        drop_first_space: Decode tokens without the space before the first word.

    >>> special = {"pad": "[PAD]", "separator": "[SEP]", "mask": "[MASK]"}
    >>> tokenizer = learn_tokenizer(["the cat sat on the mat"] * 9, 270, special, after=["separator"], one_space=True)
    >>> [tokenizer.id_to_token(token) for token in tokenizer.encode("the [MASK]")]
    ['the', '[MASK]', '[SEP]']
    """
    if vocabulary < 256 + len(special):
        raise ArgumentError(
            f"a vocabulary of {vocabulary} is too small: it must hold 256 bytes and {len(special)} special tokens"
        )
    inner = tokenizers.Tokenizer(models.BPE())
    if one_space:
        inner.normalizer = normalizers.Replace(Regex(r"\s+"), " ")
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    if drop_first_space:
        inner.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[
            AddedToken(token, lstrip=role == "mask", normalized=False, special=True) for role, token in special.items()
        ],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    _train(inner, texts, trainer)
    surrounding = [special[role] for role in (*before, *after)]
    if surrounding:
        inner.post_processor = processors.TemplateProcessing(
            single=[*surrounding[: len(before)], "$A", *surrounding[len(before) :]],
            special_tokens=[(token, inner.token_to_id(token)) for token in surrounding],
        )
    return Tokenizer(inner, special)


def create_piece_tokenizer(pieces: Sequence[str], special: Mapping[str, str], after: Sequence[str]) -> Tokenizer:
    """Create a tokenizer with one token for each piece; words are cut into the longest pieces from their beginning.

    Args:
        pieces: The pieces that begin a word and, with "##" before them, the pieces inside a word.

    >>> special = {"end": "</s>", "unknown": "<unk>"}
    >>> tokenizer = create_piece_tokenizer(["가게", "가", "##니", "##?"], special, after=["end"])
    >>> [tokenizer.id_to_token(token) for token in tokenizer.encode("가니? 가방.")]
    ['가', '##니', '##?', '<unk>', '</s>']
    """
    vocabulary = {token: index for index, token in enumerate([*special.values(), *pieces])}
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=special["unknown"]))
    inner.normalizer = normalizers.Replace(Regex(r"[.,!~]+(?=\s|$)"), "")  # the sentences have question marks only
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.decoder = decoders.WordPiece(cleanup=False)
    inner.add_special_tokens(list(special.values()))
    following = [special[role] for role in after]
    inner.post_processor = processors.TemplateProcessing(
        single=["$A", *following], special_tokens=[(token, vocabulary[token]) for token in following]
    )
    return Tokenizer(inner, special)


def _train(inner: tokenizers.Tokenizer, texts: Iterable[str], trainer: trainers.BpeTrainer) -> None:
    """Train the tokenizer; an exception raised while reading the texts is re-raised unchanged."""
    reading_errors: list[JumokError] = []

    def read_texts() -> Iterator[str]:
        # `tokenizers` replaces an exception of the iterator with its own
        try:
            yield from texts
        except JumokError as error:
            reading_errors.append(error)
            raise

    try:
        with wrap_tokenizers_errors("no tokens can be learned from these texts"):
            inner.train_from_iterator(read_texts(), trainer)
    except ArgumentError:
        if reading_errors:
            raise reading_errors[0] from None
        raise
