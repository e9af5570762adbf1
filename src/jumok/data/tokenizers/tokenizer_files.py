"""Read a tokenizer from the files in a folder. The files are not trusted: they are read with limits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from jumok.data.tokenizers import byte_level
from jumok.data.tokenizers.limited_process import KNOWN_PATTERNS, LimitedTokenizer
from jumok.data.tokenizers.tokenizer_checks import check_tokenizer_document, list_patterns
from jumok.errors import ArgumentError, TokenizerError, describe_type
from jumok.files import read_limited

VOCABULARY_LIMIT = 50_000_000  # bytes
SETTINGS_LIMIT = 10_000_000  # bytes
MAX_CONTAINERS = 2_000_000  # lists and objects in a vocabulary file; the largest real files have 600,000
MAX_ELEMENTS = 6_000_000  # elements of them; the largest real files have 2 million
# role in Jumok -> name in tokenizer_config.json
SPECIAL_TOKENS = {
    "begin": "bos_token",
    "end": "eos_token",
    "pad": "pad_token",
    "mask": "mask_token",
    "unknown": "unk_token",
    "separator": "sep_token",
    "classify": "cls_token",
}
Settings: TypeAlias = Mapping[str, Any]  # the content of tokenizer_config.json
SpecialTokens: TypeAlias = dict[str, str | None]  # by role, see SPECIAL_TOKENS
BERT_TOKENS = {"unknown": "[UNK]", "separator": "[SEP]", "pad": "[PAD]", "classify": "[CLS]", "mask": "[MASK]"}
SENTENCEPIECE_TOKENS = {"begin": "<s>", "end": "</s>", "unknown": "<unk>", "pad": "<pad>", "mask": "<mask>"}
GPT2_END = "<|endoftext|>"
PRE_TOKENIZER_OF_CLASS = {"": "gpt-2", "GPT2Tokenizer": "gpt-2", "Qwen2Tokenizer": "qwen2"}
BERT_CLASSES = {"", "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"}
MAX_END_TOKENS = 100


class TokenizerParts(NamedTuple):
    """The arguments that a `Tokenizer` is constructed from; it explains them."""

    inner: tokenizers.Tokenizer | LimitedTokenizer
    special: Mapping[str, str | None]
    chat_template: str | None = None
    ends: tuple[int, ...] = ()


def read_tokenizer(folder: Path) -> TokenizerParts:
    """Read the tokenizer in a folder."""
    settings = {
        **read_settings(folder / "special_tokens_map.json"),
        **read_settings(folder / "tokenizer_config.json"),
    }
    tokenizer_class = str(settings.get("tokenizer_class") or "").removesuffix("Fast")

    inner: Tokenizer | LimitedTokenizer
    if (folder / "tokenizer.json").is_file():
        inner, document = _read_tokenizer_json(folder / "tokenizer.json")
        special = {} if settings.keys() & SPECIAL_TOKENS.values() else _infer_special_tokens(document)
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        inner, special = _read_vocabulary_and_merges(folder, settings, tokenizer_class)
    elif (folder / "vocab.txt").is_file():
        inner, special = _read_bert_vocabulary(folder / "vocab.txt", settings, tokenizer_class)
    else:
        files = "tokenizer.json, or vocab.json and merges.txt, or vocab.txt"
        raise TokenizerError(f"there is no tokenizer in {folder}; expected {files}")

    special |= _read_special_tokens(settings)
    return TokenizerParts(inner, special, _read_chat_template(folder, settings), read_end_tokens(folder))


def read_end_tokens(folder: Path) -> tuple[int, ...]:
    """Read the ids of the tokens that end a text, from the model's files beside the tokenizer. Llama 3 has three."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        token_ids = read_settings(path).get("eos_token_id")
        if token_ids is None:
            continue

        token_ids = token_ids if isinstance(token_ids, list) else [token_ids]
        if len(token_ids) > MAX_END_TOKENS:
            raise ArgumentError(f"{path} lists {len(token_ids):,} end tokens; the limit is {MAX_END_TOKENS}")
        for token_id in token_ids:
            if type(token_id) is not int or not 0 <= token_id < 2**31:
                raise ArgumentError(f"{path}: {str(token_id)[:40]!r} is not a valid id for an end token")
        return tuple(token_ids)
    return ()


