"""The tokenizer of a training run: learned once from the training texts, and loaded when the run is resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from jumok.data.tokenizers.tokenizer import Tokenizer
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