def _read_token_content(token: object) -> str | None:
    """Return the text of a token in a settings file, where it is a string or an object with a "content"."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _read_special_tokens(settings: Settings) -> SpecialTokens:
    return {role: _read_token_content(settings[name]) for role, name in SPECIAL_TOKENS.items() if name in settings}


def _read_chat_template(folder: Path, settings: Settings) -> str | None:
    if (folder / "chat_template.jinja").is_file():
        return read_text(folder / "chat_template.jinja", SETTINGS_LIMIT)

    template = settings.get("chat_template")
    if isinstance(template, list):  # several templates, by name
        by_name = {named.get("name"): named.get("template") for named in template if isinstance(named, dict)}
        template = by_name.get("default")
    return template if isinstance(template, str) else None


def _read_tokenizer_json(path: Path) -> tuple[Tokenizer | LimitedTokenizer, Settings]:
    """Return the tokenizer of a tokenizer.json and its parsed content."""
    text = read_text(path, VOCABULARY_LIMIT)
    document = parse_json_object(path, text)
    model = document.get("model")
    model = model if isinstance(model, dict) else {}
    try:
        check_tokenizer_document(document)
        is_known = KNOWN_PATTERNS.issuperset(list_patterns(document))
    except ArgumentError as error:
        raise ArgumentError(f"{path} is refused: {error}") from None

    with wrap_tokenizers_errors(f"{path} is not a tokenizer"):
        if isinstance(model.get("vocab"), dict) and isinstance(model.get("merges"), list):
            prefix = model.get("continuing_subword_prefix")
            prefix = prefix if isinstance(prefix, str) else ""
            for index, merge in enumerate(model["merges"]):
                byte_level.parse_merge(merge, model["vocab"], index, prefix)
        inner = Tokenizer.from_str(text) if is_known else LimitedTokenizer(text)

    return inner, document


def _infer_special_tokens(document: Settings) -> SpecialTokens:
    """Return the special tokens of a tokenizer.json without settings: the usual names and the unknown token."""
    model = document.get("model")
    model = model if isinstance(model, dict) else {}
    added = {_read_token_content(token) for token in document.get("added_tokens") or ()}
    special: SpecialTokens = {}
    for names in (SENTENCEPIECE_TOKENS, BERT_TOKENS):
        special |= {role: token for role, token in names.items() if token in added}
    unknown = _read_token_content(model.get("unk_token"))
    if unknown is not None:
        special["unknown"] = unknown
    return special


def _read_vocabulary(path: Path) -> dict[str, int]:
    """Read a JSON file of token ids by token."""
    vocabulary = parse_json_object(path, read_text(path, VOCABULARY_LIMIT))
    for token, token_id in vocabulary.items():
        if type(token_id) is not int or not 0 <= token_id < 2**31:
            raise ArgumentError(f"{path}: {repr(token_id)[:40]} is not a valid id for the token {token[:40]!r}")
    return vocabulary


def _read_vocabulary_and_merges(
    folder: Path, settings: Settings, tokenizer_class: str
) -> tuple[Tokenizer, SpecialTokens]:
    """Read GPT-2's files: token ids by token, and pairs in the order of merging."""
    vocabulary = _read_vocabulary(folder / "vocab.json")
    is_roberta = tokenizer_class == "" and {"<s>", "</s>"} <= vocabulary.keys()
    if tokenizer_class not in PRE_TOKENIZER_OF_CLASS or is_roberta:
        raise ArgumentError(
            f"{folder} contains a {tokenizer_class or 'RobertaTokenizer'} as vocab.json and merges.txt; in this form "
            "only GPT2Tokenizer and Qwen2Tokenizer are supported; save it as tokenizer.json"
        )

    lines = read_text(folder / "merges.txt", VOCABULARY_LIMIT).split("\n")
    merges = [line.removesuffix("\r") for line in lines if line.strip() and not line.startswith("#version")]
    with wrap_tokenizers_errors(f"{folder / 'merges.txt'} does not fit its vocab.json"):
        inner = byte_level.build_byte_level_tokenizer(
            vocabulary,
            merges,
            PRE_TOKENIZER_OF_CLASS[tokenizer_class],
            prefix_space=settings.get("add_prefix_space") is True,
        )

    special: SpecialTokens = {"end": GPT2_END, "unknown": GPT2_END}
    special["pad" if tokenizer_class == "Qwen2Tokenizer" else "begin"] = GPT2_END
    _add_tokens(inner, folder, settings, special)

    begin = (special | _read_special_tokens(settings)).get("begin")
    begin_id = None if begin is None else inner.token_to_id(begin)
    if settings.get("add_bos_token") is True and begin is not None and begin_id is not None:
        byte_level.prepend_token(inner, begin, begin_id)
    return inner, special


def _read_bert_vocabulary(path: Path, settings: Settings, tokenizer_class: str) -> tuple[Tokenizer, SpecialTokens]:
    """Read BERT's file (WordPiece, Devlin et al. 2019): one token per line."""
    if tokenizer_class not in BERT_CLASSES:
        raise ArgumentError(
            f"{path} belongs to a {tokenizer_class}; with a vocab.txt only BertTokenizer is supported; "
            "save it as tokenizer.json"
        )

    lines = read_text(path, VOCABULARY_LIMIT).removesuffix("\n").split("\n")
    vocabulary = {line.removesuffix("\r"): token_id for token_id, line in enumerate(lines)}
    special: SpecialTokens = {**BERT_TOKENS, **_read_special_tokens(settings)}
    unknown, classify, separator = (str(special[role]) for role in ("unknown", "classify", "separator"))
    for token in (unknown, classify, separator):
        if token not in vocabulary:
            raise ArgumentError(f"{path} is not a BERT vocabulary: it has no line {token}")

    with wrap_tokenizers_errors(f"{path} is not a BERT vocabulary"):
        inner = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
        inner.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
            strip_accents=settings.get("strip_accents"),
            lowercase=settings.get("do_lower_case") is not False,
        )
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        inner.decoder = decoders.WordPiece(prefix="##")
        inner.post_processor = processors.TemplateProcessing(
            single=[classify, "$A", separator],
            pair=[classify, "$A", separator, "$B:1", f"{separator}:1"],
            special_tokens=[(token, vocabulary[token]) for token in (classify, separator)],
        )
    _add_tokens(inner, path.parent, settings, special)
    return inner, special


def _add_tokens(inner: Tokenizer, folder: Path, settings: Settings, special: SpecialTokens) -> None:
    """Add the tokens that are listed outside the vocabulary, and mark special tokens so that they are never split."""
    added: dict[int, AddedToken] = {}
    if (folder / "added_tokens.json").is_file():
        for token, token_id in _read_vocabulary(folder / "added_tokens.json").items():
            added[token_id] = AddedToken(token, normalized=False, special=True)

    with wrap_tokenizers_errors(f"the added tokens of {folder} do not fit its vocabulary"):
        decoder = settings.get("added_tokens_decoder")
        for key, options in (decoder if isinstance(decoder, dict) else {}).items():
            added[int(key)] = AddedToken(**{name: option for name, option in options.items() if name != "__type"})

        for token_id, added_token in sorted(added.items()):
            add = inner.add_special_tokens if added_token.special else inner.add_tokens
            add([added_token])
            actual_id = inner.token_to_id(added_token.content)
            if actual_id != token_id:
                raise ArgumentError(
                    f"the id of {added_token.content[:40]!r} should be {token_id}, but would be {actual_id}"
                )

        tokens = {token for token in {**special, **_read_special_tokens(settings)}.values() if token is not None}
        for token in sorted(tokens - {added_token.content for added_token in added.values()}):
            if inner.token_to_id(token) is not None:  # never add a new token: the model has no embedding for it
                inner.add_special_tokens([AddedToken(token, normalized=False, special=True)])


@contextlib.contextmanager
def wrap_tokenizers_errors(message: str) -> Iterator[None]:
    """Turn errors of the `tokenizers` library into ArgumentError.

    The library raises plain Exceptions, and for some files a PanicException, which is a BaseException.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ArgumentError(f"{message}: {str(error)[:300]}") from error


def read_text(path: Path, limit: int) -> str:
    """Read a UTF-8 file."""
    content = read_limited(path, limit)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} is not UTF-8 text: byte {error.start} is {content[error.start]:#04x}") from error


def parse_json_object(path: Path, text: str) -> dict[str, Any]:
    """Parse a JSON object, unless it needs far more memory than its text, such as millions of empty lists."""
    containers, elements = text.count("[") + text.count("{"), text.count(",")
    if containers > MAX_CONTAINERS or elements > MAX_ELEMENTS:
        raise ArgumentError(
            f"{path} contains {containers:,} lists and {elements:,} elements; the limits are {MAX_CONTAINERS:,} and "
            f"{MAX_ELEMENTS:,}"
        )
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is not JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise ArgumentError(f"{path} contains {describe_type(document)}; expected an object")
    return document


def read_settings(path: Path) -> dict[str, Any]:
    """Read a JSON settings file."""
    return parse_json_object(path, read_text(path, SETTINGS_LIMIT)) if path.is_file() else {}
